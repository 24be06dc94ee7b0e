package writer

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errRefusedByServer = errors.New("no")

// always never stops a batch.
func always() error { return nil }

// TestConcurrency: a batch that is alone has all the room, several have no more than that together, and a batch begins
// with one write.
func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const concurrency = 4
		w := New(concurrency)
		var running, most atomic.Int64
		batch := func() {
			var done [100]atomic.Bool
			if failed, err := w.Each(t.Context(), "a", len(done), always, func(i int) error {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				time.Sleep(time.Second)
				if done[i].Swap(true) {
					t.Errorf("%d is written twice", i)
				}
				return nil
			}); err != nil || failed != nil {
				t.Error(failed, err)
			}
			for i := range done {
				if !done[i].Load() {
					t.Errorf("%d is not written", i)
				}
			}
		}
		began := time.Now()
		batch()
		// 1 write in the first second, 2 in the second one, 4 then.
		if got := time.Since(began); got != 27*time.Second || most.Load() != concurrency {
			t.Errorf("100 writes of a second took %s, %d at a time", got, most.Load())
		}
		for range 3 {
			go batch()
		}
		time.Sleep(2 * time.Minute)
		if most.Load() != concurrency {
			t.Errorf("%d writes at a time, want %d", most.Load(), concurrency)
		}
	})
}

// TestFairness: a short batch is not held up by long ones, nor any batch by many of another tenant.
func TestFairness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		w := New(2)
		write := func(int) error {
			time.Sleep(time.Second)
			return nil
		}
		tenants := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.tenants)
		}
		for range 10 {
			go func() { _, _ = w.Each(ctx, "a", 1000, always, write) }()
		}
		time.Sleep(time.Minute)
		began := time.Now()
		if _, err := w.Each(ctx, "a", 1, always, write); err != nil {
			t.Error(err)
		}
		// One write of each of the others, two at a time, and its own.
		if got := time.Since(began); got > 7*time.Second {
			t.Errorf("one write took %s", got)
		}
		began = time.Now()
		if _, err := w.Each(ctx, "b", 10, always, write); err != nil {
			t.Error(err)
		}
		// Of each of ten writes one of the other tenant comes first.
		if got := time.Since(began); got > 20*time.Second || tenants() != 1 {
			t.Errorf("ten writes of another tenant took %s; %d tenants wait", got, tenants())
		}
		stop()
		time.Sleep(time.Minute) // Until what was under way has ended.
		if n := tenants(); n != 0 {
			t.Errorf("%d tenants wait in the end", n)
		}
	})
}

// TestHangingWrites: a tenant whose writes all hang, as behind a webhook, does not hold up another one.
func TestHangingWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ended := New(4), make(chan struct{})
		for range 10 {
			go func() {
				_, _ = w.Each(t.Context(), "a", 1, always, func(int) error {
					<-ended
					return nil
				})
			}()
		}
		synctest.Wait()
		began := time.Now()
		if _, err := w.Each(t.Context(), "b", 10, always, func(int) error {
			time.Sleep(time.Second)
			return nil
		}); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("ten writes of another tenant took %s", took)
		}
		close(ended)
		synctest.Wait()
		if len(w.tenants) != 0 {
			t.Errorf("%d tenants in the end", len(w.tenants))
		}
	})
}

// TestRefusals: where all is refused little is tried, one at a time; where some is, the others are made.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		refused      func(i int) bool
		done, failed int
		want         error
	}{
		"nothing":             {func(int) bool { return false }, 100, 0, nil},
		"everything":          {func(int) bool { return true }, 0, maxRefusals, ErrRefused},
		"every other one":     {func(i int) bool { return i%2 == 0 }, 50, 50, nil},
		"almost everything":   {func(i int) bool { return i%maxRefusals != 0 }, 10, 90, nil},
		"all from the middle": {func(i int) bool { return i >= 50 }, 50, maxRefusals, ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			var done int
			failed, err := New(1).Each(t.Context(), "a", 100, always, func(i int) error {
				if c.refused(i) {
					return errRefusedByServer
				}
				done++
				return nil
			})
			if done != c.done || len(failed) != c.failed || !errors.Is(err, c.want) {
				t.Errorf("%d done, %d failed, %v; want %d, %d, %v", done, len(failed), err, c.done, c.failed, c.want)
			}
		})
	}
}

// TestBeginsSlowly: while nothing has succeeded, there is one write at a time, so that few are lost.
func TestBeginsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		if failed, err := New(16).Each(t.Context(), "a", 100, always, func(int) error {
			defer running.Add(-1)
			if running.Add(1) > 1 {
				t.Error("two at a time")
			}
			time.Sleep(time.Second)
			return errRefusedByServer
		}); !errors.Is(err, ErrRefused) || len(failed) != maxRefusals {
			t.Error(failed, err)
		}
	})
}

// TestRefusalsFromTheMiddle: when a batch is refused that had all the room, few writes are lost.
func TestRefusalsFromTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const concurrency = 8
		failed, err := New(concurrency).Each(t.Context(), "a", 1000, always, func(i int) error {
			if time.Sleep(time.Second); i >= 100 {
				return errRefusedByServer
			}
			return nil
		})
		if !errors.Is(err, ErrRefused) || len(failed) > maxRefusals+concurrency/2 {
			t.Errorf("%d failed, %v", len(failed), err)
		}
	})
}

// TestStops: what has begun is finished, nothing else is begun, and the reason is told. Afterwards others can write.
func TestStops(t *testing.T) {
	errStop := errors.New("stop")
	for name, c := range map[string]struct {
		next func(cancel func()) error // called after 5 writes
		want error
	}{
		"next":        {func(func()) error { return errStop }, errStop},
		"the context": {func(cancel func()) error { cancel(); return nil }, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w := New(2)
				var begun, ended atomic.Int64
				write := func(int) error {
					begun.Add(1)
					time.Sleep(time.Second)
					ended.Add(1)
					return nil
				}
				_, err := w.Each(ctx, "a", 100, func() error {
					if ended.Load() >= 5 {
						return c.next(cancel)
					}
					return nil
				}, write)
				if !errors.Is(err, c.want) || begun.Load() > 9 || begun.Load() != ended.Load() {
					t.Errorf("%v, %d begun, %d ended", err, begun.Load(), ended.Load())
				}
				if _, err := w.Each(t.Context(), "a", 4, always, write); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			})
		})
	}
}

// TestPanic: a panic over one item is an error of that item, and says where it was.
func TestPanic(t *testing.T) {
	var done atomic.Int64
	failed, err := New(2).Each(t.Context(), "a", 3, always, func(i int) error {
		if i == 1 {
			panic("no such thing")
		}
		done.Add(1)
		return nil
	})
	if err != nil || done.Load() != 2 || len(failed) != 1 || !strings.Contains(failed[0].Error(), "no such thing") ||
		!strings.Contains(failed[0].Error(), "writer_test.go") {
		t.Errorf("%d done, %v, %v", done.Load(), failed, err)
	}
}

// TestPanicInNext: a panic, which the worker loop recovers from, gives the turn back, and leaves no write behind.
func TestPanicInNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, written := New(4), 0
		write := func(int) error {
			time.Sleep(time.Second)
			written++
			return nil
		}
		for range 4 {
			func() {
				defer func() { _ = recover() }()
				calls := 0
				_, _ = w.Each(t.Context(), "a", 2, func() error {
					if calls++; calls == 2 {
						panic("a test")
					}
					return nil
				}, write)
			}()
		}
		if written != 4 {
			t.Errorf("%d writes have ended, want 4", written)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := w.Each(ctx, "a", 1, func() error { return nil }, write); err != nil {
			t.Errorf("after that: %v", err)
		}
	})
}
