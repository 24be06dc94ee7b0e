package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
)

// longMessage is the length in bytes up to which a text that several rows share is repeated in each of them.
const longMessage = 60

// reasonColumn returns the texts of the column REASON, by item, and the lines below the table: each long text that
// several items share, once. Rows that share a message show its reason; those that share its end, its beginning.
func reasonColumn(items []diagnose.Node) (texts, below []string) {
	counts := map[string]int{}
	for i := range items {
		problems := items[i].Problems()
		counts[problems]++
		if _, end, found := strings.Cut(problems, ": "); found {
			counts[end]++
		}
	}
	isShared := func(text string) bool { return len(text) > longMessage && counts[text] > 1 }
	printed := map[string]bool{}
	for i := range items {
		n, text, shared := &items[i], items[i].Problems(), ""
		begin, end, _ := strings.Cut(text, ": ")
		switch {
		case n.Reason == "": // Only DNS has a problem.
		case isShared(text):
			text, shared = string(n.Reason), text
		case isShared(end):
			text, shared = begin, end
		}
		texts = append(texts, text)
		if shared != "" && !printed[shared] {
			printed[shared] = true
			below = append(below, fmt.Sprintf("%s (%d): %s", n.Reason, counts[shared], shared))
		}
	}
	return texts, below
}

// summaryLine returns the columns of `kubectl get localservices`.
func summaryLine(list *diagnose.NodeList) string {
	s := &list.Summary
	return fmt.Sprintf("LocalService %s/%s: nodes %d, answering %d/%d, status %s.", list.Namespace, list.LocalService,
		s.Nodes, s.Answering, s.Nodes, cmp.Or(s.Status, "not set yet"))
}
