package status

import (
	"testing"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testobject"
)

// TestMassDeletion: the deletion of most Services is announced once: not while it goes on, nor when it is tried again.
func TestMassDeletion(t *testing.T) {
	const current, none = 1, 0
	for name, c := range map[string]struct {
		deletes, owned, inPlace, nodes int
		services, statusNodes          int32 // in the status
		observedGeneration             int64
		isAnnounced                    bool
	}{
		"nothing":                          {0, 0, 0, 0, 0, 0, none, false},
		"the only one":                     {1, 1, 0, 0, 1, 1, current, false},
		"one of many":                      {1, 5, 1, 1, 5, 5, current, false},
		"half of them":                     {2, 4, 2, 2, 5, 5, current, false},
		"most of them":                     {2, 3, 1, 1, 3, 3, current, true},
		"all of them":                      {300, 300, 0, 0, 300, 300, current, true},
		"before there is a status":         {2, 3, 1, 1, 0, 0, none, true},
		"it goes on":                       {2, 3, 1, 1, 1, 1, current, false},
		"others take their place":          {2, 3, 0, 3, 2, 3, current, true},
		"it goes on, and more are created": {2, 3, 2, 2, 1, 1, current, false},
		"a field of all is contested":      {2, 3, 0, 1, 0, 3, current, true},
		"it goes on, and a field of all is contested": {2, 3, 0, 1, 0, 1, current, false},
		"the spec changed":                            {2, 3, 0, 1, 0, 1, none, true},
	} {
		t.Run(name, func(t *testing.T) {
			ls := testobject.LocalService()
			ls.Generation, ls.Status.ObservedGeneration = current, c.observedGeneration
			ls.Status.Services, ls.Status.Nodes = c.services, c.statusNodes
			p := &plan.Plan{Owned: c.owned, InPlace: c.inPlace, Nodes: c.nodes}
			for range c.deletes {
				p.Changes = append(p.Changes, plan.Change{Action: plan.Delete})
			}
			if got := MassDeletion(ls, p); (got != "") != c.isAnnounced {
				t.Errorf("%q, want one: %t", got, c.isAnnounced)
			}
		})
	}
}
