package writer

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errRefusedByServer = errors.New("no")

// always never stops a batch.
func always() bool { return true }

// each makes a batch that nothing stops. It returns how many writes were started, and which of them failed.
func (p Pool) each(n int, write func(i int) error) (begun int, failed map[int]error) {
	failed = map[int]error{}
	begun = p.Each(n, true, always, write, func(i int, err error) bool {
		if err != nil {
			failed[i] = err
		}
		return err == nil
	})
	return begun, failed
}

// checkTokens checks that all tokens were returned.
func checkTokens(t *testing.T, p Pool) {
	t.Helper()
	if n := len(p); n > 0 {
		t.Errorf("%d tokens were not returned", n)
	}
}

// TestEachBegins: a slow start makes one write alone. Once it has succeeded, or without a slow start, there are as many
// as the concurrency at a time. Each write is made once.
func TestEachBegins(t *testing.T) {
	for isSlow, want := range map[bool]time.Duration{true: 26 * time.Second, false: 25 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			const n, concurrency = 100, 4
			w := make(Pool, concurrency)
			var running, most atomic.Int64
			var done [n]atomic.Int64
			began := time.Now()
			begun := w.Each(n, isSlow, always, func(i int) error {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				time.Sleep(time.Second)
				done[i].Add(1)
				return nil
			}, func(int, error) bool { return true })
			if took := time.Since(began); took != want || most.Load() != concurrency {
				t.Errorf("it took %s, with %d at a time", took, most.Load())
			}
			for i := range done {
				if got := done[i].Load(); got != 1 {
					t.Errorf("write %d was made %d times", i, got)
				}
			}
			if begun != n {
				t.Errorf("%d begun", begun)
			}
			checkTokens(t, w)
		})
	}
}

// TestEachWhileOthersHang: while writes that hang hold all the tokens, each other batch has one write at a time, and no
// batch stops.
func TestEachWhileOthersHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const concurrency = 4
		w, release := make(Pool, concurrency), make(chan struct{})
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				w.each(100, func(i int) error {
					if i > concurrency {
						<-release
					}
					return nil
				})
			})
		}
		synctest.Wait()
		if len(w) != concurrency {
			t.Fatalf("%d of %d tokens are taken", len(w), concurrency)
		}
		began := time.Now()
		var running atomic.Int64
		begun, failed := w.each(10, func(int) error {
			if running.Add(1) > 1 {
				t.Error("two writes at a time")
			}
			defer running.Add(-1)
			time.Sleep(time.Second)
			return nil
		})
		if took := time.Since(began); took != 10*time.Second || begun != 10 || len(failed) > 0 {
			t.Errorf("ten writes took %s: %d begun, %v", took, begun, failed)
		}
		close(release)
		all.Wait()
		checkTokens(t, w)
	})
}

// TestEachIsRefusedSlowly: until something succeeds, there is one write at a time. If a batch at full concurrency is
// refused, few more writes are started.
func TestEachIsRefusedSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const concurrency = 8
		for from, most := range map[int]int{0: maxFailures, 100: maxFailures + concurrency - 1} {
			w := make(Pool, concurrency)
			var running atomic.Int64
			inARow := 0
			begun := w.Each(1000, true, func() bool { return inARow < maxFailures }, func(i int) error {
				defer running.Add(-1)
				if n := running.Add(1); from == 0 && n > 1 {
					t.Errorf("%d writes at a time", n)
				}
				if time.Sleep(time.Second); i >= from {
					return errRefusedByServer
				}
				return nil
			}, func(_ int, err error) bool {
				if inARow++; err == nil {
					inARow = 0
				}
				return err == nil
			})
			if failed := begun - from; failed < maxFailures || failed > most {
				t.Errorf("refused from %d on: %d of %d failed", from, failed, begun)
			}
			checkTokens(t, w)
		}
	})
}

// TestEachPanics: a panic over the outcome of a write, from which the worker loop recovers, returns the tokens, and
// leaves no write running.
func TestEachPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := make(Pool, 4)
		var running atomic.Int64
		defer func() {
			if recover() == nil || running.Load() > 0 {
				t.Errorf("no panic, or %d writes are running", running.Load())
			}
			checkTokens(t, w)
		}()
		w.Each(10, false, always, func(i int) error {
			defer running.Add(-1)
			running.Add(1)
			time.Sleep(time.Duration(i) * time.Second)
			return nil
		}, func(int, error) bool { panic("a test") })
	})
}
