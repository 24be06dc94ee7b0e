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
		write := func(when string, retryAfter time.Duration, others []string, want ...string) {
			t.Helper()
			out, requests := f.expect(when, counts{Requests: len(want), Stored: len(others), Refused: 1,
				RetryAfter: retryAfter}, f.changes(plan.Create, append(others, "a")...))
			if !slices.Equal(requests, want) || !errors.Is(errors.Join(out.Refused...), forbidden) {
				t.Errorf("%s: %v, want %v; refused: %v", when, requests, want, out.Refused)
			}
		}
		write("at first", 10*time.Second, []string{"b"}, "create demo-b", "create demo-a")
		time.Sleep(4 * time.Second)
		write("a moment later", 6*time.Second, []string{"c"}, "create demo-c")
		time.Sleep(6 * time.Second)
		write("when it is due", 20*time.Second, []string{"d"}, "create demo-d", "create demo-a")
		time.Sleep(10 * time.Second)
		write("with nothing else to do", 10*time.Second, nil)
		f.nextGeneration()
		write("for another spec", 10*time.Second, nil, "create demo-a")
		f.refusing(nil)
		time.Sleep(10 * time.Second)
		f.expect("accepted", counts{Requests: 1, Stored: 1}, f.changes(plan.Create, "a"))
		f.refusing(forbidden, "create")
		write("refused after a success", 10*time.Second, nil, "create demo-a")
	})
}

// TestRefusedForAnother: a Service that should be something else now, as a label of its node was corrected, does not wait
// because its creation was refused.
func TestRefusedForAnother(t *testing.T) {
	f := newFixture(t, 1)
	f.refusing(forbidden, "create")
	changes := f.changes(plan.Create, "a")
	for sum := range uint64(2) {
		changes[0].Sum = sum
		f.expect("at first", counts{Requests: 1, Refused: 1, RetryAfter: 10 * time.Second}, changes)
		f.expect("a moment later", counts{Refused: 1, RetryAfter: 10 * time.Second}, changes)
	}
}

// TestGivenUp: if everything is refused, few writes are tried, and all of that kind wait. Other kinds, and other specs,
// do not wait. One success ends it.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 4)
		f.refusing(forbidden, "create")
		creations := f.changes(plan.Create, nodeNames("n", 45)...)
		tried := map[string]bool{}
		write := func(when string, retryAfter time.Duration, want, refused int, more ...plan.Change) {
			t.Helper()
			_, requests := f.expect(when, counts{Requests: want + len(more), Deleted: len(more), Refused: refused,
				RetryAfter: retryAfter}, creations, more)
			for _, request := range requests {
				if tried[request] {
					t.Errorf("%s: %s comes before those that were never tried", when, request)
				}
				tried[request] = true
			}
		}
		write("at first", 10*time.Second, maxFailures, maxFailures)
		time.Sleep(time.Second)
		write("a moment later", 9*time.Second, 0, maxFailures)
		write("beside another kind", 9*time.Second, 0, maxFailures, f.changes(plan.Delete, "old")...)
		time.Sleep(9 * time.Second)
		write("when it is due", 10*time.Second, maxFailures, 2*maxFailures)
		time.Sleep(20 * time.Second)
		write("when it is due again", 10*time.Second, maxFailures, 3*maxFailures)
		clear(tried)
		f.nextGeneration()
		write("for another spec", 10*time.Second, maxFailures, maxFailures)
		f.expect("without those that were refused", counts{Refused: 1, RetryAfter: 10 * time.Second},
			creations[maxFailures:])
		f.refusing(nil)
		time.Sleep(10 * time.Second)
		f.expect("when all are accepted", counts{Requests: len(creations), Stored: len(creations)}, creations)
		f.refusing(forbidden, "create")
		clear(tried)
		write("after a success", 10*time.Second, maxFailures, maxFailures)
		f.expect("the rest, after a success", counts{Refused: 1, RetryAfter: 10 * time.Second}, creations[maxFailures:])
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
		f.expect("a node joins", counts{Requests: 1, Stored: 1, Refused: 12, RetryAfter: 20 * time.Second}, refused,
			f.changes(plan.Create, "joined"))
	})
}

// TestGivenUpOfWhatMayPass: a batch that stopped because the API server does not answer is retried soon.
func TestGivenUpOfWhatMayPass(t *testing.T) {
	for err, want := range map[error]counts{
		errors.New("no answer"): {Requests: maxFailures, Failed: maxFailures, Err: true},
		conflict:                {Requests: maxFailures, Stale: maxFailures, Err: true},
	} {
		f := newFixture(t, 4)
		changes := f.changes(plan.Create, nodeNames("n", 25)...)
		f.refusing(err, "create")
		f.expect(err.Error(), want, changes)
		f.refusing(nil)
		f.expect(err.Error()+", then answered", counts{Requests: 25, Stored: 25}, changes)
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
				f.expect("at first", counts{Requests: c.requests, Deleted: c.deletions, Stale: c.others,
					Refused: c.requests - c.others - c.deletions, More: c.more, RetryAfter: minRefusedBackoff,
					Err: c.others > 0}, changes)
				if _, requests := f.write(changes); len(requests) != c.later {
					t.Errorf("a moment later: %v, want %d", requests, c.later)
				}
			})
		})
	}
}
