package reconcile

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

var attempt = Attempt{Owner: "uid-demo", Generation: 1, Name: "demo-a"}

// TestRefusalsBackoff: a write is tried again after 10 s, and after twice as long each time, up to 2 min; and the last
// refusal is known until then, and longer.
func TestRefusalsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRefusals(clock.RealClock{})
		for i, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second,
			2 * time.Minute, 2 * time.Minute} {
			err := errors.New("no")
			r.Add(attempt, err)
			refusal, isRefused := r.Get(attempt)
			if !isRefused || refusal.Err != err || refusal.Times != i+1 || r.Left(attempt) != want ||
				!refusal.RetryAt.Equal(time.Now().Add(want)) {
				t.Errorf("refusal %d: %t, %+v, %s left; want %s", i+1, isRefused, refusal, r.Left(attempt), want)
			}
			time.Sleep(want)
			if _, isRefused = r.Get(attempt); !isRefused || r.Left(attempt) != 0 {
				t.Errorf("refusal %d, when it is due: refused %t, %s left", i+1, isRefused, r.Left(attempt))
			}
		}
		for range 1000 {
			r.Add(attempt, errors.New("no"))
		}
		if left := r.Left(attempt); left != MaxBackoff {
			t.Errorf("after very many refusals %s", left)
		}
	})
}

// TestRefusalsOfWhatIsLikeOthers: an attempt that is put off with others waits as long as if it had been refused itself,
// which it is known not to have been. One that was refused keeps its own error.
func TestRefusalsOfWhatIsLikeOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, first, other := NewRefusals(clock.RealClock{}), errors.New("first"), errors.New("other")
		for _, step := range []struct {
			add       func(Attempt, error)
			err, want error
			untried   bool
			left      time.Duration
		}{
			{r.AddLike, first, first, true, 10 * time.Second}, {r.AddLike, other, first, true, 20 * time.Second},
			{r.Add, other, other, false, 40 * time.Second}, {r.AddLike, first, other, false, 80 * time.Second},
		} {
			step.add(attempt, step.err)
			if got, _ := r.Get(attempt); got.Err != step.want || got.Untried != step.untried ||
				r.Left(attempt) != step.left {
				t.Errorf("%+v, %s left; want %+v", got, r.Left(attempt), step)
			}
			time.Sleep(step.left)
		}
	})
}

// TestRefusalsTogether: what is due within a second is tried now, so that writes that were refused one after another
// are tried in one sync.
func TestRefusalsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRefusals(clock.RealClock{})
		r.Add(attempt, errors.New("no"))
		time.Sleep(minRefusedBackoff - together - 1)
		if left := r.Left(attempt); left != together+1 {
			t.Errorf("more than a second before: %s left", left)
		}
		time.Sleep(time.Nanosecond)
		if left := r.Left(attempt); left != 0 {
			t.Errorf("a second before: %s left", left)
		}
	})
}

// TestRefusalsOfOthers: a refusal is one of a name, an owner, and a generation of that, until it is removed.
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
			r, other := NewRefusals(clock.RealClock{}), attempt
			r.Add(attempt, errors.New("no"))
			c.edit(&other)
			if _, got := r.Get(other); got != c.want || (r.Left(other) > 0) != c.want {
				t.Errorf("refused %t with %s left, want %t", got, r.Left(other), c.want)
			}
			if r.Remove(other); (r.Left(attempt) > 0) == c.want {
				t.Errorf("after Remove %s left", r.Left(attempt))
			}
		})
	}
}

// TestRefusalsBeginAgain: after a success the backoff begins with the shortest one.
func TestRefusalsBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRefusals(clock.RealClock{})
		r.Add(attempt, errors.New("no"))
		r.Add(attempt, errors.New("no"))
		r.Remove(attempt)
		r.Remove(attempt) // Nothing is left to remove.
		if refusal, isRefused := r.Get(attempt); isRefused || refusal != (Refusal{}) || r.Left(attempt) != 0 {
			t.Errorf("removed: %t, %+v, %s left", isRefused, refusal, r.Left(attempt))
		}
		r.Add(attempt, errors.New("no"))
		if left := r.Left(attempt); left != minRefusedBackoff {
			t.Errorf("%s left, want %s", left, minRefusedBackoff)
		}
		time.Sleep(rememberedFor*minRefusedBackoff + 1)
		if _, isRefused := r.Get(attempt); isRefused {
			t.Error("a refusal that nobody asks about is never forgotten")
		}
	})
}

// TestRefusalsForget: nothing is remembered about an owner that is gone.
func TestRefusalsForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRefusals(clock.RealClock{})
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
