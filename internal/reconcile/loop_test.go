package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
)

// start runs a loop in a bubble of fake time until the test ends. It also returns a function that returns the log.
func start(t *testing.T, workers int, f Func) (loop *Loop, logs func() string) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
	loop = New("test", clock.RealClock{}, f)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		loop.Run(ctx, workers, none)
	}()
	t.Cleanup(func() {
		stop()
		<-stopped
	})
	synctest.Wait() // Now it runs.
	return loop, func() string { return logger.GetSink().(ktesting.Underlier).GetBuffer().String() }
}

func none(func(types.NamespacedName) bool) {}

// key returns a key in the namespace that the name has before its dash.
func key(name string) types.NamespacedName {
	namespace, _, _ := strings.Cut(name, "-")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// TestLoopBeforeRun: a standby queues nothing. It starts with all keys when it becomes the leader.
func TestLoopBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		var calls []string
		loop := New("test", clock.RealClock{}, func(_ context.Context, key types.NamespacedName) (time.Duration, error) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, key.Name)
			return 0, nil
		})
		for i := range 1000 {
			loop.Add(key(fmt.Sprint(i)))
			loop.AddAfter(key(fmt.Sprint(i)), time.Second)
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			loop.Run(ctx, 1, func(yield func(types.NamespacedName) bool) {
				loop.Add(key("added while all are listed"))
				yield(key("all"))
			})
		}()
		time.Sleep(time.Minute)
		stop()
		<-stopped
		slices.Sort(calls) // There are two workers: one is for the other namespaces.
		if want := []string{"added while all are listed", "all"}; !slices.Equal(calls, want) {
			t.Errorf("reconciled %v, want %v", calls, want)
		}
	})
}

// TestLoopRetries: a key that fails is retried with a backoff that stays short: nothing says when an outage of the API
// server is over. It is an error in the log once that lasts, but not each time.
func TestLoopRetries(t *testing.T) {
	for name, c := range map[string]struct {
		failures int64
		calls    int64 // within an hour
		errors   int   // in the log
	}{
		"success":     {0, 1, 0},
		"passes soon": {5, 6, 0},
		"error":       {1000, 730, 7}, // 5 ms doubled up to 5 s: 11 in the first 5 s, then 1 every 5 s
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				loop, logs := start(t, 2, func(context.Context, types.NamespacedName) (time.Duration, error) {
					if calls.Add(1) <= c.failures {
						return 0, errors.New("x")
					}
					return 0, nil
				})
				loop.Add(key("key"))
				time.Sleep(time.Hour + time.Second) // fake time
				synctest.Wait()
				if got := calls.Load(); got < c.calls || got > c.calls+2*c.failures/1000 {
					t.Errorf("%d calls within an hour, want %d", got, c.calls)
				}
				if log := logs(); strings.Count(log, "err=") != c.errors {
					t.Errorf("%d errors in the log, want %d: %s", strings.Count(log, "err="), c.errors, log)
				}
			})
		})
	}
}

// TestLoopWaits: to wait for a cache is no failure. However many events come meanwhile, a key is synced as soon as the
// wait is over; and it does not shorten the backoff of a key that fails.
func TestLoopWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var synced, failures atomic.Int64
		loop, logs := start(t, 1, func(context.Context, types.NamespacedName) (time.Duration, error) {
			switch {
			case time.Since(began) < 2*time.Second:
				return 100 * time.Millisecond, nil
			case synced.CompareAndSwap(0, int64(time.Since(began))):
				return 0, nil
			case failures.Add(1)%2 == 0:
				return time.Millisecond, nil
			}
			return 0, errors.New("x")
		})
		for range 15 {
			loop.Add(key("key"))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := time.Duration(synced.Load()); got == 0 || got > 2200*time.Millisecond {
			t.Errorf("synced after %s, want soon after 2s", got)
		}
		if log := logs(); strings.Contains(log, "err=") {
			t.Errorf("waiting is an error in the log: %s", log)
		}
		loop.Add(key("key"))
		time.Sleep(time.Hour)
		if got := failures.Load(); got > 1500 {
			t.Errorf("%d calls within an hour: waits end the backoff", got)
		}
	})
}

// TestLoopForgets: a key that has not just failed begins again with the shortest backoff.
func TestLoopForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		var over atomic.Bool
		loop, _ := start(t, 1, func(context.Context, types.NamespacedName) (time.Duration, error) {
			calls.Add(1)
			if over.Swap(false) {
				return 0, nil
			}
			return 0, errors.New("x")
		})
		loop.Add(key("key"))
		time.Sleep(10 * time.Minute)
		over.Store(true)
		loop.Add(key("key"))
		synctest.Wait()
		calls.Store(0)
		loop.Add(key("key"))
		time.Sleep(time.Second)
		synctest.Wait()
		if got := calls.Load(); got < 5 {
			t.Errorf("%d calls in the first second of new failures, want several", got)
		}
	})
}

// TestLoopRecovers: a panic over one key is an error of that key, and the others continue.
func TestLoopRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var good, bad atomic.Int64
		loop, logs := start(t, 1, func(_ context.Context, key types.NamespacedName) (time.Duration, error) {
			if key.Name == "bad" {
				bad.Add(1)
				panic("no such thing")
			}
			good.Add(1)
			return 0, nil
		})
		loop.Add(key("bad"))
		loop.Add(key("good"))
		time.Sleep(MaxBackoff + time.Second)
		synctest.Wait()
		if log := logs(); !strings.Contains(log, "no such thing") || !strings.Contains(log, "loop_test.go") {
			t.Errorf("the log lacks the panic and where it was: %s", log)
		}
		if good.Load() != 1 || bad.Load() != 2 {
			t.Errorf("%d good and %d bad calls, want 1 good, and the bad one tried again once", good.Load(), bad.Load())
		}
	})
}

// TestLoopStops: syncs in progress are finished, waiting keys are not started, and then Run returns.
func TestLoopStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var begun, finished atomic.Int64
		loop := New("test", clock.RealClock{}, func(context.Context, types.NamespacedName) (time.Duration, error) {
			begun.Add(1)
			time.Sleep(3 * time.Second)
			finished.Add(1)
			return 0, nil
		})
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			loop.Run(ctx, 2, slices.Values([]types.NamespacedName{key("a-1"), key("a-2"), key("a-3"), key("a-4")}))
		}()
		time.Sleep(time.Second)
		stop()
		<-stopped
		if begun.Load() != 2 || finished.Load() != 2 {
			t.Errorf("%d begun and %d finished, want the 2 that were in progress", begun.Load(), finished.Load())
		}
	})
}

// TestTenantsTakeTurns: a tenant waits for at most one key of another tenant that has many. Each tenant has its keys in
// order.
func TestTenantsTakeTurns(t *testing.T) {
	q := newFairQueue()
	q.share = 100
	var got []string
	pop := func() { got = append(got, q.Pop().Name) }
	for _, name := range []string{"a-1", "a-2", "a-3", "b-1", "a-4", "c-1"} {
		q.Push(key(name))
	}
	pop()
	q.Push(key("b-2"))
	for q.Len() > 0 {
		pop()
	}
	q.Push(key("a-5"))
	pop()
	for _, name := range got {
		q.done(key(name))
	}
	want := []string{"a-1", "b-1", "c-1", "a-2", "b-2", "a-3", "a-4", "a-5"}
	if !slices.Equal(got, want) || len(q.waiting)+len(q.turns)+len(q.running) > 0 {
		t.Errorf("the order is %v, want %v; left: %v waiting, %v running", got, want, q.waiting, q.running)
	}
}

// TestTenantsLeaveWorkers: a tenant whose keys take long does not make another one wait until one of them ends.
func TestTenantsLeaveWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan time.Time, 1)
		var calls atomic.Int64
		loop, _ := start(t, 4, func(_ context.Context, key types.NamespacedName) (time.Duration, error) {
			if key.Name == "b-1" {
				begun <- time.Now()
				return 0, nil
			}
			calls.Add(1)
			time.Sleep(time.Minute)
			return 0, nil
		})
		for i := range 20 {
			loop.Add(key(fmt.Sprintf("a-%d", i)))
		}
		time.Sleep(time.Second)
		added := time.Now()
		loop.Add(key("b-1"))
		if waited := (<-begun).Sub(added); waited > time.Second {
			t.Errorf("waited %s", waited)
		}
		time.Sleep(time.Hour)
		if got := calls.Load(); got != 20 {
			t.Errorf("%d calls of the other tenant, want 20", got)
		}
	})
}
