package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// limitsCase is what becomes of a plan that creates two Services, deletes two and updates one.
type limitsCase struct {
	limits       Limits
	owned, total int
	allowed      bool
	want         []string
	withheld     Withheld
}

var everything = []string{"Create a", "Create b", "Delete c", "Replace d", "Update e"}

func (c limitsCase) check(t *testing.T) {
	plan := Plan{InPlace: 1, Changes: []Change{{Action: Create, Name: "a"}, {Action: Create, Name: "b"},
		{Action: Delete, Name: "c"}, {Action: Replace, Name: "d"}, {Action: Update, Name: "e"}}}
	ls := localService()
	if c.allowed {
		ls.Annotations = map[string]string{v1alpha1.AllowDeletionAnnotationKey: "true"}
	}
	got, withheld := c.limits.Apply(plan, ls, c.owned, c.total, true)
	if diff := cmp.Diff(c.want, actions(got)); diff != "" || got.InPlace != 1 {
		t.Errorf("%d in place; changes (-want +got):\n%s", got.InPlace, diff)
	}
	c.withheld.Limits = c.limits
	if withheld != c.withheld || withheld.Any() != (len(c.want) < len(everything)) {
		t.Errorf("withheld %+v, want %+v", withheld, c.withheld)
	}
	if diff := cmp.Diff(everything, actions(plan)); diff != "" {
		t.Errorf("the plan was changed:\n%s", diff)
	}
}

// TestDeletionLimits: what -max-delete-fraction lets one plan delete or replace.
func TestDeletionLimits(t *testing.T) {
	for name, c := range map[string]limitsCase{
		"no limits":                  {Limits{MaxDeleteFraction: 1}, 2, 9999, false, everything, Withheld{}},
		"half may go, and half goes": {Limits{MaxDeleteFraction: 0.5}, 4, 4, false, everything, Withheld{}},
		"more than half goes": {Limits{MaxDeleteFraction: 0.5}, 3, 3, false,
			[]string{"Create a", "Create b", "Update e"}, Withheld{Deletes: 2, Services: 3}},
		"more than half, and confirmed": {Limits{MaxDeleteFraction: 0.5}, 3, 3, true, everything, Withheld{Services: 3}},
		"all that there are": {Limits{MaxDeleteFraction: 0.9}, 2, 2, false,
			[]string{"Create a", "Create b", "Update e"}, Withheld{Deletes: 2, Services: 2}},
		"nothing may go": {Limits{}, 100, 100, false, []string{"Create a", "Create b", "Update e"},
			Withheld{Deletes: 2, Services: 100}},
	} {
		t.Run(name, c.check)
	}
}

// TestHeld: deletions that are withheld stay so when there are more Services, of which they are a smaller part. They do
// not when there are fewer deletions, as the spec was corrected. What the caches do not show yet may be more deletions.
func TestHeld(t *testing.T) {
	limits := Limits{MaxDeleteFraction: 0.5}
	type held struct {
		deletes, of int
		isUnsure    bool
	}
	for name, c := range map[string]struct {
		owned, held, deletes, outdated int
		isUnseen, isConfirmed          bool
		want                           held
	}{
		"a small part":                        {owned: 100, deletes: 10},
		"orphans to replace":                  {deletes: 10, want: held{10, 10, false}},
		"most of those then":                  {owned: 100, held: 12, deletes: 10, want: held{10, 12, false}},
		"most of fewer now":                   {owned: 11, held: 24, deletes: 10},
		"more than then":                      {owned: 100, held: 12, deletes: 20, want: held{20, 20, false}},
		"some of those then":                  {owned: 100, held: 12, deletes: 6},
		"none any more":                       {owned: 100, held: 12},
		"confirmed":                           {owned: 100, held: 12, deletes: 10, isConfirmed: true, want: held{0, 12, false}},
		"not seen":                            {owned: 100, deletes: 10, isUnseen: true, want: held{0, 0, true}},
		"most, not seen":                      {owned: 12, deletes: 10, isUnseen: true, want: held{0, 0, true}},
		"written before, not seen":            {owned: 12, outdated: 10, isUnseen: true, want: held{0, 0, true}},
		"held, and not seen":                  {owned: 100, held: 12, deletes: 3, isUnseen: true, want: held{3, 12, true}},
		"held, and none seen":                 {owned: 100, held: 12, isUnseen: true, want: held{0, 12, true}},
		"nothing to delete, and not all seen": {owned: 100, isUnseen: true},
	} {
		t.Run(name, func(t *testing.T) {
			ls := localService()
			ls.Status.HeldServices = int32(c.held)
			if c.isConfirmed {
				ls.Annotations = map[string]string{v1alpha1.AllowDeletionAnnotationKey: "true"}
			}
			plan := Plan{Outdated: c.outdated, Changes: append(slices.Repeat([]Change{{Action: Delete}}, c.deletes),
				Change{Action: Create})}
			got, withheld := limits.Apply(plan, ls, c.owned, c.owned, !c.isUnseen)
			want := Withheld{Deletes: c.want.deletes, Services: c.want.of, IsUnsure: c.want.isUnsure, Limits: limits}
			changes := c.deletes - c.want.deletes + 1
			if c.want.isUnsure {
				changes = 0
			}
			if withheld != want || len(got.Changes) != changes {
				t.Errorf("withheld %+v, want %+v; %d changes left, want %d", withheld, want, len(got.Changes), changes)
			}
		})
	}
	free := Limits{MaxDeleteFraction: 1}
	if got, _ := free.Apply(Plan{Changes: []Change{{Action: Delete}}}, localService(), 1, 1, false); len(got.Changes) != 1 {
		t.Error("a deletion waits where there is no limit")
	}
}

// TestCapacityLimits: what -max-services-per-namespace lets one plan create.
func TestCapacityLimits(t *testing.T) {
	for name, c := range map[string]limitsCase{
		"no limits": {Limits{MaxDeleteFraction: 1}, 2, 9999, false, everything, Withheld{}},
		"namespace is just full": {Limits{MaxDeleteFraction: 1, MaxServicesPerNamespace: 10}, 3, 10, false,
			everything, Withheld{}},
		"namespace is too full": {Limits{MaxDeleteFraction: 1, MaxServicesPerNamespace: 10}, 3, 11, false,
			[]string{"Delete c", "Replace d", "Update e"}, Withheld{Creates: 2, Total: 11}},
	} {
		t.Run(name, c.check)
	}
	full := Limits{MaxDeleteFraction: 1, MaxServicesPerNamespace: 10}
	if _, got := full.Apply(Plan{}, localService(), 3, 11, true); got != (Withheld{Limits: full}) {
		t.Errorf("withheld of a plan that creates nothing: %+v", got)
	}
}

// TestCapacityHoldsReplacements: nothing that serves is taken away for successors that would have no address.
func TestCapacityHoldsReplacements(t *testing.T) {
	const any = "Replace a, Replace b, Update c"
	for _, c := range []struct {
		needed, free int
		want         string
	}{{2, 2, any}, {0, 0, any}, {2, -1, any}, {2, 1, "Update c"}, {2, 0, "Update c"}} {
		var w Withheld
		got := w.HoldReplacements(Plan{Changes: []Change{{Action: Replace, Name: "a"}, {Action: Replace, Name: "b"},
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
