package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/localservice-dev/local-service-controller/internal/diagnose"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

func (p *plugin) nodesCommand() *cobra.Command {
	var clusterDomain string
	var noHeaders bool
	output := genericclioptions.NewPrintFlags("")
	cmd := &cobra.Command{
		Use:   "nodes NAME",
		Short: "Show every node's Service, its endpoints, and why it has none",
		Long: `Show, for every node that a LocalService selects, the node's Service, or with mode: Hostnames its name,
how many of its endpoints are ready, and if not all are well, why:

  NodeWithoutName        the node does not have the label that spec.groupBy names
  NameConflict           the Service's name is taken by a Service of somebody else
  ServiceMissing         there is no Service of that name
  ServiceTerminating     the Service is being deleted
  ServiceOutdated        the Service is not as the LocalService says
  SourceMissing          with mode: Hostnames, the Service that selects the pods is missing, or its name is taken
  NameOutdated           with mode: Hostnames, the name is not published as Kubernetes has published its pods
  PodsOfOtherNode        pods on another node have this node's label
  PodsUnlabelled         pods on the node do not have its label
  PodsNotReady           pods on the node are not ready
  EndpointsNotPublished  pods on the node are ready, but not in the EndpointSlices
  PodsTerminating        all pods on the node are being deleted
  PodsCompleted          all pods on the node have ended
  NoPods                 no pod on the node has the labels of the LocalService's selector

The table says it in words; -o json and -o yaml have the word and the message in the fields reason and message of each
item. Both are empty where all is well. With spec.groupBy, there is an item for each group of nodes.

The line after the table says how the pods of the LocalService come by their node label: with the binding, where the
admission policies work, or by a write of the controller for each pod. It goes by the pod that was scheduled last, and
counts those with which it was otherwise. In -o json and -o yaml that is the field nodeLabels of the list, in which
newest is AtBinding, ByController or, if the pods do not show it, empty. With mode: Hostnames, pods need no label.

After a change of the mode, the names are those of the new one, and a line says how long those of the mode before are
still there. In -o json and -o yaml that is the field message of the list.

With -o name, the Services that are there are listed, as other commands take them.`,
		Example: `  # What answers on each node, and why nothing does
  kubectl localservice nodes demo

  # With pods and addresses
  kubectl localservice nodes demo -o wide

  # The nodes where nothing answers
  kubectl localservice nodes demo -o jsonpath='{range .items[?(@.endpoints.ready==0)]}{.node}{"\n"}{end}'

  # Look at the Services themselves
  kubectl describe $(kubectl localservice nodes demo -o name)`,
		Args:              exactArgs(1),
		ValidArgsFunction: p.complete(localServiceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.nodes(cmd.Context(), nameOf(args[0]), clusterDomain, noHeaders, output)
		},
	}
	output.AddFlags(cmd)
	cmd.Flag("output").Usage = "Output format. One of: (" + strings.Join(output.AllowedFormats(), ", ") + ", wide)."
	cmd.Flag("show-managed-fields").Hidden = true // There are none.
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		append(output.AllowedFormats(), "wide"), cobra.ShellCompDirectiveNoFileComp)))
	addClusterDomain(cmd, &clusterDomain)
	cmd.Flags().BoolVar(&noHeaders, "no-headers", false, "Print the table without its headers.")
	return cmd
}

func addClusterDomain(cmd *cobra.Command, domain *string) {
	cmd.Flags().StringVar(domain, "cluster-domain", "cluster.local", "Domain of the cluster's DNS.")
}

func (p *plugin) nodes(ctx context.Context, name, clusterDomain string, noHeaders bool,
	output *genericclioptions.PrintFlags) error {
	format := *output.OutputFormat
	printer := printers.NewTablePrinter(printers.PrintOptions{Wide: format == "wide", NoHeaders: noHeaders})
	if format != "" && format != "wide" {
		var err error
		if printer, err = output.ToPrinter(); err != nil {
			return err
		}
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	ls, err := c.localService(ctx, name)
	if err != nil {
		return err
	}
	in, allNodes, err := c.read(ctx, ls, true)
	if err != nil {
		return err
	}
	if !allNodes {
		without := "without a Service of this LocalService"
		if ls.Spec.Mode == v1alpha1.ModeHostnames {
			without = "of which no name is published"
		}
		fmt.Fprintf(p.ErrOut, "warning: you may not list nodes, so that nodes %s are not shown\n", without)
	}
	in.ClusterDomain = clusterDomain
	view := diagnose.Nodes(in)
	switch format {
	case "", "wide":
		return p.printTable(view, printer)
	case "name":
		var services []string
		for i := range view.Items {
			if view.Items[i].HasService() {
				services = append(services, view.Items[i].Service)
			}
		}
		for _, service := range slices.Compact(services) { // With mode Hostnames, all names are of one.
			fmt.Fprintln(p.Out, "service/"+service)
		}
		return nil
	}
	// So that JSONPath can compare integers: from a struct it makes floating point numbers.
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(view)
	if err != nil {
		return err
	}
	return printer.PrintObj(&unstructured.Unstructured{Object: object}, p.Out)
}

func (p *plugin) printTable(list *diagnose.NodeList, printer printers.ResourcePrinter) error {
	if list.Message != "" {
		fmt.Fprintln(p.ErrOut, list.Message)
	}
	if len(list.Items) == 0 {
		fmt.Fprintf(p.ErrOut, "No node found that LocalService %s/%s selects.\n", list.Namespace, list.LocalService)
		return nil
	}
	column := "Service"
	if list.Mode == v1alpha1.ModeHostnames {
		column = "Name"
	}
	const wide = 1
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Node"},
		{Name: column},
		{Name: "DNS-Name"},
		{Name: "Endpoints"},
		{Name: "Pods", Priority: wide},
		{Name: "Addresses", Priority: wide},
		{Name: "Reason"}, // The last one, because it is the only one that holds spaces.
	}}
	for i := range list.Items {
		n := &list.Items[i]
		var pods []string
		for _, pod := range n.Pods {
			pods = append(pods, pod.Name)
		}
		endpoints := fmt.Sprintf("%d/%d", n.Endpoints.Ready, n.Endpoints.Total)
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{
			n.Node, orNone(n.Name()), orNone(n.DNSName), endpoints, orNone(pods...), orNone(n.Addresses...), n.Message}})
	}
	if err := printer.PrintObj(table, p.Out); err != nil {
		return err
	}
	// Beside the table, so that what reads that does not stumble over it.
	if line := list.NodeLabels.String(); line != "" {
		fmt.Fprintln(p.ErrOut, line)
	}
	return nil
}

func orNone(items ...string) string { return cmp.Or(strings.Join(items, ","), "<none>") }
