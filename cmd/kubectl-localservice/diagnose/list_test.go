package diagnose

import (
	"slices"
	"testing"
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
