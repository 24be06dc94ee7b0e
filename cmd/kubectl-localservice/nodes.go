package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// nodesFlags are the flags of nodes.
type nodesFlags struct {
	clusterDomain, dnsService                      string
	dns, noHeaders, watch, allNamespaces, problems bool
	many                                           bool // LocalServices, instead of one
	output                                         *genericclioptions.PrintFlags
}

const nodesHelp = `Show, for every node that a LocalService selects, the node's Service, or with mode: Hostnames its
name, how many of its endpoints are ready, and if not all are well, why. Without NAME, show all LocalServices of the
namespace. The reasons are:

  NodeWithoutName        the node does not have the label that spec.groupBy names
  NameConflict           the Service's name is taken by a Service of somebody else, or is that of another node
  ServiceMissing         there is no Service of that name
  ServiceTerminating     the Service is being deleted
  ServiceOutdated        the Service is not as the LocalService says
  SourceMissing          with mode: Hostnames, the Service that selects the pods is missing, or its name is taken
  NameOutdated           with mode: Hostnames, the name is not published as Kubernetes has published its pods
  PodsOfOtherNode        pods on another node have this node's label
  PodsSelectedByLabel    pods on the node have another node label, by which their owner selects them, or may do so:
                         the controller leaves that unchanged
  PodsMislabelled        pods on the node have another node label, by which no owner selects them
  PodsUnlabelled         pods on the node have no node label
  NodeNotReady           the node is not ready, so that nothing on it answers
  PodsNotReady           pods on the node are not ready
  EndpointsNotPublished  the EndpointSlices lack a pod that is ready, or have one that is gone
  PortsMissing           no container of the pods on the node has a port of the name that targetPort gives
  PodsTerminating        all pods on the node are being deleted
  PodsCompleted          all pods on the node have ended
  NodeCordoned           the node is cordoned, and no pod on it has the labels of the LocalService's selector
  NodeTainted            no pod here either, and no pod tolerates a taint of the node
  NoPods                 no pod on the node has the labels of the LocalService's selector

The table shows the message. A long text is below the table, with the nodes that it is about; -o wide has all texts in
the table, and DNS names, pods and addresses. A line has the numbers of kubectl get localservices, as they are now. In
-o json and -o yaml they are in the field summary of the list, and each item has the word and the message in its fields
reason and message. Both are empty where all is well. With spec.groupBy, there is an item for each group of nodes. For
several LocalServices, the output is a List with a list for each.

If the controller does not seem to run, a line above the table says so. It goes by the Lease local-service-controller,
if you may list Leases.

With -o wide, a line says how the pods get their node label: with the binding, where the admission policies work, or by
a write of the controller for each pod. The newest pod decides; pods with the other origin are counted. In -o json and
-o yaml that is the field nodeLabels of the list, in which newest is AtBinding, ByController or, if the pods do not show
it, empty. With mode: Hostnames, pods need no label.

With --dns, the cluster's DNS server is asked for every name, and a column says what it answers:

  Answers         the addresses that it should: the cluster IP of the node's Service, or if that is headless, or with
                  mode: Hostnames, the addresses of the ready pods
  Empty           no address, as it should: the name is headless, and no pod is ready, or it has no Service
  Unknown         no address, although there should be one
  OtherNode       addresses of another node
  OtherAddresses  other addresses than it should, but none of another node
  NoAnswer        the server has failed, or not answered in time

In -o json and -o yaml that is the field dns of each item, with the answer's addresses; the field dns of the list says
who was asked. The server is the first ready pod of --dns-service, and is asked by TCP through a port-forward. That
needs the permission to list EndpointSlices, get Pods and create pods/portforward in its namespace. A name that has just
changed may be answered with an outdated address. If no name is known to the server, --cluster-domain is probably
not the domain of the cluster: the line "search" of /etc/resolv.conf in any pod ends with it.

With -o name, the existing Services are listed, as other commands take them.

With --watch, each line is printed again when it changes. A name that is gone is printed again, with the reason
NameGone. In -o json and -o yaml there is a list each time, of the items that have changed.`

// defaultDNSService is where kubeadm and most distributions have the cluster's DNS.
const defaultDNSService = "kube-system/kube-dns"

func (p *plugin) nodesCommand() *cobra.Command {
	flags := &nodesFlags{output: genericclioptions.NewPrintFlags("")}
	output := flags.output
	cmd := &cobra.Command{
		Use:   "nodes [NAME]",
		Short: "Show every node's name, its endpoints, and why it has none",
		Long:  nodesHelp,
		Example: `  # What answers on each node, and why nothing does
  kubectl localservice nodes demo

  # What is wrong in all namespaces
  kubectl localservice nodes -A --problems

  # With DNS names, pods and addresses
  kubectl localservice nodes demo -o wide

  # The nodes where nothing answers
  kubectl localservice nodes demo -o jsonpath='{range .items[?(@.endpoints.ready==0)]}{.node}{"\n"}{end}'

  # Which names the cluster's DNS does not answer as it should
  kubectl localservice nodes demo --dns

  # What changes, as it does
  kubectl localservice nodes demo --watch

  # Look at the Services themselves
  kubectl describe $(kubectl localservice nodes demo -o name)`,
		Args:              withUsage(cobra.MaximumNArgs(1)),
		ValidArgsFunction: p.complete(localServiceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				name = nameOf(args[0])
			}
			flags.many = name == ""
			return p.nodes(cmd.Context(), name, flags)
		},
	}
	output.AddFlags(cmd)
	cmd.Flag("output").Usage = "Output format. One of: (" + strings.Join(output.AllowedFormats(), ", ") + ", wide)."
	cmd.Flag("show-managed-fields").Hidden = true // There are none.
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		append(output.AllowedFormats(), "wide"), cobra.ShellCompDirectiveNoFileComp)))
	addClusterDomain(cmd, &flags.clusterDomain)
	addAllNamespaces(cmd, &flags.allNamespaces)
	cmd.Flags().BoolVar(&flags.problems, "problems", false, "Print only names with a problem.")
	cmd.Flags().BoolVar(&flags.noHeaders, "no-headers", false, "Print the table without its headers.")
	cmd.Flags().BoolVarP(&flags.watch, "watch", "w", false, "After printing the nodes, print those that change, until "+
		"Ctrl-C.")
	cmd.Flags().BoolVar(&flags.dns, "dns", false, "Ask the cluster's DNS server for every name, and show what it "+
		"answers.")
	cmd.Flags().StringVar(&flags.dnsService, "dns-service", defaultDNSService, "Service of the cluster's DNS "+
		"server, as namespace/name.")
	return cmd
}

func addAllNamespaces(cmd *cobra.Command, all *bool) {
	cmd.Flags().BoolVarP(all, "all-namespaces", "A", false, "Show the LocalServices of all namespaces.")
}

// inAllNamespaces makes a cluster that of all namespaces, if the flag says so.
func (c *cluster) inAllNamespaces(all bool, name string) error {
	if all && name != "" {
		return errors.New("a name is one of a namespace: leave out either the name or -A")
	}
	if all {
		c.namespace = metav1.NamespaceAll
	}
	return nil
}

func addClusterDomain(cmd *cobra.Command, domain *string) {
	cmd.Flags().StringVar(domain, "cluster-domain", "cluster.local", "Domain of the cluster's DNS.")
}

func (p *plugin) nodes(ctx context.Context, name string, flags *nodesFlags) error {
	switch {
	case flags.dns && flags.watch:
		return errors.New("a watch does not ask DNS: leave out either --dns or --watch")
	case !flags.dns && flags.dnsService != defaultDNSService:
		return errors.New("--dns-service says whom to ask: set --dns, too")
	}
	printer, err := p.newNodesPrinter(flags)
	if err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	if err := c.inAllNamespaces(flags.allNamespaces, name); err != nil {
		return err
	}
	var ls *v1alpha1.LocalService
	if name != "" {
		if ls, err = c.localService(ctx, name); err != nil {
			return err
		}
	}
	if flags.watch {
		return p.watchNodes(ctx, c, name, flags, printer)
	}
	w, err := c.read(ctx, ls, flags.clusterDomain, true)
	if err != nil {
		return err
	}
	if !w.allNodes {
		p.warnOfNodes()
	}
	return p.printNodes(ctx, c, w.lists(ctx, ls), flags, printer)
}

// lists returns what was read of one LocalService, or with nil of all.
func (w *watcher) lists(ctx context.Context, ls *v1alpha1.LocalService) (lists []*diagnose.NodeList) {
	all := []*v1alpha1.LocalService{ls}
	if ls == nil {
		all = inNamespace[v1alpha1.LocalService](w.localServices, metav1.NamespaceAll)
	}
	now := time.Now()
	for _, ls := range all {
		in := w.input(ctx, ls)
		in.Now = now
		lists = append(lists, diagnose.Nodes(in))
	}
	return sorted(lists)
}

// printNodes prints lists once, with the answers of DNS if they are asked for.
func (p *plugin) printNodes(ctx context.Context, c *cluster, lists []*diagnose.NodeList, flags *nodesFlags,
	printer *nodesPrinter) (err error) {
	if len(lists) == 0 && printer.table {
		fmt.Fprintln(p.ErrOut, "There is no LocalService here.")
		return nil
	}
	if flags.dns {
		var warning string
		if lists, warning, err = c.withDNS(ctx, lists, flags); err != nil {
			return err
		}
		if warning != "" {
			fmt.Fprintln(p.ErrOut, "warning: "+warning)
		}
	}
	if err := printer.printOnce(lists); err != nil || !printer.table {
		return err
	}
	hasNone := !slices.ContainsFunc(lists, func(list *diagnose.NodeList) bool {
		return slices.ContainsFunc(list.Items, func(n diagnose.Node) bool { return hasProblem(&n) })
	})
	if flags.problems && hasNone {
		fmt.Fprintln(p.ErrOut, "No name has a problem.")
	}
	if printer.many {
		fmt.Fprintln(p.ErrOut, totalLine(lists))
	}
	return nil
}

// warnOfNodes says what somebody does not see who may not list nodes.
func (p *plugin) warnOfNodes() {
	fmt.Fprintln(p.ErrOut, "warning: you may not list nodes, so that nodes without a name are not shown")
}
