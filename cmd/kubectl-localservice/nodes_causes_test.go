package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
)

// TestReasonColumn: a long message that several rows share is printed once, below the table. Each of these rows has its
// reason, or the part of the message that it does not share.
func TestReasonColumn(t *testing.T) {
	long, other, short := strings.Repeat("long ", 20), strings.Repeat("other ", 20), "no pod with app=demo here"
	var items []diagnose.Node
	for _, message := range []string{"", short, long, other, long, short, long} {
		items = append(items, diagnose.Node{Reason: "Word", Message: message})
	}
	texts, below := reasonColumn(items)
	if want := []string{"", short, "Word", other, "Word", short, "Word"}; !slices.Equal(texts, want) {
		t.Errorf("got %q; want %q", texts, want)
	}
	if want := []string{"Word (3): " + long}; !slices.Equal(below, want) {
		t.Errorf("below the table: %q; want %q", below, want)
	}

	items = nil
	for _, message := range []string{"leads to a: " + long, "leads to b: " + long, "leads to c: " + other} {
		items = append(items, diagnose.Node{Reason: "Word", Message: message})
	}
	texts, below = reasonColumn(items)
	if want := []string{"leads to a", "leads to b", "leads to c: " + other}; !slices.Equal(texts, want) {
		t.Errorf("got %q; want %q", texts, want)
	}
	if want := []string{"Word (2): " + long}; !slices.Equal(below, want) {
		t.Errorf("below the table: %q; want %q", below, want)
	}
}
