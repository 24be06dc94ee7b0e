package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// rowsInLine is how many rows a line below the table names before it only counts.
const rowsInLine = 3

// nodesPrinter prints lists of nodes in the format that the user asks for: whole ones, and then what changes in them.
type nodesPrinter struct {
	*plugin
	*nodesFlags

	format string
	// reasonLength is how many bytes of a text are in the column REASON of a terminal. A longer one is below the table,
	// once.
	reasonLength int
	table        interface { // aligns columns; nil for formats other than tables
		io.Writer
		Flush() error
	}
	printer printers.ResourcePrinter
	// before has the lists that were last printed, by LocalService, and last what was last printed about them as a
	// whole, by kind: it is not repeated.
	before map[string]*diagnose.NodeList
	last   map[string]string
}

func (p *plugin) newNodesPrinter(flags *nodesFlags) (printer *nodesPrinter, err error) {
	printer = &nodesPrinter{plugin: p, nodesFlags: flags, format: *flags.output.OutputFormat,
		before: map[string]*diagnose.NodeList{}, last: map[string]string{}, reasonLength: math.MaxInt}
	if printers.IsTerminal(p.Out) {
		printer.reasonLength = 90
	}
	if printer.format == "" || printer.format == "wide" {
		printer.table = printers.GetNewTabWriter(p.Out) // In a watch, later lines are as wide as earlier ones.
		printer.printer = printers.NewTablePrinter(printers.PrintOptions{NoHeaders: flags.noHeaders})
		return printer, nil
	}
	printer.printer, err = flags.output.ToPrinter()
	if unknown, is := errors.AsType[genericclioptions.NoCompatiblePrinterError](err); is {
		unknown.AllowedFormats = append(unknown.AllowedFormats, "wide")
		err = unknown
	}
	return printer, err
}

// printChanges prints the items of lists that have changed since they were last printed, all of a list that is new.
func (p *nodesPrinter) printChanges(now []*diagnose.NodeList) error {
	if p.table != nil {
		p.printMessages(now)
	}
	var changed []*diagnose.NodeList
	for _, list := range now {
		before, copied := p.before[list.Key()], *list
		copied.Items = diagnose.Changes(before, list, p.problems)
		p.before[list.Key()] = list
		if before == nil || len(copied.Items) > 0 {
			changed = append(changed, &copied)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return p.print(changed)
}

func (p *nodesPrinter) print(lists []*diagnose.NodeList) (err error) {
	switch {
	case p.table != nil:
		return p.printTable(lists)
	case p.format == "name":
		for _, list := range lists {
			var services []string
			for _, n := range list.Items {
				if n.HasService {
					services = append(services, n.Service)
				}
			}
			for _, service := range slices.Compact(services) { // With mode Hostnames, all names have the same one.
				fmt.Fprintln(p.Out, "service/"+service)
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
	if p.name != "" {
		object = objects[0].(map[string]any)
	}
	if p.format != "yaml" { // The YAML printer separates lists; a JSONPath printer with a range works only once.
		if p.printer, err = p.output.ToPrinter(); err != nil {
			return err
		}
	}
	return p.printer.PrintObj(&unstructured.Unstructured{Object: object}, p.Out)
}

// printLine prints a line about a list as a whole, unless it is still the last one of its kind. It goes to stderr, so
// that programs that read the table do not stumble over it.
func (p *nodesPrinter) printLine(kind string, list *diagnose.NodeList, line string) {
	kind += list.Key()
	if line != p.last[kind] && line != "" {
		fmt.Fprintln(p.ErrOut, words.Printable(line))
	}
	p.last[kind] = line
}

// printMessages prints what concerns all names: of the controller once, of each LocalService with its name.
func (p *nodesPrinter) printMessages(lists []*diagnose.NodeList) {
	printed := map[string]bool{}
	for _, list := range lists {
		// A watch may see it in the middle of its work: that is worth a line if it is so in the next snapshot, too.
		if before := p.before[list.Key()]; (before == nil || before.Controller == list.Controller) &&
			!printed[list.Controller] {
			printed[list.Controller] = true
			p.printLine("controller", list, list.Controller)
		}
		for i, message := range strings.Split(list.Message, "\n") {
			if p.name == "" && message != "" {
				message = list.Key() + ": " + message
			}
			p.printLine(fmt.Sprint("message", i), list, message)
		}
	}
}

// printTable prints the table, and the lines that belong below it.
func (p *nodesPrinter) printTable(lists []*diagnose.NodeList) error {
	var rows []row
	for _, list := range lists {
		prefix := ""
		if p.name == "" {
			prefix = list.Key() + " on "
		}
		for _, n := range list.Items {
			rows = append(rows, row{list, n, prefix})
		}
	}
	if len(rows) > 0 {
		if err := errors.Join(p.printer.PrintObj(p.tableOf(rows), p.table), p.table.Flush()); err != nil {
			return err
		}
	}
	if p.format != "wide" { // There, it is in the line.
		for _, line := range below(rows, p.reasonLength) {
			fmt.Fprintln(p.ErrOut, words.Printable(line))
		}
	}
	for _, list := range lists {
		s := &list.Summary
		status := cmp.Or(s.Status, "not set yet") + "."
		if s.Problem != "" && !s.Reported && list.Controller == "" {
			status = s.Status + ": " + s.Problem
		}
		if p.name != "" || s.Problem != "" { // The columns of kubectl get localservices
			p.printLine("summary", list, fmt.Sprintf("LocalService %s: nodes %d, answering %d/%d, status %s",
				list.Key(), s.Nodes, s.Answering, s.Nodes, status))
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

// problem holds what rows have in common that share a line below the table. What to do is about one LocalService.
type problem struct{ cause, prefix string }

// below returns the lines below the table: what is not in it about each problem, once for all its rows.
func below(rows []row, reasonLength int) (lines []string) {
	texts, nodes := map[problem]string{}, map[problem][]string{}
	var order []problem
	for _, r := range rows {
		text := r.Act
		if len(r.CauseAbout()) > reasonLength {
			text = r.Message
		}
		if text == "" {
			continue
		}
		p := problem{r.Cause, r.prefix}
		if nodes[p] == nil {
			order = append(order, p)
			texts[p] = text
		}
		nodes[p] = append(nodes[p], r.Node.Node)
	}
	for _, p := range order {
		lines = append(lines, p.prefix+words.List(nodes[p], rowsInLine)+": "+texts[p])
	}
	return lines
}

// tableOf returns the table that shows rows.
func (p *nodesPrinter) tableOf(rows []row) *metav1.Table {
	table, none := &metav1.Table{Rows: make([]metav1.TableRow, len(rows))}, "<none>"
	add := func(isShown bool, header string, cell func(row) string) {
		if !isShown {
			return
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, metav1.TableColumnDefinition{Name: header})
		for i, r := range rows {
			table.Rows[i].Cells = append(table.Rows[i].Cells, words.Printable(cmp.Or(cell(r), none)))
		}
	}
	isWide, name := p.format == "wide", "NAME"
	if p.name != "" && rows[0].list.Mode != v1alpha1.ModeHostnames {
		name = "SERVICE"
	}
	hasDNS := slices.ContainsFunc(rows, func(r row) bool { return r.list.DNS != nil })
	add(p.allNamespaces, "NAMESPACE", func(r row) string { return r.list.Namespace })
	add(p.name == "", "LOCALSERVICE", func(r row) string { return r.list.LocalService })
	add(true, "NODE", func(r row) string { return r.Node.Node })
	add(true, name, func(r row) string { return r.Name() })
	add(isWide, "DNS-NAME", func(r row) string { return r.DNSName })
	add(true, "ENDPOINTS", func(r row) string { return fmt.Sprintf("%d/%d", r.Endpoints.Ready, r.Endpoints.Total) })
	add(hasDNS, "DNS", func(r row) string { return string(ptr.Deref(r.DNS, diagnose.DNSAnswer{}).Result) })
	add(isWide, "PODS", func(r row) string {
		var pods []string
		for _, pod := range r.Pods {
			pods = append(pods, pod.Name)
		}
		return strings.Join(pods, ",")
	})
	add(isWide, "ADDRESSES", func(r row) string { return strings.Join(r.Addresses, ",") })
	none = "" // All is well.
	add(isWide, "REASON", func(r row) string { return r.Problems() })
	add(!isWide, "REASON", func(r row) string { return r.WithDNS(words.Cut(r.CauseAbout(), p.reasonLength)) })
	return table
}
