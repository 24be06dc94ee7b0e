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
	table, wide bool
	// many is whether there may be several LocalServices, and namespaces whether they may be in several.
	many, namespaces bool
	// problems is whether only names with a problem are printed.
	problems    bool
	newPrinter  func() (printers.ResourcePrinter, error)
	out, errOut io.Writer
	// flush writes the lines of a table that out still holds.
	flush func() error
	// last has what was last printed about lists as a whole, by kind.
	last map[string]string
}

func (p *plugin) newNodesPrinter(flags *nodesFlags) (*nodesPrinter, error) {
	format := *flags.output.OutputFormat
	printer := &nodesPrinter{format: format, table: format == "" || format == "wide", wide: format == "wide",
		many: flags.many, namespaces: flags.allNamespaces, problems: flags.problems, out: p.Out, errOut: p.ErrOut,
		newPrinter: flags.output.ToPrinter, last: map[string]string{}}
	if printer.table {
		columns := printers.GetNewTabWriter(p.Out) // In a watch, later lines are as wide as earlier ones.
		printer.out, printer.flush = columns, columns.Flush
		printer.ResourcePrinter = printers.NewTablePrinter(printers.PrintOptions{Wide: printer.wide,
			NoHeaders: flags.noHeaders})
		return printer, nil
	}
	var err error
	printer.ResourcePrinter, err = printer.newPrinter()
	return printer, err
}

// print prints lists. It does not repeat what it has printed about the lists as a whole.
func (p *nodesPrinter) print(lists []*diagnose.NodeList) error {
	switch {
	case p.table:
		return p.printTable(lists)
	case p.format == "name":
		for _, list := range lists {
			var services []string
			for i := range list.Items {
				if list.Items[i].HasService() {
					services = append(services, list.Items[i].Service)
				}
			}
			for _, service := range slices.Compact(services) { // With mode Hostnames, all names have the same one.
				fmt.Fprintln(p.out, "service/"+service)
			}
		}
		return nil
	}
	objects := []any{}
	for _, list := range lists {
		// JSONPath makes floating point numbers from a struct, and could not compare integers.
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(list)
		if err != nil {
			return err
		}
		objects = append(objects, object)
	}
	object := map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}
	if !p.many {
		object = objects[0].(map[string]any)
	}
	printer, err := p.ResourcePrinter, error(nil)
	if p.format != "yaml" { // The YAML printer separates lists; a JSONPath printer with a range works only once.
		if printer, err = p.newPrinter(); err != nil {
			return err
		}
	}
	return printer.PrintObj(&unstructured.Unstructured{Object: object}, p.out)
}

// printOnce prints whole lists.
func (p *nodesPrinter) printOnce(lists []*diagnose.NodeList) error {
	if len(lists) == 0 {
		return p.print(nil) // An empty List.
	}
	return p.printChanges(map[string]*diagnose.NodeList{}, lists)
}

// printLine prints a line about a list as a whole, or about all, unless it is still the last one of its kind.
func (p *nodesPrinter) printLine(kind string, list *diagnose.NodeList, line string) {
	if list != nil {
		kind += list.Namespace + "/" + list.LocalService
	}
	if line != p.last[kind] && line != "" {
		fmt.Fprintln(p.errOut, line)
	}
	p.last[kind] = line
}

// printMessages prints what concerns all names: of the controller once, of each LocalService with its name.
func (p *nodesPrinter) printMessages(lists []*diagnose.NodeList) {
	printed := map[string]bool{}
	for _, list := range lists {
		if !printed[list.Controller] {
			printed[list.Controller] = true
			p.printLine("controller", list, list.Controller)
		}
	}
	for _, list := range lists {
		message := list.Message
		if p.many && message != "" {
			prefix := list.Namespace + "/" + list.LocalService + ": "
			message = prefix + strings.ReplaceAll(message, "\n", "\n"+prefix)
		}
		p.printLine("message", list, message)
	}
}

func (p *nodesPrinter) printTable(lists []*diagnose.NodeList) error {
	p.printMessages(lists)
	var rows []row
	for _, list := range lists {
		prefix := ""
		switch {
		case p.namespaces:
			prefix = list.Namespace + "/" + list.LocalService + " on "
		case p.many:
			prefix = list.LocalService + " on "
		}
		for i := range list.Items {
			rows = append(rows, row{list, &list.Items[i], prefix})
		}
	}
	table := p.newTable(rows)
	room := lineLength * lineLength // Whoever wants all has a wide terminal.
	if !p.wide {
		room = lineLength - widthOf(table)
		if room < reasonLength { // The name follows from that of the node.
			hideName(table)
			room = lineLength - widthOf(table)
		}
	}
	reasons, below := reasonColumn(rows, room)
	if p.wide {
		below = nil
	}
	for i := range table.Rows {
		text := reasons[i]
		if p.wide {
			text = rows[i].Problems()
		}
		table.Rows[i].Cells = append(table.Rows[i].Cells, text)
	}
	if len(rows) > 0 {
		if err := errors.Join(p.PrintObj(table, p.out), p.flush()); err != nil {
			return err
		}
	}
	// On stderr, so that programs that read the table do not stumble over it.
	for _, line := range below {
		fmt.Fprintln(p.errOut, line)
	}
	for _, list := range lists {
		if !p.many || list.Summary.Problem != "" {
			p.printLine("summary", list, summaryLine(list))
		}
		if p.wide {
			p.printLine("nodeLabels", list, list.NodeLabels.String())
		}
	}
	return nil
}

// newTable makes the table without the texts of the last column, which goes by the room that the others leave.
func (p *nodesPrinter) newTable(rows []row) *metav1.Table {
	name, nameIn := "Name", int32(0)
	if !p.many && len(rows) > 0 && rows[0].list.Mode != v1alpha1.ModeHostnames {
		name = "Service"
	}
	if p.many { // It follows from the columns before it.
		nameIn = wide
	}
	columns := []metav1.TableColumnDefinition{{Name: "Namespace"}, {Name: "LocalService"}, {Name: "Node"},
		{Name: name, Priority: nameIn}, {Name: "DNS-Name", Priority: wide}, {Name: "Endpoints"}, {Name: "DNS"},
		{Name: "Pods", Priority: wide}, {Name: "Addresses", Priority: wide},
		{Name: "Reason"}} // The last one, because it is the only one that holds spaces.
	withDNS := slices.ContainsFunc(rows, func(r row) bool { return r.list.DNS != nil })
	isShown := func(column string) bool {
		return (column != "Namespace" || p.namespaces) && (column != "LocalService" || p.many) &&
			(column != "DNS" || withDNS)
	}
	table := &metav1.Table{}
	for _, column := range columns {
		if isShown(column.Name) {
			table.ColumnDefinitions = append(table.ColumnDefinitions, column)
		}
	}
	for _, r := range rows {
		var pods []string
		for _, pod := range r.Pods {
			pods = append(pods, pod.Name)
		}
		result := ""
		if r.DNS != nil {
			result = string(r.DNS.Result)
		}
		cells := []any{}
		for i, cell := range []string{r.list.Namespace, r.list.LocalService, r.Node.Node, orNone(r.Name()),
			orNone(r.DNSName), fmt.Sprintf("%d/%d", r.Endpoints.Ready, r.Endpoints.Total), orNone(result),
			orNone(pods...), orNone(r.Addresses...)} {
			if isShown(columns[i].Name) {
				cells = append(cells, cell)
			}
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
	}
	return table
}

// wide is the priority of columns for -o wide.
const wide = 1

// hideName leaves the column with the name to -o wide.
func hideName(table *metav1.Table) {
	for i := range table.ColumnDefinitions {
		if c := &table.ColumnDefinitions[i]; c.Name == "Service" || c.Name == "Name" {
			c.Priority = wide
		}
	}
}

// widthOf returns how wide a table is without its last column, and without those for -o wide.
func widthOf(table *metav1.Table) (width int) {
	const gap = 3
	for i, column := range table.ColumnDefinitions[:len(table.ColumnDefinitions)-1] {
		if column.Priority > 0 {
			continue
		}
		longest := len(column.Name)
		for _, r := range table.Rows {
			longest = max(longest, len(r.Cells[i].(string)))
		}
		width += longest + gap
	}
	return width
}

func orNone(items ...string) string { return cmp.Or(strings.Join(items, ","), "<none>") }
