package writer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/localservice-dev/local-service-controller/internal/reconcile"
)

var refusedAttempt = Attempt{Owner: "uid-demo", Generation: 1, Name: "demo-a"}

// TestRefusals: a write is retried after 10 s, then after twice as long each time, up to 2 min. One that RBAC denies is
// retried soon at first, and not reported until that has lasted for a while. The last refusal is remembered until the
// next attempt, and longer, but not for ever.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		backoffs []time.Duration // in seconds
		silent   int             // how many are not reported
	}{
		"refused": {forbidden, []time.Duration{10, 20, 40, 80, 120, 120}, 0},
		"denied":  {denied(), []time.Duration{1, 2, 4, 8, 16, 32, 64, 120, 120}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := NewRefusals()
				for i, want := range c.backoffs {
					r.Add(refusedAttempt, c.err)
					refusal := r.Get(refusedAttempt)
					if got := r.RetryAfter(refusedAttempt); got != want*time.Second || !errors.Is(refusal.Err, c.err) ||
						refusal.IsReported() != (i >= c.silent) {
						t.Errorf("refusal %d: %s remaining, want %ds: %+v", i+1, got, want, refusal)
					}
					time.Sleep(want * time.Second)
					if r.Get(refusedAttempt).Err == nil || r.RetryAfter(refusedAttempt) != 0 {
						t.Errorf("refusal %d is forgotten when it is due, or still waits", i+1)
					}
				}
				for range 1000 {
					r.Add(refusedAttempt, c.err)
				}
				if left := r.RetryAfter(refusedAttempt); left != reconcile.MaxBackoff {
					t.Errorf("after very many refusals: %s remaining", left)
				}
				time.Sleep(rememberedFor + 1)
				if r.Get(refusedAttempt).Err != nil {
					t.Error("a refusal that nobody reads is never forgotten")
				}
			})
		})
	}
}

// TestDeniedAfterRefused: denials of what was refused before count from the first denial.
func TestDeniedAfterRefused(t *testing.T) {
	r := NewRefusals()
	for range maxTimes {
		r.Add(refusedAttempt, forbidden)
	}
	r.Add(refusedAttempt, denied())
	if refusal := r.Get(refusedAttempt); refusal.IsReported() || refusal.Times != 1 {
		t.Errorf("%+v", refusal)
	}
}
