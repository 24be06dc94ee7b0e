package writer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/plan"
)

func nodeNames(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s%02d", prefix, i))
	}
	return names
}

// TestRefusedAMomentAgo: a refused write is retried when its backoff is over, and is reported until then. Other writes
// do not wait for it, and come before it.
func TestRefusedAMomentAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		f.refusing(forbidden, "create demo-a")
		expect := func(when string, out outcome, got []string, retryAfter time.Duration, want ...string) {
			t.Helper()
			if !slices.Equal(got, want) || len(out.Refused) != 1 || !errors.Is(out.Refused[0], forbidden) ||
				out.RetryAfter != retryAfter || out.IsComplete() || out.Err(cache.KeyOf(f.ls)) != nil {
				t.Errorf("%s: %v, want %v; %+v", when, got, want, out)
			}
		}
		out, requests := f.write(f.changes(plan.Create, "a", "b"))
		expect("at first", out, requests, 10*time.Second, "create demo-a", "create demo-b")
		time.Sleep(4 * time.Second)
		out, requests = f.write(f.changes(plan.Create, "a", "c"))
		expect("a moment later", out, requests, 6*time.Second, "create demo-c")
		time.Sleep(6 * time.Second)
		out, requests = f.write(f.changes(plan.Create, "a", "d"))
		expect("when it is due", out, requests, 20*time.Second, "create demo-d", "create demo-a")
		time.Sleep(10 * time.Second)
		out, requests = f.write(f.changes(plan.Create, "a"))
		expect("with nothing else to do", out, requests, 10*time.Second)
		f.nextGeneration()
		out, requests = f.write(f.changes(plan.Create, "a"))
		expect("for another spec", out, requests, 10*time.Second, "create demo-a")
		f.refusing(nil)
		time.Sleep(10 * time.Second)
		if out, requests = f.write(f.changes(plan.Create, "a")); !out.IsComplete() || len(requests) != 1 {
			t.Errorf("accepted: %v, %+v", requests, out)
		}
		f.refusing(forbidden, "create")
		out, requests = f.write(f.changes(plan.Create, "a"))
		expect("refused after a success", out, requests, 10*time.Second, "create demo-a")
	})
}

// TestGivenUp: if everything is refused, few writes are tried, and all of that kind wait. Other kinds, and other specs,
// do not wait. One success ends it.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 4)
		f.refusing(forbidden, "create")
		creations := f.changes(plan.Create, nodeNames("n", 45)...)
		tried := map[string]bool{}
		write := func(when string, retryAfter time.Duration, want int, more ...plan.Change) {
			t.Helper()
			out, requests := f.write(creations, more)
			creates := 0
			for _, request := range requests {
				if strings.HasPrefix(request, "create") {
					creates++
					if tried[request] {
						t.Errorf("%s: %s comes before those that were never tried", when, request)
					}
					tried[request] = true
				}
			}
			if creates != want || len(out.Refused) == 0 || out.More || out.RetryAfter == 0 ||
				out.RetryAfter > retryAfter || out.Err(cache.KeyOf(f.ls)) != nil || len(more) != len(out.Made) {
				t.Errorf("%s: %d tried, want %d; want again after %s: %+v", when, creates, want, retryAfter, out)
			}
		}
		write("at first", 10*time.Second, maxFailures)
		time.Sleep(time.Second)
		write("a moment later", 9*time.Second, 0)
		write("beside another kind", 9*time.Second, 0, f.changes(plan.Delete, "old")...)
		time.Sleep(9 * time.Second)
		write("when it is due", 20*time.Second, maxFailures)
		time.Sleep(20 * time.Second)
		write("when it is due again", 40*time.Second, maxFailures)
		clear(tried)
		f.nextGeneration()
		write("for another spec", 10*time.Second, maxFailures)
		out, _ := f.write(creations[maxFailures:])
		if len(out.Refused) != 1 || out.RetryAfter != 10*time.Second {
			t.Errorf("without those that were refused: %+v", out)
		}
		f.refusing(nil)
		time.Sleep(10 * time.Second)
		if out, requests := f.write(creations); !out.IsComplete() || len(requests) != len(creations) {
			t.Errorf("when all are accepted: %d requests, %+v", len(requests), out)
		}
		f.refusing(forbidden, "create")
		clear(tried)
		write("after a success", 10*time.Second, maxFailures)
		if out, _ := f.write(creations[maxFailures:]); out.RetryAfter != 10*time.Second {
			t.Errorf("the rest waits %s after a success, as if there had been none", out.RetryAfter)
		}
	})
}

// TestGivenUpOfRefused: if only changes remain that were refused themselves, nothing else waits with them: a node that
// joins gets its Service at once.
func TestGivenUpOfRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 4)
		f.refusing(forbidden, "create demo-n")
		refused := f.changes(plan.Create, nodeNames("n", 12)...)
		f.write(refused[:6])
		f.write(refused[6:])
		time.Sleep(minRefusedBackoff)
		f.write(refused)
		if out, requests := f.write(refused, f.changes(plan.Create, "joined")); len(out.Made) != 1 {
			t.Errorf("%v, %+v", requests, out)
		}
	})
}

// TestGivenUpOfWhatMayPass: a batch that stopped because the API server does not answer is retried soon.
func TestGivenUpOfWhatMayPass(t *testing.T) {
	for _, err := range []error{errors.New("no answer"), conflict} {
		f := newFixture(t, 4)
		f.refusing(err, "create")
		out, requests := f.write(f.changes(plan.Create, nodeNames("n", 25)...))
		if len(requests) != maxFailures || len(out.Failed)+len(out.Stale) != maxFailures || out.RetryAfter != 0 ||
			out.Err(cache.KeyOf(f.ls)) == nil || out.IsComplete() {
			t.Errorf("%v: %d requests, %+v", err, len(requests), out)
		}
		f.refusing(nil)
		out, requests = f.write(f.changes(plan.Create, nodeNames("n", 25)...))
		if len(requests) != 25 || !out.IsComplete() {
			t.Errorf("%v, then: %d requests, %+v", err, len(requests), out)
		}
	}
}

// TestHopeless: if a turn has nothing accepted, and most of what it tried was refused, the rest waits. A few other
// answers make no difference, nor does it that the time of the turn is over before ten refusals. If only one write of a
// kind fits into it, its refusal says nothing about the others.
func TestHopeless(t *testing.T) {
	for name, c := range map[string]struct {
		each              time.Duration // of a request
		others, deletions int           // other answers than refusals, and what else there is to do
		requests          int
		more              bool
		later             int // requests a moment later
	}{
		"few other answers":         {others: 4, requests: maxFailures},
		"as many other answers":     {others: 5, requests: maxFailures, later: maxFailures},
		"slow refusals":             {each: time.Second, requests: 5},
		"one, at the end of a turn": {each: maxTurn - time.Second, deletions: 1, requests: 2, more: true, later: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, 1)
				var tried atomic.Int64
				f.answer = func(request string, _ *corev1.Service) error {
					time.Sleep(c.each)
					switch {
					case strings.HasPrefix(request, "delete"):
						return nil
					case tried.Add(1) <= int64(c.others):
						return conflict
					}
					return forbidden
				}
				changes := slices.Concat(f.changes(plan.Delete, nodeNames("gone", c.deletions)...),
					f.changes(plan.Create, nodeNames("n", 25)...))
				out, requests := f.write(changes)
				if refused := c.requests - c.others - c.deletions; len(requests) != c.requests || out.More != c.more ||
					len(out.Stale) != c.others || len(out.Refused) != refused || (out.RetryAfter == 0) {
					t.Errorf("%v: %+v", requests, out)
				}
				if _, requests := f.write(changes); len(requests) != c.later {
					t.Errorf("a moment later: %v, want %d", requests, c.later)
				}
			})
		})
	}
}
