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
	// flush writes the lines of a table that out still holds.
	flush func() error
	// message, summary and nodeLabels are what was last printed of a list as a whole.
	message, summary, nodeLabels string
}

func (p *plugin) newNodesPrinter(flags *nodesFlags) (*nodesPrinter, error) {
	format := *flags.output.OutputFormat
	printer := &nodesPrinter{format: format, table: format == "" || format == "wide", out: p.Out, errOut: p.ErrOut,
		newPrinter: flags.output.ToPrinter}
	if printer.table {
		columns := printers.GetNewTabWriter(p.Out) // In a watch, later lines are as wide as earlier ones.
		printer.out, printer.flush = columns, columns.Flush
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

// printLine prints a line about the list as a whole, unless it is still the last one of its kind.
func (p *nodesPrinter) printLine(last *string, line string) {
	if line != *last && line != "" {
		fmt.Fprintln(p.errOut, line)
	}
	*last = line
}

func (p *nodesPrinter) printTable(list *diagnose.NodeList) error {
	p.printLine(&p.message, list.Message)
	if len(list.Items) == 0 {
		p.printLine(&p.summary, summaryLine(list))
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
	p.printLine(&p.summary, summaryLine(list))
	p.printLine(&p.nodeLabels, list.NodeLabels.String())
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
