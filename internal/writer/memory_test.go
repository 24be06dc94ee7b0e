package writer

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/testobject"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestContestedFields: contested fields are remembered only for the spec that they were found with, and for a while.
func TestContestedFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		w := &execution{Services: f.services, ls: f.ls}
		for range 2 {
			w.contest([]string{"type", "ports"})
			w.contest([]string{"selector", "ports"})
			w.contest([]string{"selector"})
			for name, other := range map[string]func(*v1alpha1.LocalService){
				"another spec":         func(ls *v1alpha1.LocalService) { ls.Generation++ },
				"another LocalService": func(ls *v1alpha1.LocalService) { ls.UID = "another" },
			} {
				if got := f.services.ContestedFields(testobject.LocalService(other)); got != nil {
					t.Errorf("the contested fields of %s: %v", name, got)
				}
			}
			time.Sleep(reconcile.MaxBackoff - time.Second)
			if got := f.services.ContestedFields(f.ls); !slices.Equal(got, []string{"ports", "selector", "type"}) {
				t.Errorf("before the end of the backoff: %v", got)
			}
			if out, _ := f.write(); out.RetryAfter == 0 || !out.IsComplete() {
				t.Errorf("nothing should happen: %+v", out)
			}
			time.Sleep(2 * time.Second)
			if got := f.services.ContestedFields(f.ls); got != nil {
				t.Errorf("after the backoff: %v", got)
			}
		}
	})
}

// TestNodeLabels: a node without labels exists.
func TestNodeLabels(t *testing.T) {
	for name, c := range map[string]struct {
		node    string
		answer  error
		isThere bool
		isKnown bool
	}{
		"there":        {"bare", nil, true, true},
		"gone":         {"gone", notFound, false, true},
		"not answered": {"bare", errors.New("no answer"), false, false},
		"no name":      {"", errors.New("no answer"), false, true},
		"no such name": {"a/b", errors.New("no answer"), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1)
			f.onNode = func(string) error { return c.answer }
			if set, err := f.services.nodeLabels(t.Context(), c.node); (set != nil) != c.isThere ||
				(err == nil) != c.isKnown {
				t.Errorf("%v, %v", set, err)
			}
		})
	}
}
