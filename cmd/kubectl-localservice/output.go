package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/localservice-dev/local-service-controller/internal/diagnose"
)

// output is how to print a list of nodes.
type output struct {
	format    string
	noHeaders bool
	json      genericclioptions.JSONYamlPrintFlags
	template  *genericclioptions.KubeTemplatePrintFlags
}

func (o *output) addFlags(cmd *cobra.Command) {
	o.template = genericclioptions.NewKubeTemplatePrintFlags()
	o.json.ShowManagedFields = true // There are none to leave out.
	o.template.AddFlags(cmd)
	cmd.Flags().StringVarP(&o.format, "output", "o", "", "Output format. One of: ("+
		strings.Join(o.formats(), ", ")+").")
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "Do not print the table's headers.")
	must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(o.formats(),
		cobra.ShellCompDirectiveNoFileComp)))
}

func (o *output) formats() []string {
	return slices.Concat(o.json.AllowedFormats(), []string{"name", "wide"}, o.template.AllowedFormats())
}

// printer finds the printer for the flags, before anything is asked of the cluster.
func (o *output) printer() (func(*diagnose.NodeList, io.Writer) error, error) {
	if o.isTable() {
		table := printers.NewTablePrinter(printers.PrintOptions{NoHeaders: o.noHeaders, Wide: o.format == "wide"})
		return func(list *diagnose.NodeList, w io.Writer) error {
			if len(list.Items) == 0 {
				return nil // It was said on the error stream.
			}
			return table.PrintObj(tableOf(list), w)
		}, nil
	}
	if o.format == "name" {
		return printNames, nil
	}
	printer, err := o.json.ToPrinter(o.format)
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		printer, err = o.template.ToPrinter(o.format)
	}
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return nil, fmt.Errorf("there is no output format %q: choose one of %s",
			o.format, strings.Join(o.formats(), ", "))
	}
	if err != nil {
		return nil, err
	}
	return func(list *diagnose.NodeList, w io.Writer) error {
		// So that JSONPath can compare integers: from a struct it makes floating point numbers.
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(list)
		if err != nil {
			return fmt.Errorf("print as %s: %w", o.format, err)
		}
		return printer.PrintObj(&unstructured.Unstructured{Object: object}, w)
	}, nil
}

// isTable says whether the output is for people.
func (o *output) isTable() bool { return o.format == "" || o.format == "wide" }

// printNames lists the Services that are there, as service/NAME.
func printNames(list *diagnose.NodeList, w io.Writer) error {
	printer := printers.NamePrinter{}
	for i := range list.Items {
		if !list.Items[i].HasService() {
			continue
		}
		service := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: list.Items[i].Service}}
		service.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
		if err := printer.PrintObj(service, w); err != nil {
			return err
		}
	}
	return nil
}

func tableOf(list *diagnose.NodeList) *metav1.Table {
	const wide = 1
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Node", Type: "string"},
		{Name: "Service", Type: "string"},
		{Name: "DNS-Name", Type: "string"},
		{Name: "Endpoints", Type: "string"},
		{Name: "Pods", Type: "string", Priority: wide},
		{Name: "Addresses", Type: "string", Priority: wide},
		{Name: "Reason", Type: "string"}, // The last one, because it is the only one that holds spaces.
	}}
	for i := range list.Items {
		n := &list.Items[i]
		var pods []string
		for j := range n.Pods {
			pods = append(pods, n.Pods[j].Name)
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{
			n.Node, n.Service, n.DNSName, fmt.Sprintf("%d/%d", n.Endpoints.Ready, n.Endpoints.Total), orNone(pods),
			orNone(n.Addresses), n.Message,
		}})
	}
	return table
}

func orNone(items []string) string {
	if len(items) == 0 {
		return "<none>"
	}
	return strings.Join(items, ",")
}
