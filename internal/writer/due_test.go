package writer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
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
		expect := func(when string, out Outcome, got []string, retryAfter time.Duration, want ...string) {
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

// TestGivenUp: if everything is refused, few writes are tried, and the rest waits. New changes, and other kinds of
// writes, do not wait.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 4)
		f.refusing(forbidden, "create")
		creations := f.changes(plan.Create, nodeNames("n", 25)...)
		tried := func(when string, out Outcome, requests []string, retryAfter time.Duration, want int) {
			t.Helper()
			creates := 0
			for _, request := range requests {
				if strings.HasPrefix(request, "create") {
					creates++
				}
			}
			if creates != want || len(out.Refused) == 0 || out.More || out.RetryAfter != retryAfter ||
				out.Err(cache.KeyOf(f.ls)) != nil {
				t.Errorf("%s: %d tried, want %d, %d refused, more %t, again after %s, want %s", when, creates, want,
					len(out.Refused), out.More, out.RetryAfter, retryAfter)
			}
		}
		out, first := f.write(creations)
		tried("at first", out, first, 10*time.Second, maxFailures)
		time.Sleep(time.Second)
		out, requests := f.write(creations, f.changes(plan.Create, "new"), f.changes(plan.Delete, "old"))
		tried("a moment later", out, requests, 9*time.Second, 1)
		if len(out.Made[plan.Delete]) != 1 {
			t.Errorf("the deletion waits as well: %v", requests)
		}
		out, requests = f.write(creations[maxFailures:])
		tried("only what was never tried", out, requests, 9*time.Second, 0)
		if len(out.Refused) != 1 {
			t.Errorf("what was never tried is reported %d times, want once", len(out.Refused))
		}
		time.Sleep(9 * time.Second)
		out, requests = f.write(creations)
		tried("when it is due", out, requests, out.RetryAfter, maxFailures)
		for _, request := range requests {
			if slices.Contains(first, request) {
				t.Errorf("%s comes before those that were never tried", request)
			}
		}
		out, requests = f.write(creations)
		tried("a moment after that", out, requests, max(out.RetryAfter, 9*time.Second), 0)
		f.nextGeneration()
		out, requests = f.write(creations)
		tried("for another spec", out, requests, 10*time.Second, maxFailures)
		f.refusing(nil)
		for left := creations; len(left) > 0; time.Sleep(10 * time.Second) {
			out, requests = f.write(left)
			left = slices.DeleteFunc(slices.Clone(left), func(c plan.Change) bool {
				return slices.Contains(requests, "create "+c.Name)
			})
			if len(out.Failed)+len(out.Stale) > 0 || f.ls.Generation > 2 {
				t.Fatalf("%+v", out)
			}
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

// TestGivenUpOfMost: a few other answers among the refusals do not make the API server refuse all the rest, too.
func TestGivenUpOfMost(t *testing.T) {
	for name, c := range map[string]struct {
		others   int // of ten
		isPutOff bool
	}{"few others": {4, true}, "half": {5, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, 1)
				var tried atomic.Int64
				f.answer = func(string, *corev1.Service) error {
					if tried.Add(1) <= int64(c.others) {
						return conflict
					}
					return forbidden
				}
				creations := f.changes(plan.Create, nodeNames("n", 25)...)
				out, _ := f.write(creations)
				if len(out.Stale) != c.others || len(out.Refused) != maxFailures-c.others || out.More == c.isPutOff {
					t.Errorf("at first: %+v", out)
				}
				want := c.others // Only what was not refused.
				if !c.isPutOff {
					want = maxFailures
				}
				if _, requests := f.write(creations); len(requests) != want {
					t.Errorf("a moment later: %d requests, want %d: %v", len(requests), want, requests)
				}
			})
		})
	}
}

// TestGivenUpOfOneField: where all updates of a field are refused, those of another field are tried in the next turn.
func TestGivenUpOfOneField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		f.refusing(forbidden, "patch demo-n")
		refused, others := f.changes(plan.Update, nodeNames("n", 25)...), f.changes(plan.Update, "o")
		for i := range refused {
			refused[i].Fields = []string{"selector"}
		}
		others[0].Fields = []string{"labels"}
		out, requests := f.write(refused, others)
		if len(requests) != maxFailures || !out.More || !reconcile.IsStale(out.Err(cache.KeyOf(f.ls))) {
			t.Errorf("%v: %+v", requests, out)
		}
		time.Sleep(time.Second)
		out, requests = f.write(refused, others)
		if !slices.Equal(requests, []string{"patch demo-o"}) || out.More {
			t.Errorf("in the next turn: %v, %+v", requests, out)
		}
		f.refusing(forbidden, "create")
		f.write(f.changes(plan.Create, "later"))
		if out, _ = f.write(f.changes(plan.Create, "later"), refused); out.RetryAfter != 9*time.Second {
			t.Errorf("again after %s, want the time of the earliest", out.RetryAfter)
		}
	})
}

// TestOverdue: what was refused once is tried again soon after it is due, although others fail all the time.
func TestOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		changes := f.changes(plan.Create, nodeNames("a", 10)...)
		f.refusing(forbidden, "create")
		f.write(changes)
		f.services.Shuffle = rand.Shuffle
		f.refusing(conflict, "create demo-b")
		others := f.changes(plan.Create, nodeNames("b", 2*maxFailures)...)
		time.Sleep(minRefusedBackoff)
		out, requests := f.write(changes, others)
		if len(requests) != maxFailures || len(out.Made) > 0 || len(out.Refused) != len(changes) {
			t.Errorf("when they are due: %v, %+v", requests, out)
		}
		time.Sleep(minRefusedBackoff + time.Second)
		for tries := 0; len(changes) > 0; tries++ {
			_, requests = f.write(changes, others)
			changes = slices.DeleteFunc(changes, func(change plan.Change) bool {
				return slices.Contains(requests, "create "+change.Name)
			})
			if tries == 100 {
				t.Fatalf("%d are not made after %d turns", len(changes), tries)
			}
		}
	})
}

// TestSlowRefusals: if refusals are so slow that the time of the sync is over before ten of them, the rest waits in the
// same way, and is not retried at once.
func TestSlowRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		f.answer = func(string, *corev1.Service) error {
			time.Sleep(time.Second)
			return forbidden
		}
		out, requests := f.write(f.changes(plan.Create, nodeNames("n", 25)...))
		if len(requests) != 5 || out.More || len(out.Refused) != 5 || out.RetryAfter == 0 {
			t.Errorf("%v: %+v", requests, out)
		}
	})
}

// TestRefusedAtTheEnd: if only one write of a kind fits into the time of the sync, its refusal says nothing about the
// others: they are tried in the next turn.
func TestRefusedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		f.answer = func(request string, _ *corev1.Service) error {
			time.Sleep(slowSyncTime - time.Second)
			if strings.HasPrefix(request, "create") {
				return forbidden
			}
			return nil
		}
		out, requests := f.write(f.changes(plan.Delete, "gone"), f.changes(plan.Create, nodeNames("n", 25)...))
		if len(requests) != 2 || !out.More || len(out.Refused) != 1 {
			t.Errorf("%v: %+v", requests, out)
		}
	})
}

// TestContestedAreWrittenOnce: where admission changes a part of a field, each Service gets the rest of it once, also
// in several turns. Ten updates in a row without an effect end the attempts.
func TestContestedAreWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		f.answer = func(_ string, service *corev1.Service) error {
			time.Sleep(time.Second)
			service.Spec.PublishNotReadyAddresses = true
			return nil
		}
		nodes := nodeNames("n", 8) // More than a slow sync reaches.
		_, reached := f.write(f.changes(plan.Update, nodes...))
		n := len(reached)
		_, then := f.write(f.stored(nodes[:n]...), f.changes(plan.Update, nodes[n:]...))
		all := slices.Concat(reached, then)
		if slices.Sort(all); len(all) != len(nodes) || len(slices.Compact(all)) != len(nodes) {
			t.Errorf("first %v, then %v", reached, then)
		}
		f.answer = func(_ string, service *corev1.Service) error {
			service.Spec.PublishNotReadyAddresses = true
			return nil
		}
		many := f.stored(nodeNames("m", 3*maxFailures)...)
		edited := f.stored("x")
		edited[0].Fields = []string{"ports", "publishNotReadyAddresses"}
		f.services.Shuffle = rand.Shuffle
		for turns, isReached := 0, false; !isReached; turns++ {
			_, requests := f.write(many, edited)
			isReached = slices.Contains(requests, "patch demo-x")
			if turns == 10 {
				t.Fatalf("what has another difference was not tried in %d turns", turns)
			}
		}
		time.Sleep(reconcile.MaxBackoff)
		for range 3 {
			out, requests := f.write(many)
			again, _ := f.write(many)
			if len(requests) != maxFailures || out.More || again.RetryAfter != out.RetryAfter {
				t.Errorf("%d requests: %+v", len(requests), out)
			}
			time.Sleep(reconcile.MaxBackoff)
		}
	})
}
