package main

import (
	"cmp"
	"fmt"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
)

// longMessage is how many bytes of a message that several rows share fit into each of them.
const longMessage = 60

// reasonColumn returns the texts of the column REASON, by item, and what goes below the table: each long message that
// several items share, once. The rows then have its word.
func reasonColumn(items []diagnose.Node) (texts, below []string) {
	counts := map[string]int{}
	for i := range items {
		counts[items[i].Problems()]++
	}
	for i := range items {
		n, problems := &items[i], items[i].Problems()
		times := counts[problems]
		if len(problems) <= longMessage || times == 1 || n.Reason == "" {
			texts = append(texts, problems)
			continue
		}
		if times > 1 {
			below = append(below, fmt.Sprintf("%s (%d): %s", n.Reason, times, problems))
			counts[problems] = -1 // It is below.
		}
		texts = append(texts, string(n.Reason))
	}
	return texts, below
}

// printSummary prints the columns of `kubectl get localservices`, unless they were last printed so.
func (p *nodesPrinter) printSummary(list *diagnose.NodeList) {
	s := &list.Summary
	line := fmt.Sprintf("LocalService %s/%s: nodes %d, answering %d/%d, status %s.", list.Namespace, list.LocalService,
		s.Nodes, s.Answering, s.Nodes, cmp.Or(s.Status, "not set yet"))
	if line != p.summary {
		fmt.Fprintln(p.errOut, line)
	}
	p.summary = line
}
