package writer

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/status"
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
	} {
		t.Run(string(action), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, 1)
				f.contest()
				want := counts{Requests: 2, Stored: 2}
				if c.isSet {
					want.Refused, want.RetryAfter = 2, reconcile.MaxBackoff
				}
				out, requests := f.expect("at first", want, f.changes(action, "a", "b"))
				if !slices.Equal(requests, c.first) || out.contested().Has(field) != c.isSet {
					t.Errorf("at first: %v, want %v; contested: %v", requests, c.first, out.contested())
				}
				next := f.stored("a", "b")
				if action == plan.Create { // The update was not tried yet.
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
		changes[i].Current = current
	}
	return changes
}

// TestUndone: an update that something else undoes each time is made again at once the first time, and then less and
// less often. It is reported until a while after the last time, with who it was. Other updates do not wait.
func TestUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		f.managed = []metav1.ManagedFieldsEntry{managed("kubectl", "port", 4), managed("theirs", "selector", 3),
			managed(v1alpha1.FieldManager, "selector", 3)}
		change := f.changes(plan.Update, "a")
		change[0].Fields = []string{"selector"}
		began := time.Now()
		var at []time.Duration
		for time.Since(began) < 20*time.Second {
			out, requests := f.write(change)
			if len(requests) > 0 {
				at = append(at, time.Since(began))
			}
			isContested := slices.ContainsFunc(out.Refused, func(err error) bool {
				return strings.HasSuffix(err.Error(), `(field manager "theirs") sets selector after the controller has set it`)
			})
			if isFirst := time.Since(began) == 0; isContested == isFirst || !isFirst && out.RetryAfter == 0 {
				t.Errorf("after %s: %+v", time.Since(began), out)
			}
			time.Sleep(100 * time.Millisecond)
		}
		const ms = time.Millisecond
		if want := []time.Duration{0, 2100 * ms, 6200 * ms, 14300 * ms}; !slices.Equal(at, want) {
			t.Errorf("writes after %v, want %v", at, want)
		}
		time.Sleep(f.deps.Refusals.RetryAfter(Attempt{Owner: f.ls.UID, Generation: f.ls.Generation, Action: plan.Update,
			Name: "demo-a"}))
		f.write(change)
		f.version = "later"
		if _, requests := f.write(change); len(requests) != 1 {
			t.Errorf("while the cache lags: %v", requests)
		}
		f.version = change[0].Current.GetResourceVersion()
		f.write(change)
		other := f.changes(plan.Update, "a", "b")
		other[0].Fields, other[1].Fields = []string{"selector"}, []string{"selector"}
		if _, requests := f.write(other); !slices.Equal(requests, []string{"patch demo-b"}) {
			t.Errorf("another Service: %v", requests)
		}
		f.nextGeneration()
		if _, requests := f.write(change); len(requests) != 1 {
			t.Errorf("another spec: %v", requests)
		}
	})
}

// TestNotUndoneIfRecreated: the same update of a recreated Service is made at once: admission may act on creations.
func TestNotUndoneIfRecreated(t *testing.T) {
	f := newFixture(t, 1)
	update := f.changes(plan.Update, "a")
	update[0].Fields = []string{"labels"}
	f.write(update)
	f.write(f.changes(plan.Create, "a"))
	if out, requests := f.write(update); len(requests) != 1 {
		t.Errorf("%v: %+v", requests, out)
	}
}

// TestContestedAndChanged: while something else contests a field of a Service, another field that somebody changes is
// set right at once, but not again and again.
func TestContestedAndChanged(t *testing.T) {
	labels, both := []string{"labels"}, []string{"labels", "selector"}
	for name, byAdmission := range map[string]bool{"admission": true, "another controller": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, 1)
				if byAdmission {
					f.contest()
				}
				change := f.changes(plan.Update, "a")
				for i, c := range []struct {
					fields   []string
					requests int
				}{{labels, 1}, {labels, 0}, {both, 1}, {both, 0}, {labels, 0}} {
					change[0].Fields = c.fields
					if _, requests := f.write(change); len(requests) != c.requests {
						t.Errorf("update %d of %v: %v", i, c.fields, requests)
					}
				}
			})
		})
	}
}

// TestUndoneOfSeveral: while updates of several Services are undone and made again, the same Service is reported.
func TestUndoneOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		changes := f.changes(plan.Update, "a", "b")
		changes[0].Fields, changes[1].Fields = []string{"selector"}, []string{"selector"}
		f.write(changes)
		for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(100 * time.Millisecond) {
			out, _ := f.write(changes)
			isA := func(err error) bool {
				contested, is := errors.AsType[*status.ContestedError](err)
				return is && contested.Object == "Service demo-a"
			}
			if !slices.ContainsFunc(out.Refused, isA) {
				t.Errorf("after %s: %v", time.Since(began), out.Refused)
			}
		}
	})
}

// TestSetterOf: the last that has set a field after the controller is named, and nobody if it was removed.
func TestSetterOf(t *testing.T) {
	f := newFixture(t, 1)
	for at, want := range map[int64]string{1: "", 2: "theirs", 3: "theirs"} {
		f.managed = []metav1.ManagedFieldsEntry{managed("before", "selector", 1), managed("theirs", "selector", at),
			managed(v1alpha1.FieldManager, "ports", 2), managed("other", "ports", 4)}
		service := f.changes(plan.Update, "a")[0].Current
		got := f.deps.setterOf(t.Context(), services.WithVersion("v1"), service, plan.PathOf("selector"))
		if got != (setter{want, true}) {
			t.Errorf("%+v if it was set at %d, want %q", got, at, want)
		}
	}
}

// TestNotUndone: an update that sets other fields, or another value, or that comes much later, is made at once.
func TestNotUndone(t *testing.T) {
	type made = struct {
		field string
		sum   uint64
		after time.Duration
	}
	for name, c := range map[string]struct {
		made []made
		want []string
	}{
		"the same":           {[]made{{"labels", 1, 0}}, []string{"labels"}},
		"another field":      {[]made{{"ports", 1, 0}}, nil},
		"another value":      {[]made{{"labels", 2, 0}}, nil},
		"long ago":           {[]made{{"labels", 1, soon + time.Second}}, nil},
		"several in turns":   {[]made{{"labels", 1, time.Second}, {"ports", 1, time.Second}}, []string{"labels"}},
		"there and back":     {[]made{{"labels", 1, time.Second}, {"labels", 2, time.Second}}, nil},
		"another long ago":   {[]made{{"labels", 1, soon + time.Second}, {"ports", 1, 0}}, nil},
		"nothing was made":   {},
		"the second to come": {[]made{{"labels", 1, time.Second}, {"labels", 1, time.Second}}, []string{"labels"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, attempt := NewRefusals(), Attempt{Owner: "a", Action: plan.Update, Name: "demo-a"}
				for _, m := range c.made {
					r.Made(attempt, []string{m.field}, m.sum)
					time.Sleep(m.after)
				}
				if got := r.Undone(attempt, []string{"annotations", "labels"}, 1); !slices.Equal(got, c.want) {
					t.Errorf("%v, want %v", got, c.want)
				}
			})
		})
	}
}

func managed(manager, field string, at int64) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Time: new(metav1.Unix(at, 0)),
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:` + field + `":{}}}`)}
}
