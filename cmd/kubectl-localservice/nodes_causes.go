package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
)

const (
	// lineLength is how long a line of the table may be.
	lineLength = 120
	// reasonLength is what the column REASON needs for a word.
	reasonLength = len(diagnose.EndpointsNotPublished)
	// longMessage is the length in bytes up to which a text that several rows share is repeated in each of them.
	longMessage = 60
	// rowsInLine is how many rows a line below the table names before it only counts.
	rowsInLine = 3
)

// row is a line of the table: an item, and the LocalService that it is of.
type row struct {
	list *diagnose.NodeList
	*diagnose.Node
	// prefix says of which LocalService a node is, "" if the table has only one.
	prefix string
}

// reasonColumn returns the texts of the column REASON, by row, and the lines below the table. A text that does not fit
// into the room that the column has, or a long one that several rows share, is below the table, once; its rows show the
// reason in a word. Rows that share the end of a text show its beginning.
func reasonColumn(rows []row, room int) (texts, below []string) {
	counts := map[string]int{}
	for _, r := range rows {
		problems := r.Problems()
		counts[problems]++
		if _, end, found := strings.Cut(problems, ": "); found {
			counts[end]++
		}
	}
	isShared := func(text string) bool { return len(text) > longMessage && counts[text] > 1 }
	var lines []string // what is below the table
	of := map[string][]row{}
	for _, r := range rows {
		text, line := r.Problems(), ""
		begin, end, _ := strings.Cut(text, ": ")
		switch {
		case isShared(end) && r.Reason != "" && len(begin) <= room && !isShared(text):
			text, line = begin, end
		case isShared(text), len(text) > room:
			word := string(r.Reason)
			if r.Reason == "" { // Only DNS has a problem.
				word = string(r.DNS.Result)
			}
			text, line = word, text
		}
		texts = append(texts, text)
		if line != "" && of[line] == nil {
			lines = append(lines, line)
		}
		if line != "" {
			of[line] = append(of[line], r)
		}
	}
	for _, line := range lines {
		below = append(below, nodesIn(of[line])+": "+line)
	}
	return texts, below
}

// nodesIn names the first few of some rows, and counts the rest.
func nodesIn(rows []row) string {
	var names []string
	for _, r := range rows[:min(len(rows), rowsInLine)] {
		names = append(names, r.prefix+r.Node.Node)
	}
	if more := len(rows) - rowsInLine; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// hasProblem reports whether something is wrong with a name.
func hasProblem(n *diagnose.Node) bool { return n.Problems() != "" }

// summaryLine returns the columns of `kubectl get localservices`.
func summaryLine(list *diagnose.NodeList) string {
	s := &list.Summary
	return fmt.Sprintf("LocalService %s/%s: nodes %d, answering %d/%d, status %s.", list.Namespace, list.LocalService,
		s.Nodes, s.Answering, s.Nodes, cmp.Or(s.Status, "not set yet"))
}

// totalLine sums up several LocalServices.
func totalLine(lists []*diagnose.NodeList) string {
	nodes, answering := 0, 0
	for _, list := range lists {
		nodes += list.Summary.Nodes
		answering += list.Summary.Answering
	}
	return fmt.Sprintf("LocalServices: %d, nodes %d, answering %d/%d.", len(lists), nodes, answering, nodes)
}

// sorted sorts lists by namespace and name.
func sorted(lists []*diagnose.NodeList) []*diagnose.NodeList {
	return slices.SortedFunc(slices.Values(lists), func(a, b *diagnose.NodeList) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), diagnose.Natural(a.LocalService, b.LocalService))
	})
}
