package writer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestWriteInOrder: deletions come first, because they make room for creations, and adoptions need no room.
// The plan keeps its order.
func TestWriteInOrder(t *testing.T) {
	f := newFixture(t, 1)
	changes := slices.Concat(f.changes(plan.Update, "e"),
		f.changes(plan.Create, "c", "d"), f.changes(plan.Adopt, "b"), f.changes(plan.Delete, "a"),
		f.changes(plan.Wait, "w"), f.changes(plan.Conflict, "x"))
	f.deps.Shuffle = rand.Shuffle
	_, requests := f.expect("all kinds", counts{Requests: 5, Stored: 4, Deleted: 1}, changes)
	slices.Sort(requests[2:4])
	want := []string{"delete demo-a", "patch demo-b", "create demo-c", "create demo-d", "patch demo-e"}
	if !slices.Equal(requests, want) {
		t.Errorf("requests\n%v, want\n%v", requests, want)
	}
	if changes[0].Name != "demo-e" || changes[1].Name != "demo-c" {
		t.Error("the order of the plan's changes was changed")
	}
}

// TestWriteIsObserved: the cache must observe what was written, but need not observe deletions.
func TestWriteIsObserved(t *testing.T) {
	for action, want := range map[plan.Action]bool{plan.Create: true, plan.Update: true, plan.Adopt: true,
		plan.Delete: false} {
		f := newFixture(t, 1)
		f.write(f.changes(action, "a"))
		if got := f.deps.Observed.SinceWrite(cache.KeyOf(f.ls), f.deps.Caches.Services) < time.Hour; got != want {
			t.Errorf("the cache must observe %s: %t, want %t", action, got, want)
		}
	}
	f := newFixture(t, 1)
	f.refusing(forbidden, "create")
	f.write(f.changes(plan.Create, "a"))
	if f.deps.Observed.SinceWrite(cache.KeyOf(f.ls), f.deps.Caches.Services) < time.Hour {
		t.Error("the cache must observe a refused write")
	}
}

// TestWriteFails: the consequences of each kind of failure. The other writes are still made.
func TestWriteFails(t *testing.T) {
	refused := counts{Requests: 3, Stored: 2, Refused: 1, RetryAfter: minRefusedBackoff}
	failed := counts{Requests: 3, Stored: 2, Failed: 1, Err: true}
	stale := counts{Requests: 3, Stored: 2, Stale: 1, Err: true}
	for name, c := range map[string]struct {
		err  error
		want counts
	}{
		"refused":         {forbidden, refused},
		"invalid":         {apierrors.NewInvalid(schema.GroupKind{}, "x", nil), refused},
		"internal error":  {apierrors.NewInternalError(errors.New("webhook")), refused},
		"not answered":    {errors.New("connection refused"), failed},
		"too late":        {context.DeadlineExceeded, refused},
		"busy":            {apierrors.NewTooManyRequests("", 1), failed},
		"not available":   {apierrors.NewServiceUnavailable(""), failed},
		"timeout":         {apierrors.NewTimeoutError("", 1), failed},
		"server timeout":  {apierrors.NewServerTimeout(services, "", 1), failed},
		"there already":   {exists, stale},
		"changed":         {conflict, stale},
		"no such thing":   {notFound, stale},
		"the cache is so": {reconcile.Stale(errors.New("behind")), stale},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 2)
			f.refusing(c.err, "create demo-b")
			out, _ := f.expect(name, c.want, f.changes(plan.Create, "a", "b", "c"))
			err := out.Err(cache.KeyOf(f.ls))
			if err != nil && !strings.Contains(err.Error(), "default/demo-b") ||
				reconcile.IsStale(err) != (c.want == stale) {
				t.Errorf("the error of the sync: %v", err)
			}
			last := f.deps.Refusals.Get(Attempt{Owner: f.ls.UID, Generation: 1, Action: plan.Create,
				Name: "demo-b"})
			if (last.Err != nil) != (c.want == refused) {
				t.Errorf("remembered as refused: %v", last.Err)
			}
		})
	}
}

// TestWriteOfOne: a panic over one Service is a refusal of that Service, so that it is not repeated at once. Where it
// was is only in the log, and not in the status. So is another controller that admission gives to a Service, because
// the garbage collector may delete that whenever it is created.
func TestWriteOfOne(t *testing.T) {
	for says, does := range map[string]func(service *corev1.Service){
		"no such thing": func(*corev1.Service) { panic("no such thing") },
		"instead of this LocalService": func(service *corev1.Service) {
			service.OwnerReferences[0].UID = "another"
		},
	} {
		f := newFixture(t, 1)
		f.answer = func(request string, service *corev1.Service) error {
			if request == "create demo-b" {
				does(service)
			}
			return nil
		}
		out, _ := f.expect(says, counts{Requests: 4, Stored: 2, Deleted: 1, Refused: 1, RetryAfter: minRefusedBackoff},
			f.changes(plan.Create, "a", "b", "c"), f.changes(plan.Delete, "d"))
		if got := fmt.Sprint(out.Refused); !strings.Contains(got, says) || strings.Contains(got, "services_test.go") {
			t.Errorf("refused: %s, want %s", got, says)
		}
	}
}

// TestWriteTimeIsOver: a turn lasts five seconds, or half a second if somebody waits for its end. At least one write is
// made. The rest is planned again.
func TestWriteTimeIsOver(t *testing.T) {
	for name, c := range map[string]struct {
		each          time.Duration
		changes, made int
		isAwaited     bool
	}{
		"enough time":                         {10 * time.Millisecond, 400, 400, false},
		"too many":                            {10 * time.Millisecond, 600, 500, false},
		"somebody waits":                      {10 * time.Millisecond, 400, 50, true},
		"somebody waits, but not for so long": {10 * time.Millisecond, 40, 40, true},
		"slow":                                {time.Second, 6, 5, false},
		"one takes for ever":                  {time.Minute, 2, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, 1) // Others would wait for the locks of the fake client.
				f.isAwaited = c.isAwaited
				f.answer = func(string, *corev1.Service) error {
					time.Sleep(c.each)
					return nil
				}
				f.expect(name, counts{Requests: c.made, Deleted: c.made, More: c.made < c.changes},
					f.changes(plan.Delete, nodeNames("n", c.changes)...))
			})
		})
	}
}

// TestSlowStart: in a later turn, as the status says, as many writes as there is room for begin at once. In the first
// one, and after refusals of all of that kind, one begins alone.
func TestSlowStart(t *testing.T) {
	writing := []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonWritingServices, ObservedGeneration: 1}}
	for name, c := range map[string]struct {
		conditions []metav1.Condition
		isRefused  bool
		want       bool
	}{"first": {nil, false, true}, "later": {writing, false, false}, "refused before": {writing, true, true}} {
		f := newFixture(t, 4)
		f.ls.Generation, f.ls.Status.Conditions = 1, c.conditions
		w := &turn{Dependencies: &f.deps, ls: f.ls}
		if c.isRefused {
			f.deps.Refusals.Add(w.attempt(plan.Create, ""), forbidden)
		}
		if got := w.startsSlowly(plan.Create); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestTurns: what failed for reasons that may pass is tried again in the next turn, and is not reported. After a turn
// that made nothing there is no next turn: the sync is tried again with backoff.
func TestTurns(t *testing.T) {
	busy := apierrors.NewServiceUnavailable("busy")
	for name, c := range map[string]struct {
		answer func(n int, request string) error
		want   counts
		err    string
	}{
		"some fail": {func(n int, _ string) error {
			if n%2 == 0 {
				return busy
			}
			return nil
		}, counts{Requests: 17, Deleted: 9, More: true}, ""},
		"all fail, of two kinds": {func(int, string) error { return busy },
			counts{Requests: 17, Failed: 17, Err: true}, "17 writes failed"},
		"everything is gone": {func(int, string) error {
			return apierrors.NewNotFound(corev1.Resource("services"), "x")
		}, counts{Requests: 17, Stale: 1, Stopped: true, Err: true}, "nothing was made"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, 1)
				f.isAwaited = true
				n := 0
				f.answer = func(request string, _ *corev1.Service) error {
					time.Sleep(30 * time.Millisecond)
					n++
					return c.answer(n, request)
				}
				out, _ := f.expect(name, c.want, f.changes(plan.Delete, nodeNames("a", 20)...),
					f.changes(plan.Create, nodeNames("b", 20)...))
				if err := out.Err(cache.KeyOf(f.ls)); err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("the error of the sync is %v, want %s", err, c.err)
				}
			})
		})
	}
}

// TestWriteStops: no other write is started in a namespace that is being deleted, during a shutdown, or after the cache
// has observed another spec.
func TestWriteStops(t *testing.T) {
	for name, c := range map[string]struct {
		stop func(f *fixture, cancel func()) error // the answer to the second creation
		want func(error) bool
	}{
		"terminating": {func(*fixture, func()) error { return terminatingError() },
			func(err error) bool { return errors.Is(err, ErrNamespaceTerminating) }},
		"shutdown": {func(_ *fixture, cancel func()) error { cancel(); return nil },
			func(err error) bool { return errors.Is(err, context.Canceled) }},
		"another spec": {func(f *fixture, _ func()) error {
			ls := f.ls.DeepCopy()
			ls.Generation++
			f.cache(ls)
			return nil
		}, reconcile.IsStale},
		"deleted": {func(f *fixture, _ func()) error { return f.cached.Delete(f.ls) }, reconcile.IsStale},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f.answer = func(request string, _ *corev1.Service) error {
				if request == "create demo-b" {
					return c.stop(f, cancel)
				}
				return nil
			}
			out := f.deps.WriteServices(ctx, f.ls, planOf(f.changes(plan.Create, "a", "b", "c"),
				f.changes(plan.Update, "d")),
				always)
			if requests := f.took(); len(requests) != 2 || out.Stopped == nil || !c.want(out.Stopped) {
				t.Errorf("stopped by %v after %v", out.Stopped, requests)
			}
			checkTokens(t, f.deps.Pool)
		})
	}
}

// TestWriteSomeRefused: if some writes are refused, the others are made, unless ten in a row are refused.
func TestWriteSomeRefused(t *testing.T) {
	for name, c := range map[string]struct {
		refused      func(i int) bool
		made, errors int
		more         bool
	}{
		"every other one":     {func(i int) bool { return i%2 == 0 }, 50, 50, false},
		"almost everything":   {func(i int) bool { return i%maxFailures != 0 }, 10, 90, false},
		"all from the middle": {func(i int) bool { return i >= 50 }, 50, maxFailures, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1)
			f.answer = func(request string, _ *corev1.Service) error {
				var i int
				if _, err := fmt.Sscanf(request, "delete demo-n%d", &i); err != nil {
					return err
				}
				if c.refused(i) {
					return forbidden
				}
				return nil
			}
			f.expect(name, counts{Requests: c.made + c.errors, Deleted: c.made, Refused: c.errors, More: c.more,
				RetryAfter: minRefusedBackoff}, f.changes(plan.Delete, nodeNames("n", 100)...))
		})
	}
}

// TestImmutable: changes that include a field that Kubernetes does not let change are refused without a request.
// However many there are, nothing waits for them.
func TestImmutable(t *testing.T) {
	for _, action := range []plan.Action{plan.Update, plan.Adopt} {
		f := newFixture(t, 1)
		changes := f.changes(action, append(nodeNames("a", 2*maxFailures), "b")...)
		for i := range 2 * maxFailures {
			changes[i].Immutable = "clusterIP"
		}
		out, requests := f.expect(string(action), counts{Requests: 1, Stored: 1, Refused: 2 * maxFailures}, changes)
		if got := fmt.Sprint(requests, out.Refused); !strings.HasPrefix(got, "[patch demo-b]") ||
			!strings.Contains(got, "its clusterIP differs") {
			t.Errorf("%s: %s", action, got)
		}
	}
}
