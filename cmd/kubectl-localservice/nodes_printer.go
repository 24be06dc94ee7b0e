package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// nodesPrinter prints lists of nodes in the format that the user asks for.
type nodesPrinter struct {
	printers.ResourcePrinter

	format      string
	table       bool
	newPrinter  func() (printers.ResourcePrinter, error)
	out, errOut io.Writer
	// flush writes what out still holds.
	flush func() error
	// message, summary and nodeLabels are what was last printed of a list as a whole.
	message, summary, nodeLabels string
}

func (p *plugin) newNodesPrinter(flags *nodesFlags) (*nodesPrinter, error) {
	format := *flags.output.OutputFormat
	printer := &nodesPrinter{format: format, table: format == "" || format == "wide", out: p.Out, errOut: p.ErrOut,
		newPrinter: flags.output.ToPrinter, flush: func() error { return nil }}
	if printer.table {
		printer.ResourcePrinter = printers.NewTablePrinter(printers.PrintOptions{Wide: format == "wide",
			NoHeaders: flags.noHeaders})
		return printer, nil
	}
	var err error
	printer.ResourcePrinter, err = printer.newPrinter()
	return printer, err
}

// print prints a list. It does not repeat what it has printed about the list as a whole.
func (p *nodesPrinter) print(list *diagnose.NodeList) error {
	switch {
	case p.table:
		return p.printTable(list)
	case p.format == "name":
		var services []string
		for i := range list.Items {
			if list.Items[i].HasService() {
				services = append(services, list.Items[i].Service)
			}
		}
		for _, service := range slices.Compact(services) { // With mode Hostnames, all names have the same one.
			fmt.Fprintln(p.out, "service/"+service)
		}
		return nil
	}
	// JSONPath makes floating point numbers from a struct, and could not compare integers.
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(list)
	if err != nil {
		return err
	}
	printer := p.ResourcePrinter
	if p.format != "yaml" { // The YAML printer separates lists; a JSONPath printer with a range works only once.
		if printer, err = p.newPrinter(); err != nil {
			return err
		}
	}
	return printer.PrintObj(&unstructured.Unstructured{Object: object}, p.out)
}

func (p *nodesPrinter) printNone(list *diagnose.NodeList) error {
	p.printMessage(list)
	p.printSummary(list)
	return nil
}

func (p *nodesPrinter) printMessage(list *diagnose.NodeList) {
	if list.Message != p.message && list.Message != "" {
		fmt.Fprintln(p.errOut, list.Message)
	}
	p.message = list.Message
}

func (p *nodesPrinter) printTable(list *diagnose.NodeList) error {
	p.printMessage(list)
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
	reasons, below := reasonColumn(list.Items)
	for i := range list.Items {
		n := &list.Items[i]
		var pods []string
		for _, pod := range n.Pods {
			pods = append(pods, pod.Name)
		}
		endpoints := fmt.Sprintf("%d/%d", n.Endpoints.Ready, n.Endpoints.Total)
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{
			n.Node, orNone(n.Name()), orNone(n.DNSName), endpoints, orNone(pods...), orNone(n.Addresses...),
			reasons[i]}})
	}
	if list.DNS != nil {
		addDNS(table, list)
	}
	if err := errors.Join(p.PrintObj(table, p.out), p.flush()); err != nil {
		return err
	}
	// On stderr, so that programs that read the table do not stumble over it.
	for _, line := range below {
		fmt.Fprintln(p.errOut, line)
	}
	p.printSummary(list)
	if line := list.NodeLabels.String(); line != p.nodeLabels && line != "" {
		fmt.Fprintln(p.errOut, line)
		p.nodeLabels = line
	}
	return nil
}

// addDNS adds a column with what DNS answers, beside the endpoints.
func addDNS(table *metav1.Table, list *diagnose.NodeList) {
	const column = 4
	table.ColumnDefinitions = slices.Insert(table.ColumnDefinitions, column, metav1.TableColumnDefinition{Name: "DNS"})
	for i := range table.Rows {
		result := ""
		if answer := list.Items[i].DNS; answer != nil {
			result = string(answer.Result)
		}
		table.Rows[i].Cells = slices.Insert(table.Rows[i].Cells, column, any(orNone(result)))
	}
}

func orNone(items ...string) string { return cmp.Or(strings.Join(items, ","), "<none>") }
