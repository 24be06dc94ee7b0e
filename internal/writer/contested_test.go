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
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestWriteContested: a change that is stored otherwise is made, and counts as refused: it is tried again after two
// minutes, or for another spec. A creation is updated first, because admission may act on creations only. Nothing else
// waits.
func TestWriteContested(t *testing.T) {
	const field = "publishNotReadyAddresses"
	for action, c := range map[plan.Action]struct {
		first []string
		isSet bool // at once
	}{
		plan.Create: {[]string{"create demo-a", "create demo-b"}, false},
		plan.Adopt:  {[]string{"patch demo-a", "patch demo-b"}, true},
		plan.Update: {[]string{"patch demo-a", "patch demo-b"}, true},
		plan.Replace: {[]string{"try demo-a", "delete demo-a", "create demo-a", "try demo-b",
			"delete demo-b", "create demo-b"}, false},
	} {
		t.Run(string(action), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, 1)
				f.contest()
				out, requests := f.write(f.changes(action, "a", "b"))
				if !slices.Equal(requests, c.first) || len(out.Made[action]) != 2 || out.More ||
					out.contested().Has(field) != c.isSet {
					t.Errorf("at first: %v: %+v", requests, out)
				}
				next := f.stored("a", "b")
				if action == plan.Create || action == plan.Replace { // Those are updates, and were not tried yet.
					f.write(next)
				}
				out, requests = f.write(next, f.changes(plan.Update, "c"))
				if !slices.Equal(requests, []string{"patch demo-c"}) || out.RetryAfter != reconcile.MaxBackoff ||
					!out.contested().Equal(sets.New(field)) {
					t.Errorf("when it is planned again: %v: %+v", requests, out)
				}
				time.Sleep(reconcile.MaxBackoff)
				if _, requests = f.write(next); len(requests) != len(next) {
					t.Errorf("after the backoff: %v", requests)
				}
				f.nextGeneration()
				if _, requests = f.write(next); len(requests) != len(next) {
					t.Errorf("for another spec: %v", requests)
				}
			})
		})
	}
}

// contest makes admission set a field of each Service that is written.
func (f *fixture) contest() {
	f.answer = func(_ string, service *corev1.Service) error {
		if service != nil {
			service.Spec.PublishNotReadyAddresses = true
		}
		return nil
	}
}

// stored returns the updates of Services that are stored otherwise than they were written.
func (f *fixture) stored(nodes ...string) []plan.Change {
	changes := f.changes(plan.Update, nodes...)
	for i := range changes {
		current := objects.Stored(f.templates[0].Service(changes[i].Node))
		current.Spec.PublishNotReadyAddresses = true
		changes[i].Current = plan.FromAPI(current, v1alpha1.DefaultNodeLabelKey)
	}
	return changes
}
