package writer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/localservice-dev/local-service-controller/internal/reconcile"
)

var refusedAttempt = Attempt{Owner: "uid-demo", Generation: 1, Name: "demo-a"}

// TestRefusalsBackoff: a write is retried after 10 s, then after twice as long each time, up to 2 min. The last refusal
// is remembered until then, and longer, but not for ever.
func TestRefusalsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRefusals()
		for i, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second,
			2 * time.Minute, 2 * time.Minute} {
			err := errors.New("no")
			r.Add(refusedAttempt, err)
			refusal, isRefused := r.Get(refusedAttempt)
			if !isRefused || !errors.Is(refusal.Err, err) || refusal.Times != i+1 ||
				r.RetryAfter(refusedAttempt) != want || !refusal.RetryAt.Equal(time.Now().Add(want)) {
				t.Errorf("refusal %d: %t, %+v, %s remaining; want %s", i+1, isRefused, refusal,
					r.RetryAfter(refusedAttempt), want)
			}
			time.Sleep(want)
			if _, isRefused = r.Get(refusedAttempt); !isRefused || r.RetryAfter(refusedAttempt) != 0 {
				t.Errorf("refusal %d, when it is due: refused %t, %s remaining", i+1, isRefused,
					r.RetryAfter(refusedAttempt))
			}
		}
		for range 1000 {
			r.Add(refusedAttempt, errors.New("no"))
		}
		if left := r.RetryAfter(refusedAttempt); left != reconcile.MaxBackoff {
			t.Errorf("after very many refusals: %s remaining", left)
		}
		time.Sleep(rememberedFor + 1)
		if _, isRefused := r.Get(refusedAttempt); isRefused {
			t.Error("a refusal that nobody reads is never forgotten")
		}
	})
}

// TestDeniedBackoff: a write that RBAC denies is retried soon at first, and not reported until that has lasted for a
// while.
func TestDeniedBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, began := NewRefusals(), time.Now()
		for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 120, 120} {
			r.Add(refusedAttempt, denied())
			refusal, _ := r.Get(refusedAttempt)
			isLate := time.Since(began) >= 15*time.Second
			if got := r.RetryAfter(refusedAttempt); got != want*time.Second || refusal.IsReported() != isLate {
				t.Errorf("denial %d: %s remaining, reported: %t", i+1, got, refusal.IsReported())
			}
			time.Sleep(want * time.Second)
		}
		other := Attempt{Owner: "other"}
		r.Add(other, apierrors.NewForbidden(corev1.Resource("services"), "x", errors.New("exceeded quota")))
		if refusal, _ := r.Get(other); !refusal.IsReported() || r.RetryAfter(other) != minRefusedBackoff {
			t.Errorf("a quota: %+v", refusal)
		}
		for range maxTimes {
			r.Add(other, forbidden)
		}
		r.Add(other, denied())
		if refusal, _ := r.Get(other); refusal.IsReported() || r.RetryAfter(other) != minDeniedBackoff {
			t.Errorf("a denial of what a quota refuses: %+v", refusal)
		}
	})
}
