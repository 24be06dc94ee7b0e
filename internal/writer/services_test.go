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
	out, requests := f.write(changes)
	slices.Sort(requests[2:4])
	want := []string{"delete demo-a", "patch demo-b", "create demo-c", "create demo-d", "patch demo-e"}
	if !slices.Equal(requests, want) {
		t.Errorf("requests\n%v, want\n%v", requests, want)
	}
	if !out.IsComplete() || out.Stopped != nil || out.Stored() != 4 || len(out.Made[plan.Create]) != 2 ||
		out.RetryAfter != 0 {
		t.Errorf("%+v", out)
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
	for name, c := range map[string]struct {
		err  error
		want string // refused, failed, stale
	}{
		"refused":         {forbidden, "1 0 0"},
		"invalid":         {apierrors.NewInvalid(schema.GroupKind{}, "x", nil), "1 0 0"},
		"internal error":  {apierrors.NewInternalError(errors.New("webhook")), "1 0 0"},
		"not answered":    {errors.New("connection refused"), "0 1 0"},
		"too late":        {context.DeadlineExceeded, "1 0 0"},
		"busy":            {apierrors.NewTooManyRequests("", 1), "0 1 0"},
		"not available":   {apierrors.NewServiceUnavailable(""), "0 1 0"},
		"timeout":         {apierrors.NewTimeoutError("", 1), "0 1 0"},
		"server timeout":  {apierrors.NewServerTimeout(services, "", 1), "0 1 0"},
		"there already":   {exists, "0 0 1"},
		"changed":         {conflict, "0 0 1"},
		"no such thing":   {notFound, "0 0 1"},
		"the cache is so": {staleError("behind"), "0 0 1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 2)
			f.refusing(c.err, "create demo-b")
			out, requests := f.write(f.changes(plan.Create, "a", "b", "c"))
			got := fmt.Sprint(len(out.Refused), len(out.Failed), len(out.Stale))
			if got != c.want || len(out.Made[plan.Create]) != 2 || len(requests) != 3 || out.IsComplete() ||
				out.Stopped != nil {
				t.Errorf("%s after %v, want %s: %+v", got, requests, c.want, out)
			}
			err := out.Err(cache.KeyOf(f.ls))
			isRefused := c.want == "1 0 0"
			if (err == nil) != isRefused || err != nil && !strings.Contains(err.Error(), "default/demo-b") {
				t.Errorf("the error of the sync: %v", err)
			}
			last := f.deps.Refusals.Get(Attempt{Owner: f.ls.UID, Generation: 1, Action: plan.Create,
				Name: "demo-b"})
			if (last.Err != nil) != isRefused || (out.RetryAfter > 0) != isRefused {
				t.Errorf("remembered as refused: %v, and retried after %s", last.Err, out.RetryAfter)
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
		out, _ := f.write(f.changes(plan.Create, "a", "b", "c"), f.changes(plan.Delete, "d"))
		got := fmt.Sprint(out.Refused)
		if len(out.Refused) != 1 || !strings.Contains(got, says) || strings.Contains(got, "services_test.go") ||
			len(out.Failed) > 0 || len(out.Made[plan.Create]) != 2 || len(out.Made[plan.Delete]) != 1 {
			t.Errorf("%s: %+v", says, out)
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
				out, requests := f.write(f.changes(plan.Delete, nodeNames("n", c.changes)...))
				if made := len(out.Made[plan.Delete]); out.More != (c.made < c.changes) || made != c.made ||
					len(requests) != made || out.IsComplete() == out.More || out.Stopped != nil ||
					out.Err(cache.KeyOf(f.ls)) != nil {
					t.Errorf("%d requests: %+v", len(requests), out)
				}
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
		b := &batch{turn: &turn{Writer: f.deps, ls: f.ls}, action: plan.Create}
		if c.isRefused {
			f.deps.Refusals.Add(b.attempt(plan.Create, ""), forbidden)
		}
		if got := b.startsSlowly(); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestTurns: what failed for reasons that may pass is tried again in the next turn, and is not reported. After a turn
// that made nothing there is no next turn: the sync is tried again with backoff.
func TestTurns(t *testing.T) {
	busy := apierrors.NewServiceUnavailable("busy")
	for name, c := range map[string]struct {
		answer  func(n int, request string) error
		hasNext bool
		err     string
	}{
		"some fail": {func(n int, _ string) error {
			if n%2 == 0 {
				return busy
			}
			return nil
		}, true, ""},
		"all fail, of two kinds": {func(int, string) error { return busy }, false, "17 writes failed"},
		"everything is gone": {func(int, string) error {
			return apierrors.NewNotFound(corev1.Resource("services"), "x")
		}, false, "nothing was made"},
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
				out, _ := f.write(f.changes(plan.Delete, nodeNames("a", 20)...),
					f.changes(plan.Create, nodeNames("b", 20)...))
				err := out.Err(cache.KeyOf(f.ls))
				if out.More != c.hasNext || (err == nil) != c.hasNext ||
					err != nil && !strings.Contains(err.Error(), c.err) || c.hasNext && out.hasFailed() {
					t.Errorf("next turn %v, error %v: %+v", out.More, err, out)
				}
			})
		})
	}
}

// TestWriteStops: no other write is started in a namespace that is being deleted, during a shutdown, or after the cache
// has observed another spec.
func TestWriteStops(t *testing.T) {
	isStale := func(err error) bool { return errors.Is(err, errStale) }
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
		}, isStale},
		"deleted": {func(f *fixture, _ func()) error { return f.cached.Delete(f.ls) }, isStale},
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
			out, requests := f.write(f.changes(plan.Delete, nodeNames("n", 100)...))
			if len(out.Made[plan.Delete]) != c.made || len(out.Refused) != c.errors || out.More != c.more ||
				len(requests) != c.made+c.errors {
				t.Errorf("%d requests: %d made, %d refused, more %t", len(requests), len(out.Made[plan.Delete]),
					len(out.Refused), out.More)
			}
		})
	}
}
