package writer

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errRefusedByServer = errors.New("no")

// always never stops a batch.
func always() error { return nil }

// checkTokens checks that all tokens are back.
func checkTokens(t *testing.T, w *Writer) {
	t.Helper()
	if n := len(w.shared); n > 0 {
		t.Errorf("%d tokens are not back", n)
	}
}

// TestEachBeginsSlowly: a batch begins with one write, has one more for each that succeeds, and uses all the room
// then. Each write is made once.
func TestEachBeginsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, concurrency = 100, 4
		w := New(concurrency)
		var running, most atomic.Int64
		var done [n]atomic.Int64
		began := time.Now()
		begun, failed, err := w.Each(n, always, func(i int) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(time.Second)
			done[i].Add(1)
			return nil
		})
		// 1 write in the first second, 2 in the second one, 4 then.
		if took := time.Since(began); took != 27*time.Second || most.Load() != concurrency {
			t.Errorf("it took %s, with %d at a time", took, most.Load())
		}
		for i := range done {
			if got := done[i].Load(); got != 1 {
				t.Errorf("write %d was made %d times", i, got)
			}
		}
		if begun != n || failed != nil || err != nil {
			t.Errorf("%d begun, %v, %v", begun, failed, err)
		}
		checkTokens(t, w)
	})
}

// TestEachOfManyBatches: never more writes are under way than the concurrency, and one more for each batch.
func TestEachOfManyBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const concurrency, batches = 4, 3
		w := New(concurrency)
		var running, most atomic.Int64
		var all sync.WaitGroup
		for range batches {
			all.Go(func() {
				if begun, failed, err := w.Each(100, always, func(int) error {
					now := running.Add(1)
					for last := most.Load(); now > last && !most.CompareAndSwap(last, now); last = most.Load() {
					}
					defer running.Add(-1)
					time.Sleep(time.Second)
					return nil
				}); begun != 100 || failed != nil || err != nil {
					t.Errorf("%d begun, %v, %v", begun, failed, err)
				}
			})
		}
		all.Wait()
		if got := most.Load(); got > concurrency+batches || got < concurrency {
			t.Errorf("%d writes at a time, want %d at most", got, concurrency+batches)
		}
		checkTokens(t, w)
	})
}

// TestEachWhileOthersHang: where writes hang that have all the tokens, each other batch has one write at a time, and
// no batch stops.
func TestEachWhileOthersHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const concurrency = 4
		w, release := New(concurrency), make(chan struct{})
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				_, _, _ = w.Each(100, always, func(i int) error {
					if i > concurrency {
						<-release
					}
					return nil
				})
			})
		}
		synctest.Wait()
		if len(w.shared) != concurrency {
			t.Fatalf("%d of %d tokens are taken", len(w.shared), concurrency)
		}
		began := time.Now()
		var running atomic.Int64
		begun, failed, err := w.Each(10, always, func(int) error {
			if running.Add(1) > 1 {
				t.Error("two at a time")
			}
			defer running.Add(-1)
			time.Sleep(time.Second)
			return nil
		})
		if took := time.Since(began); took != 10*time.Second || begun != 10 || failed != nil || err != nil {
			t.Errorf("ten writes took %s: %d begun, %v, %v", took, begun, failed, err)
		}
		close(release)
		all.Wait()
		checkTokens(t, w)
	})
}

// TestEachTakesTokensAgain: a batch that had to do with one write at a time has more when those of others have ended.
func TestEachTakesTokensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(4)
		for range cap(w.shared) {
			w.take()
		}
		time.AfterFunc(10*time.Second+1, func() {
			for range cap(w.shared) {
				<-w.shared
			}
		})
		began := time.Now()
		_, _, _ = w.Each(30, always, func(int) error {
			time.Sleep(time.Second)
			return nil
		})
		if took := time.Since(began); took < 15*time.Second || took > 17*time.Second {
			t.Errorf("10 writes one at a time, and 20 of which 4 are at a time, took %s", took)
		}
		checkTokens(t, w)
	})
}

// TestEachRefused: where all is refused little is tried; where some is, the others are made; and which failed is
// reported.
func TestEachRefused(t *testing.T) {
	for name, c := range map[string]struct {
		n            int
		refused      func(i int) bool
		done, failed int
		want         error
	}{
		"nothing to write":    {0, nil, 0, 0, nil},
		"nothing":             {100, func(int) bool { return false }, 100, 0, nil},
		"everything":          {100, func(int) bool { return true }, 0, maxRefusals, errGivenUp},
		"everything of few":   {maxRefusals, func(int) bool { return true }, 0, maxRefusals, nil},
		"every other one":     {100, func(i int) bool { return i%2 == 0 }, 50, 50, nil},
		"almost everything":   {100, func(i int) bool { return i%maxRefusals != 0 }, 10, 90, nil},
		"all from the middle": {100, func(i int) bool { return i >= 50 }, 50, maxRefusals, errGivenUp},
	} {
		t.Run(name, func(t *testing.T) {
			var done int
			w := New(1)
			begun, failed, err := w.Each(c.n, always, func(i int) error {
				if c.refused(i) {
					return errRefusedByServer
				}
				done++
				return nil
			})
			if done != c.done || len(failed) != c.failed || begun != c.done+c.failed || !errors.Is(err, c.want) {
				t.Errorf("%d of %d done, %d failed, %v; want %d, %d, %v", done, begun, len(failed), err, c.done,
					c.failed, c.want)
			}
			for _, f := range failed {
				if !c.refused(f.i) || f.err != errRefusedByServer {
					t.Errorf("failed: %v", f)
				}
			}
			checkTokens(t, w)
		})
	}
}

// TestEachIsRefusedSlowly: while nothing has succeeded there is one write at a time; and when a batch that had all the
// room is refused, few writes are lost.
func TestEachIsRefusedSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const concurrency = 8
		for from, most := range map[int]int{0: maxRefusals, 100: maxRefusals + concurrency/2} {
			w := New(concurrency)
			var running atomic.Int64
			begun, failed, err := w.Each(1000, always, func(i int) error {
				defer running.Add(-1)
				if n := running.Add(1); from == 0 && n > 1 {
					t.Errorf("%d at a time", n)
				}
				if time.Sleep(time.Second); i >= from {
					return errRefusedByServer
				}
				return nil
			})
			if !errors.Is(err, errGivenUp) || len(failed) > most || begun != from+len(failed) {
				t.Errorf("refused from %d on: %d of %d failed, %v", from, len(failed), begun, err)
			}
			checkTokens(t, w)
		}
	})
}

// TestEachStops: when no other write may begin, what was begun is finished, the reason is returned, and others can
// write.
func TestEachStops(t *testing.T) {
	errStop := errors.New("stop")
	for _, after := range []int{0, 1, 5} {
		synctest.Test(t, func(t *testing.T) {
			w := New(4)
			var begun, ended atomic.Int64
			write := func(int) error {
				begun.Add(1)
				time.Sleep(time.Second)
				ended.Add(1)
				return nil
			}
			calls := 0
			n, failed, err := w.Each(100, func() error {
				if calls++; calls > after {
					return errStop
				}
				return nil
			}, write)
			if !errors.Is(err, errStop) || n != after || int(begun.Load()) != after || begun.Load() != ended.Load() ||
				failed != nil || calls != after+1 {
				t.Errorf("%v after %d calls: %d, %d begun, %d ended, %v", err, calls, n, begun.Load(), ended.Load(),
					failed)
			}
			checkTokens(t, w)
			if n, _, err := w.Each(4, always, write); n != 4 || err != nil {
				t.Errorf("afterwards: %d, %v", n, err)
			}
		})
	}
}

// TestEachPanic: a panic over one item is an error of that item, and says where it was.
func TestEachPanic(t *testing.T) {
	var done atomic.Int64
	w := New(2)
	begun, failed, err := w.Each(3, always, func(i int) error {
		if i == 1 {
			panic("no such thing")
		}
		done.Add(1)
		return nil
	})
	if err != nil || begun != 3 || done.Load() != 2 || len(failed) != 1 || failed[0].i != 1 ||
		!strings.Contains(failed[0].err.Error(), "no such thing") ||
		!strings.Contains(failed[0].err.Error(), "writer_test.go") {
		t.Errorf("%d of %d done, %v, %v", done.Load(), begun, failed, err)
	}
	checkTokens(t, w)
}

// TestEachPanicInMayBegin: a panic, which the worker loop recovers from, gives the tokens back, and leaves no write
// behind.
func TestEachPanicInMayBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(4)
		var ended atomic.Int64
		for range 4 {
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				calls := 0
				_, _, _ = w.Each(10, func() error {
					if calls++; calls == 5 {
						panic("a test")
					}
					return nil
				}, func(int) error {
					time.Sleep(time.Second)
					ended.Add(1)
					return nil
				})
			}()
		}
		if got := ended.Load(); got != 16 {
			t.Errorf("%d writes have ended, want 16", got)
		}
		checkTokens(t, w)
	})
}
