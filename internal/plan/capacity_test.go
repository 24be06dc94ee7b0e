package plan

import "testing"

func TestDeletionOfMost(t *testing.T) {
	for _, c := range []struct {
		deletes, owned int
		want           bool
	}{{0, 0, false}, {1, 1, false}, {1, 5, false}, {2, 4, false}, {2, 3, true}, {2, 2, true}, {300, 300, true}} {
		plan := Plan{Owned: c.owned}
		for range c.deletes {
			plan.Changes = append(plan.Changes, Change{Action: Delete})
		}
		if got := plan.IsMassDeletion(); got != c.want {
			t.Errorf("%d of %d: %v, want %v", c.deletes, c.owned, got, c.want)
		}
	}
}
