package writer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/reconcile"
)

var refusedAttempt = Attempt{Owner: "uid-demo", Generation: 1, Name: "demo-a"}

// TestRefusalsBackoff: a write is retried after 10 s, then after twice as long each time, up to 2 min. The last refusal
// is remembered until then, and longer.
func TestRefusalsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRefusals()
		for i, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second,
			2 * time.Minute, 2 * time.Minute} {
			err := errors.New("no")
			r.Add(refusedAttempt, err)
			refusal, isRefused := r.Get(refusedAttempt)
			if !isRefused || refusal.Err != err || refusal.Times != i+1 || r.RetryAfter(refusedAttempt) != want ||
				!refusal.RetryAt.Equal(time.Now().Add(want)) {
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
	})
}

// TestRefusalsPutOff: an attempt that is put off with others waits as long as a refused one, but is marked as untried.
// One that was refused keeps its own error.
func TestRefusalsPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, own, others := NewRefusals(), errors.New("its own"), errors.New("of others")
		other := refusedAttempt
		other.Name = "another"
		for _, step := range []struct {
			isTried bool
			want    error
			left    time.Duration
		}{{false, others, 10 * time.Second}, {false, others, 20 * time.Second}, {true, own, 40 * time.Second},
			{false, own, 40 * time.Second}, {false, own, 80 * time.Second}} {
			if step.isTried {
				r.Add(refusedAttempt, own)
			} else {
				r.Add(other, others)
				r.PutOff(refusedAttempt, other)
			}
			if got, _ := r.Get(refusedAttempt); got.Err != step.want || got.Untried != (step.want == others) ||
				r.RetryAfter(refusedAttempt) != step.left {
				t.Errorf("%+v, %s remaining; want %+v", got, r.RetryAfter(refusedAttempt), step)
			}
			time.Sleep(step.left)
		}
	})
}

// TestRefusalsOfOthers: a refusal belongs to a name, an owner, and a generation of the owner, until it is removed.
func TestRefusalsOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*Attempt)
		want bool
	}{
		"the same":           {func(*Attempt) {}, true},
		"another generation": {func(a *Attempt) { a.Generation++ }, false},
		"another owner":      {func(a *Attempt) { a.Owner = "another" }, false},
		"another name":       {func(a *Attempt) { a.Name = "demo-b" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, other := NewRefusals(), refusedAttempt
			r.Add(refusedAttempt, errors.New("no"))
			c.edit(&other)
			if _, got := r.Get(other); got != c.want || (r.RetryAfter(other) > 0) != c.want {
				t.Errorf("refused %t with %s remaining, want %t", got, r.RetryAfter(other), c.want)
			}
			if r.Remove(other); (r.RetryAfter(refusedAttempt) > 0) == c.want {
				t.Errorf("after Remove %s remaining", r.RetryAfter(refusedAttempt))
			}
		})
	}
}

// TestRefusalsBeginAgain: after a success the backoff begins with the shortest one.
func TestRefusalsBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRefusals()
		r.Add(refusedAttempt, errors.New("no"))
		r.Add(refusedAttempt, errors.New("no"))
		r.Remove(refusedAttempt)
		r.Remove(refusedAttempt) // There is nothing to remove.
		if refusal, isRefused := r.Get(refusedAttempt); isRefused || refusal != (Refusal{}) ||
			r.RetryAfter(refusedAttempt) != 0 {
			t.Errorf("removed: %t, %+v, %s remaining", isRefused, refusal, r.RetryAfter(refusedAttempt))
		}
		r.Add(refusedAttempt, errors.New("no"))
		if left := r.RetryAfter(refusedAttempt); left != minRefusedBackoff {
			t.Errorf("%s remaining, want %s", left, minRefusedBackoff)
		}
		time.Sleep(rememberedFor + 1)
		if _, isRefused := r.Get(refusedAttempt); isRefused {
			t.Error("a refusal that nobody reads is never forgotten")
		}
	})
}

// TestRefusalsForget: nothing is remembered about an owner that is gone.
func TestRefusalsForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRefusals()
		for _, owner := range []types.UID{"gone", "other"} {
			for _, name := range []string{"a", "b"} {
				r.Add(Attempt{Owner: owner, Generation: 1, Name: name}, errors.New("no"))
			}
		}
		r.Forget("gone")
		for owner, want := range map[types.UID]bool{"gone": false, "other": true} {
			if _, is := r.Get(Attempt{Owner: owner, Generation: 1, Name: "a"}); is != want {
				t.Errorf("%s: %t, want %t", owner, is, want)
			}
		}
	})
}
