package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
)

// TestReasonColumn: a long message that several rows share is printed once, below the table, and so is one that does
// not fit into its line. Each of these rows has its reason, or the part of the message that it does not share.
func TestReasonColumn(t *testing.T) {
	const room = 70
	long, other := strings.Repeat("long ", 13), strings.Repeat("other ", 20)
	short, fits := "no pod with app=demo here", strings.Repeat("fits ", 14)
	for _, c := range []struct{ messages, texts, below []string }{
		{[]string{"", short, long, other, long, short, long, fits, long, long},
			[]string{"", short, "Word", "Word", "Word", short, "Word", fits, "Word", "Word"},
			[]string{"n2, n4, n6, 2 more: " + long, "n3: " + other}},
		{[]string{"leads to a: " + long, "leads to b: " + long, "leads to c: " + other},
			[]string{"leads to a", "leads to b", "Word"}, []string{"n0, n1: " + long, "n2: leads to c: " + other}},
	} {
		var rows []row
		for i, message := range c.messages {
			rows = append(rows, row{Node: &diagnose.Node{Node: fmt.Sprint("n", i), Reason: "Word", Message: message}})
		}
		texts, below := reasonColumn(rows, room)
		if !slices.Equal(texts, c.texts) {
			t.Errorf("got %q; want %q", texts, c.texts)
		}
		if !slices.Equal(below, c.below) {
			t.Errorf("below the table: %q; want %q", below, c.below)
		}
	}
	one := row{Node: &diagnose.Node{Node: "n0", Reason: "Word", Message: other}, prefix: "demo on "}
	if _, below := reasonColumn([]row{one}, room); len(below) != 1 || below[0] != "demo on n0: "+other {
		t.Errorf("of several LocalServices: %q", below)
	}
	dns := &diagnose.Node{Node: "n0", DNS: &diagnose.DNSAnswer{Result: diagnose.DNSUnknown, Message: other}}
	if texts, _ := reasonColumn([]row{{Node: dns}}, room); texts[0] != "Unknown" {
		t.Errorf("of DNS only: %q", texts)
	}
}
