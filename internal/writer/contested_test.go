package writer

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/testobject"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestWriteContested: a change that is stored otherwise is made to all Services. The next one of the same field counts
// as refused: at once after an update, after a creation if it has no effect. It stops no other change.
func TestWriteContested(t *testing.T) {
	const field = "publishNotReadyAddresses"
	others := []string{"patch demo-c", "try demo-d", "delete demo-d", "create demo-d"}
	for action, c := range map[plan.Action]struct{ first, second []string }{
		plan.Create: {[]string{"create demo-a", "create demo-b"}, []string{"patch demo-a", "patch demo-b",
			"patch demo-d"}},
		plan.Adopt:  {[]string{"patch demo-a", "patch demo-b"}, []string{"patch demo-d"}},
		plan.Update: {[]string{"patch demo-a", "patch demo-b"}, []string{"patch demo-d"}},
	} {
		t.Run(string(action), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, 1)
				f.answer = func(_ string, service *corev1.Service) error {
					if service != nil {
						service.Spec.PublishNotReadyAddresses = true
					}
					return nil
				}
				next := f.stored("a", "b", "c", "d")
				out, requests := f.write(f.changes(action, "a", "b"), f.changes(plan.Update, "c"),
					f.changes(plan.Replace, "d"))
				if !slices.Equal(requests, slices.Concat(c.first, others)) || len(out.Made[action]) < 2 || !out.More {
					t.Errorf("at first: %v: %+v", requests, out)
				}
				for _, want := range [][]string{c.second, nil} {
					out, requests = f.write(next)
					if !slices.Equal(requests, want) || len(out.Made) > 0 || !out.IsComplete() ||
						out.RetryAfter != reconcile.MaxBackoff || !out.Contested.Equal(sets.New(field)) {
						t.Errorf("when it is planned again: %v, want %v: %+v", requests, want, out)
					}
				}
				edited := f.stored("a")
				edited[0].Fields = []string{"ports", field}
				if _, requests = f.write(edited); !slices.Equal(requests, []string{"patch demo-a"}) {
					t.Errorf("when another field is edited: %v", requests)
				}
				time.Sleep(reconcile.MaxBackoff)
				if _, requests = f.write(next); len(requests) != len(next) {
					t.Errorf("after the backoff: %v", requests)
				}
			})
		})
	}
}

// stored returns the updates of Services that are stored otherwise than they were written.
func (f *fixture) stored(nodes ...string) []plan.Change {
	changes := f.changes(plan.Update, nodes...)
	for i := range changes {
		current := testobject.Stored(f.templates[0].Service(changes[i].Node))
		current.Spec.PublishNotReadyAddresses = true
		changes[i].Current = plan.FromAPI(current, v1alpha1.DefaultNodeLabelKey)
		changes[i].Fields, _ = f.templates[0].Mismatches(current, changes[i].Node)
	}
	return changes
}
