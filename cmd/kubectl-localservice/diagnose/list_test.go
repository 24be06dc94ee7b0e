package diagnose

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestNatural: numbers in names count as numbers.
func TestNatural(t *testing.T) {
	want := []string{"", "10", "a", "a-2-b", "a-2-c", "a-02-d", "a-10", "a-10-a", "a10", "b"}
	got := slices.Clone(want)
	slices.Reverse(got)
	natural := Natural()
	slices.SortFunc(got, natural)
	if !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}
	for _, a := range want {
		for _, b := range want {
			if (natural(a, b) == 0) != (a == b) || natural(a, b) != -natural(b, a) {
				t.Errorf("%q and %q: %d, %d", a, b, natural(a, b), natural(b, a))
			}
		}
	}
	in := Input{LocalService: localService(), Nodes: nodesWith("n10", "n9", "n1")}
	var order []string
	for _, n := range listOf(t, in).Items {
		order = append(order, n.Node)
	}
	if !slices.Equal(order, []string{"n1", "n9", "n10"}) {
		t.Errorf("nodes in the order %v", order)
	}
}

func TestChanges(t *testing.T) {
	n := func(node string, ready int) *Node {
		return &Node{Node: node, Service: "demo-" + node, Endpoints: Endpoints{Ready: ready}}
	}
	before := &NodeList{Items: []*Node{n("n1", 1), n("n2", 1), n("n3", 1)}}
	now := &NodeList{Items: []*Node{n("n0", 1), n("n1", 1), n("n3", 2)}}
	want := []*Node{n("n0", 1), n("n3", 2), {Node: "n2", Service: "demo-n2", Addresses: []string{}, Pods: []Pod{},
		Finding: Finding{Reason: NameGone, State: Empty, Cause: nameGone, Message: nameGone}}}
	if diff := cmp.Diff(want, Changes(before, now, false), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := Changes(nil, now, false); len(got) != 3 {
		t.Errorf("before anything: %v", got)
	}
	if got := Changes(now, now, false); len(got) > 0 {
		t.Errorf("of the same: %v", got)
	}
	// A group of nodes may have the name of a node that has none.
	group, nameless := n("n1", 1), n("n1", 0)
	group.Hostname = "n1"
	both := &NodeList{Items: []*Node{group, nameless}}
	if got := Changes(both, both, false); len(got) > 0 {
		t.Errorf("of a group and a node: %v", got)
	}
}
