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
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// lineLength is how long a line of the table may be.
	lineLength = 120
	// reasonLength is what the column REASON needs for the beginning of a cause.
	reasonLength = 30
	// rowsInLine is how many rows a line below the table names before it only counts.
	rowsInLine = 3
	// wide is the priority of columns for -o wide.
	wide = 1
)

// nodesPrinter prints lists of nodes in the format that the user asks for: whole ones, and then what changes in them.
type nodesPrinter struct {
	printers.ResourcePrinter

	format      string
	table, wide bool
	// many is true if there may be several LocalServices, and namespaces if they may be in several.
	many, namespaces bool
	// problems is true if only names with a problem are printed.
	problems    bool
	newPrinter  func() (printers.ResourcePrinter, error)
	out, errOut io.Writer
	// flush writes the lines of a table that out still holds.
	flush func() error
	// before has the lists that were last printed, by LocalService, and last what was last printed about them as a
	// whole, by kind: it is not repeated.
	before map[string]*diagnose.NodeList
	last   map[string]string
}

func (p *plugin) newNodesPrinter(flags *nodesFlags) (*nodesPrinter, error) {
	format := *flags.output.OutputFormat
	printer := &nodesPrinter{format: format, table: format == "" || format == "wide", wide: format == "wide",
		many: flags.many, namespaces: flags.allNamespaces, problems: flags.problems, out: p.Out, errOut: p.ErrOut,
		newPrinter: flags.output.ToPrinter, before: map[string]*diagnose.NodeList{}, last: map[string]string{}}
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

// printChanges prints the items of lists that have changed since they were last printed, all of a list that is new.
func (p *nodesPrinter) printChanges(now []*diagnose.NodeList) error {
	var changed, same []*diagnose.NodeList
	for _, list := range now {
		before, copied := p.before[list.Key()], *list
		copied.Items = diagnose.Changes(before, list, p.problems)
		p.before[list.Key()] = list
		if before == nil || len(copied.Items) > 0 {
			changed = append(changed, &copied)
		} else {
			same = append(same, list)
		}
	}
	if p.table {
		p.printMessages(same)
	}
	if len(changed) == 0 {
		return nil
	}
	return p.print(changed)
}

// print prints lists.
func (p *nodesPrinter) print(lists []*diagnose.NodeList) error {
	switch {
	case p.table:
		return p.printTable(lists)
	case p.format == "name":
		for _, list := range lists {
			var services []string
			for i := range list.Items {
				if list.Items[i].HasService {
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

// printLine prints a line about a list as a whole, unless it is still the last one of its kind. It goes to stderr, so
// that programs that read the table do not stumble over it.
func (p *nodesPrinter) printLine(kind string, list *diagnose.NodeList, line string) {
	kind += list.Key()
	if line != p.last[kind] && line != "" {
		fmt.Fprintln(p.errOut, words.Printable(line))
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
		for i, message := range strings.Split(list.Message, "\n") {
			if p.many && message != "" {
				message = list.Key() + ": " + message
			}
			p.printLine(fmt.Sprint("message", i), list, message)
		}
	}
}

func (p *nodesPrinter) printTable(lists []*diagnose.NodeList) error {
	p.printMessages(lists)
	var rows []row
	for _, list := range lists {
		prefix := ""
		switch {
		case p.namespaces:
			prefix = list.Key() + " on "
		case p.many:
			prefix = list.LocalService + " on "
		}
		for i := range list.Items {
			rows = append(rows, row{list, &list.Items[i], prefix})
		}
	}
	table := p.newTable(rows)
	room := lineLength - widthOf(table)
	if room < reasonLength { // The name follows from that of the node.
		hideName(table)
		room = lineLength - widthOf(table)
	}
	reasons, below := reasonColumn(rows, max(room, reasonLength))
	for i := range table.Rows {
		if p.wide { // Whoever wants all has a wide terminal.
			reasons[i], below = rows[i].Problems(), nil
		}
		table.Rows[i].Cells = append(table.Rows[i].Cells, words.Printable(reasons[i]))
	}
	if len(rows) > 0 {
		if err := errors.Join(p.PrintObj(table, p.out), p.flush()); err != nil {
			return err
		}
	}
	for _, line := range below {
		fmt.Fprintln(p.errOut, words.Printable(line))
	}
	for _, list := range lists {
		if !p.many || list.Summary.Problem != "" {
			p.printLine("summary", list, summaryLine(list))
		}
	}
	return nil
}

// row holds a line of the table: an item, and the LocalService that it belongs to.
type row struct {
	list *diagnose.NodeList
	*diagnose.Node
	// prefix says of which LocalService a node is, "" if the table has only one.
	prefix string
}

// problem holds what rows have in common that share a line below the table.
type problem struct{ cause, act string }

// reasonColumn returns the texts of the column REASON, by row, and the lines below the table, one for each cause of
// which there is more to say: all of it if it does not fit into the column, and what to do.
func reasonColumn(rows []row, room int) (texts, below []string) {
	of, isCut := map[problem][]row{}, map[problem]bool{}
	var order []problem
	for _, r := range rows {
		p, text := problem{r.WithDNS(r.Cause), r.Act}, r.WithDNS(r.CauseAbout())
		isCut[p] = isCut[p] || len(text) > room
		if len(text) > room {
			text = words.Cut(text, room-len("…"))
		}
		texts = append(texts, text)
		if of[p] == nil {
			order = append(order, p)
		}
		of[p] = append(of[p], r)
	}
	for _, p := range order {
		var parts []string
		switch {
		case isCut[p] && len(of[p]) == 1:
			parts = append(parts, of[p][0].WithDNS(of[p][0].CauseAbout()))
		case len(p.cause) > room: // Otherwise the rows show all but some of the pods.
			parts = append(parts, p.cause)
		}
		if p.act != "" {
			parts = append(parts, p.act)
		}
		if len(parts) > 0 {
			below = append(below, nodesIn(of[p])+": "+strings.Join(parts, "; "))
		}
	}
	return texts, below
}

// nodesIn names the first few of some rows, and counts the rest.
func nodesIn(rows []row) string {
	var names []string
	before := ""
	for _, r := range rows {
		name := r.Node.Node
		if r.prefix != before {
			name = r.prefix + name
		}
		names, before = append(names, name), r.prefix
	}
	return words.List(names, rowsInLine)
}

// newTable makes the table without the texts of the last column, which goes by the room that the others leave.
func (p *nodesPrinter) newTable(rows []row) *metav1.Table {
	name, nameIn, withDNS := "Name", int32(0), slices.ContainsFunc(rows, func(r row) bool { return r.list.DNS != nil })
	if !p.many && len(rows) > 0 && rows[0].list.Mode != v1alpha1.ModeHostnames {
		name = "Service"
	}
	if p.many { // It follows from the columns before it.
		nameIn = wide
	}
	table := &metav1.Table{Rows: make([]metav1.TableRow, len(rows))}
	add := func(isShown bool, name string, priority int32, cell func(row) string) {
		if !isShown {
			return
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, metav1.TableColumnDefinition{Name: name,
			Priority: priority})
		for i, r := range rows {
			if cell != nil {
				table.Rows[i].Cells = append(table.Rows[i].Cells, words.Printable(cmp.Or(cell(r), "<none>")))
			}
		}
	}
	add(p.namespaces, "Namespace", 0, func(r row) string { return r.list.Namespace })
	add(p.many, "LocalService", 0, func(r row) string { return r.list.LocalService })
	add(true, "Node", 0, func(r row) string { return r.Node.Node })
	add(true, name, nameIn, func(r row) string { return r.Name() })
	add(true, "DNS-Name", wide, func(r row) string { return r.DNSName })
	add(true, "Endpoints", 0, func(r row) string { return fmt.Sprintf("%d/%d", r.Endpoints.Ready, r.Endpoints.Total) })
	add(withDNS, "DNS", 0, func(r row) string {
		if r.DNS == nil {
			return ""
		}
		return string(r.DNS.Result)
	})
	add(true, "Pods", wide, func(r row) string {
		var pods []string
		for _, pod := range r.Pods {
			pods = append(pods, pod.Name)
		}
		return strings.Join(pods, ",")
	})
	add(true, "Addresses", wide, func(r row) string { return strings.Join(r.Addresses, ",") })
	add(true, "Reason", 0, nil) // The last one, because it is the only one that holds spaces.
	return table
}

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

// summaryLine returns the columns of `kubectl get localservices`.
func summaryLine(list *diagnose.NodeList) string {
	s := &list.Summary
	return fmt.Sprintf("LocalService %s: nodes %d, answering %d/%d, status %s.", list.Key(), s.Nodes, s.Answering,
		s.Nodes, cmp.Or(s.Status, "not set yet"))
}

// totalLine sums up several LocalServices.
func totalLine(lists []*diagnose.NodeList) string {
	names, answering := 0, 0
	for _, list := range lists {
		names += list.Summary.Nodes
		answering += list.Summary.Answering
	}
	return fmt.Sprintf("LocalServices: %d, names %d, answering %d/%d.", len(lists), names, answering, names)
}
