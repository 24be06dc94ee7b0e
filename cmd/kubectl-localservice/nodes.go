package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/internal/diagnose"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// nodesOptions are the flags of `nodes`.
type nodesOptions struct {
	*plugin
	output        output
	nodeLabelKey  string
	clusterDomain string
	chunkSize     int64
}

func (p *plugin) nodesCommand() *cobra.Command {
	o := &nodesOptions{plugin: p}
	cmd := &cobra.Command{
		Use:   "nodes NAME",
		Short: "Show every node's Service, its endpoints, and why it has none",
		Long: `Show, for every node that a LocalService selects, the node's Service, how many of its endpoints are
ready, and if not all are well, why:

  NameConflict           the Service's name is taken by a Service of somebody else
  ServiceMissing         there is no Service of that name
  ServiceTerminating     the Service is being deleted
  ServiceOutdated        the Service is not as the LocalService says
  PodsOfOtherNode        pods on another node have this node's label
  PodsUnlabelled         pods on the node do not have its label
  PodsNotReady           pods on the node are not ready
  EndpointsNotPublished  pods on the node are ready, but not in the EndpointSlices
  PodsTerminating        all pods on the node are being deleted
  PodsCompleted          all pods on the node have ended
  NoPods                 no pod on the node has the labels of the LocalService's selector

The table says it in words; -o json and -o yaml have the word and the message in the fields reason and message of each
item. Both are empty where all is well.

The line after the table says how the pods of the LocalService come by their node label: with the binding, where the
admission policies work, or by a write of the controller for each pod. It goes by the pod that was scheduled last, and
counts those with which it was otherwise. In -o json and -o yaml that is the field nodeLabels of the list, in which
newest is AtBinding, ByController or, if the pods do not show it, empty.

With -o name, the Services that are there are listed, as other commands take them.`,
		Example: `  # What answers on each node, and why nothing does
  kubectl localservice nodes demo

  # With pods and addresses
  kubectl localservice nodes demo -o wide

  # The nodes where nothing answers
  kubectl localservice nodes demo -o jsonpath='{range .items[?(@.endpoints.ready==0)]}{.node}{"\n"}{end}'

  # Look at the Services themselves
  kubectl describe $(kubectl localservice nodes demo -o name)`,
		Args:              arguments("NAME of a LocalService"),
		ValidArgsFunction: p.completeLocalService,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := localServiceName(args[0])
			if err != nil {
				return usageError(cmd, err)
			}
			return o.run(cmd.Context(), name)
		},
	}
	o.output.addFlags(cmd)
	cmd.Flags().StringVar(&o.nodeLabelKey, "node-label-key", "", "Key of the pods' node label, if the controller "+
		"was told another one than "+v1alpha1.DefaultNodeLabelKey+". By default it is taken from the Services.")
	cmd.Flags().StringVar(&o.clusterDomain, "cluster-domain", diagnose.DefaultClusterDomain, "Domain of the "+
		"cluster's DNS.")
	cmd.Flags().Int64Var(&o.chunkSize, "chunk-size", 500, "Return large lists in chunks rather than all at once. "+
		"Pass 0 to disable.")
	return cmd
}

func (o *nodesOptions) run(ctx context.Context, name string) error {
	printList, err := o.output.printer()
	if err != nil {
		return err
	}
	c, err := o.connect()
	if err != nil {
		return err
	}
	ls, err := c.localService(ctx, name)
	if err != nil {
		return err
	}
	in, warnings, err := c.read(ctx, ls, o.chunkSize)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintln(o.ErrOut, "warning: "+w)
	}
	in.ClusterDomain = o.clusterDomain
	if in.NodeLabelKey = o.nodeLabelKey; in.NodeLabelKey == "" {
		in.NodeLabelKey = diagnose.NodeLabelKey(ls, in.Services)
	}
	list := diagnose.Nodes(in)
	if len(list.Items) == 0 && len(warnings) == 0 {
		fmt.Fprintln(o.ErrOut, noNodes(ls))
	}
	if err := printList(list, o.Out); err != nil {
		return err
	}
	// Beside the table, so that what reads that does not stumble over it.
	if line := list.NodeLabels.String(); line != "" && len(list.Items) > 0 && o.output.isTable() &&
		!o.output.noHeaders {
		fmt.Fprintln(o.ErrOut, line)
	}
	return nil
}

func noNodes(ls *v1alpha1.LocalService) string {
	if len(ls.Spec.NodeSelector) == 0 {
		return "The cluster has no nodes."
	}
	return fmt.Sprintf("No node matches the nodeSelector %s of LocalService %s/%s.",
		labels.Set(ls.Spec.NodeSelector), ls.Namespace, ls.Name)
}
