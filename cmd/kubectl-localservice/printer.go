package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// nodesPrinter prints lists of nodes in the format that the user asks for: whole ones, and then what changes in them.
type nodesPrinter struct {
	genericiooptions.IOStreams
	flags *genericclioptions.PrintFlags
	// single is true if there can be only one LocalService, and problems if only names with a problem are printed.
	single, allNamespaces, noHeaders, problems bool

	reasonLength int         // bytes of a text in the column REASON of a terminal. A longer one is below the table, once.
	table        interface { // aligns columns; nil for formats other than tables
		io.Writer
		Flush() error
	}
	printer printers.ResourcePrinter
	// names has what was last printed, and lines what is printed about LocalServices as a whole.
	names              map[string]*diagnose.Node
	lines, linesBefore sets.Set[string]
	late               sets.Set[string] // what was last said of the controller
}

// complete chooses the printer for the format.
func (p *nodesPrinter) complete() (err error) {
	p.reasonLength = math.MaxInt
	if printers.IsTerminal(p.Out) {
		p.reasonLength = 90
	}
	if format := *p.flags.OutputFormat; format == "" || format == "wide" {
		p.table = printers.GetNewTabWriter(p.Out) // In a watch, later lines are as wide as earlier ones.
		p.printer = printers.NewTablePrinter(printers.PrintOptions{NoHeaders: p.noHeaders})
		return nil
	}
	p.printer, err = p.flags.ToPrinter()
	if unknown, is := errors.AsType[genericclioptions.NoCompatiblePrinterError](err); is {
		unknown.AllowedFormats = append(unknown.AllowedFormats, "wide")
		err = unknown
	}
	return err
}

// printChanges prints the items of lists that have changed since they were last printed.
func (p *nodesPrinter) printChanges(now []*diagnose.NodeList) error {
	before, isFirst := p.names, p.names == nil
	p.names, p.lines, p.linesBefore = map[string]*diagnose.Node{}, sets.New[string](), p.lines
	if p.table != nil {
		p.printAbove(now, isFirst)
	}
	var changed []*diagnose.NodeList
	for _, list := range now {
		copied := *list
		copied.Items = []*diagnose.Node{} // [] in JSON, not null
		for _, n := range list.Items {
			id := list.Key() + " on " + n.ID()
			was := cmp.Or(before[id], &diagnose.Node{})
			if p.names[id] = n; !reflect.DeepEqual(was, n) && (!p.problems || n.Problems()+was.Problems() != "") {
				copied.Items = append(copied.Items, n)
			}
		}
		if isFirst || len(copied.Items) > 0 {
			changed = append(changed, &copied)
		}
	}
	if len(changed) > 0 || isFirst {
		if err := p.print(changed); err != nil {
			return err
		}
	}
	if p.table == nil {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(before)) {
		if n := before[id]; p.names[id] == nil {
			p.printLine(strings.TrimSpace(n.Node+" "+n.Name()) + " is gone.")
		}
	}
	p.printSummaries(now)
	hasItems := func(list *diagnose.NodeList) bool { return len(list.Items) > 0 }
	if p.problems && isFirst && len(now) > 0 && !slices.ContainsFunc(changed, hasItems) {
		p.printLine("No name has a problem.")
	}
	return nil
}

func (p *nodesPrinter) print(lists []*diagnose.NodeList) (err error) {
	switch {
	case p.table != nil:
		return p.printTable(lists)
	case *p.flags.OutputFormat == "name":
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
	if p.single && len(objects) > 0 {
		object = objects[0].(map[string]any)
	}
	if *p.flags.OutputFormat != "yaml" { // It separates lists, and a JSONPath printer with a range works only once.
		if p.printer, err = p.flags.ToPrinter(); err != nil {
			return err
		}
	}
	return p.printer.PrintObj(&unstructured.Unstructured{Object: object}, p.Out)
}

// printAbove prints what concerns LocalServices as a whole.
func (p *nodesPrinter) printAbove(lists []*diagnose.NodeList, isFirst bool) {
	late := p.late
	p.late = sets.New[string]()
	for _, list := range lists {
		// A watch may see it in the middle of its work: that is worth a line if it is so in the next snapshot, too.
		if p.late.Insert(list.Controller); isFirst || late.Has(list.Controller) {
			p.printLine(list.Controller)
		}
		for _, notice := range list.Notices {
			prefix := p.prefix(list, ": ")
			if notice.Common {
				prefix = ""
			}
			p.printLine(prefix + notice.Message)
		}
	}
}

// prefix says which LocalService a line is about, "" if there is only one.
func (p *nodesPrinter) prefix(list *diagnose.NodeList, after string) string {
	if p.single {
		return ""
	}
	return list.Key() + after
}

// printSummaries prints the columns of kubectl get localservices.
func (p *nodesPrinter) printSummaries(lists []*diagnose.NodeList) {
	for _, list := range lists {
		s := &list.Summary
		status := cmp.Or(s.Status, "not set yet") + "."
		if s.Problem != "" && !s.Reported && list.Controller == "" {
			status = s.Status + ": " + s.Problem
		}
		if p.single || s.Problem != "" {
			p.printLine(fmt.Sprintf("LocalService %s: nodes %d, answering %d/%d, status %s", list.Key(), s.Nodes, s.Answering,
				s.Nodes, status))
		}
	}
}

// printLine prints a line once, unless the last ones had it, to stderr: programs read the table.
func (p *nodesPrinter) printLine(line string) {
	if line != "" && !p.lines.Has(line) && !p.linesBefore.Has(line) {
		fmt.Fprintln(p.ErrOut, words.Printable(line))
	}
	p.lines.Insert(line)
}

// printTable prints the table, and the lines below it about its problems.
func (p *nodesPrinter) printTable(lists []*diagnose.NodeList) error {
	var rows []row
	for _, list := range lists {
		for _, n := range list.Items {
			rows = append(rows, row{list, n, p.prefix(list, " on ")})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if err := errors.Join(p.printer.PrintObj(p.tableOf(rows), p.table), p.table.Flush()); err != nil {
		return err
	}
	if *p.flags.OutputFormat != "wide" { // There, it is in the line.
		for _, line := range below(rows, p.reasonLength) {
			fmt.Fprintln(p.ErrOut, words.Printable(line))
		}
	}
	return nil
}

// row holds a line of the table: an item, and the LocalService that it belongs to.
type row struct {
	list *diagnose.NodeList
	*diagnose.Node
	prefix string
}

// below returns the lines below the table: what is not in it about each problem, once for all rows with it.
func below(rows []row, reasonLength int) (lines []string) {
	type problem struct{ cause, prefix string }
	texts, nodes, last := map[problem]string{}, map[string][]string{}, map[string]string{}
	var order []string
	for _, r := range rows {
		p, text := problem{r.Cause, r.prefix}, r.Act
		if len(r.CauseAbout()) > reasonLength {
			text = r.Message
		}
		if text == "" || text == r.list.Controller { // That is above the table.
			continue
		}
		text = cmp.Or(texts[p], text)
		texts[p] = text
		if nodes[text] == nil {
			order = append(order, text)
		}
		nodes[text] = append(nodes[text], strings.TrimPrefix(r.prefix, last[text])+r.Node.Node)
		last[text] = r.prefix
	}
	for _, text := range order {
		lines = append(lines, words.List(nodes[text], 3)+": "+text)
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
	isWide, name := *p.flags.OutputFormat == "wide", "NAME"
	if p.single && rows[0].list.Mode != v1alpha1.ModeHostnames {
		name = "SERVICE"
	}
	hasDNS := slices.ContainsFunc(rows, func(r row) bool { return r.list.DNS != nil })
	add(p.allNamespaces, "NAMESPACE", func(r row) string { return r.list.Namespace })
	add(!p.single, "LOCALSERVICE", func(r row) string { return r.list.LocalService })
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
