package plan

import (
	"strings"
	"testing"
)

// TestCapacityHoldsReplacements: nothing that serves is taken away for successors that would have no address.
func TestCapacityHoldsReplacements(t *testing.T) {
	const any = "Replace a, Replace b, Update c"
	for _, c := range []struct {
		needed, free int
		want         string
	}{{2, 2, any}, {0, 0, any}, {2, -1, any}, {2, 1, "Update c"}, {2, 0, "Update c"}} {
		got, w := HoldReplacements(Plan{Changes: []Change{{Action: Replace, Name: "a"}, {Action: Replace, Name: "b"},
			{Action: Update, Name: "c"}}}, &Capacity{NeededClusterIPs: c.needed, FreeClusterIPs: c.free})
		if changes := strings.Join(actions(got), ", "); changes != c.want || w.Any() != (c.want != any) {
			t.Errorf("%+v: %s, withheld %+v", c, changes, w)
		}
	}
}

func TestDeletionOfMost(t *testing.T) {
	for _, c := range []struct {
		deletes, owned int
		want           bool
	}{{0, 0, false}, {1, 1, false}, {1, 5, false}, {2, 4, false}, {2, 3, true}, {2, 2, true}, {300, 300, true}} {
		var plan Plan
		for range c.deletes {
			plan.Changes = append(plan.Changes, Change{Action: Delete})
		}
		if got := IsMassDeletion(plan, c.owned); got != c.want {
			t.Errorf("%d of %d: %v, want %v", c.deletes, c.owned, got, c.want)
		}
	}
}
