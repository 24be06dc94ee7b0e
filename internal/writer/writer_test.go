package writer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errRefusedByServer = errors.New("no")

// always never stops a batch.
func always(int) error { return nil }

func items(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// TestWriteConcurrency: a batch that is alone has all the room, several have no more than that together, and a batch
// begins with one write.
func TestWriteConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const concurrency = 4
		w := New(concurrency)
		var running, most atomic.Int64
		batch := func() {
			result := Write(t.Context(), w, Batch[int, int]{Items: items(100), Next: always,
				Write: func(_ context.Context, i int) (int, error) {
					most.Store(max(most.Load(), running.Add(1)))
					defer running.Add(-1)
					time.Sleep(time.Second)
					return i, nil
				}})
			slices.Sort(result.Done)
			if !slices.Equal(result.Done, items(100)) || len(result.Failed) > 0 || result.Stopped != nil {
				t.Errorf("%+v, want all done", result)
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
		synctest.Wait()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if most.Load() != concurrency {
			t.Errorf("%d writes at a time, want %d", most.Load(), concurrency)
		}
	})
}

// TestWriteIsFair: a short batch is not held up by long ones.
func TestWriteIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		w := New(2)
		write := func(_ context.Context, i int) (int, error) {
			time.Sleep(time.Second)
			return i, nil
		}
		for range 10 {
			go Write(ctx, w, Batch[int, int]{Items: items(1000), Write: write, Next: always})
		}
		time.Sleep(time.Minute)
		began := time.Now()
		Write(ctx, w, Batch[int, int]{Items: items(1), Write: write, Next: always})
		// One write of each of the others, two at a time, and its own.
		if got := time.Since(began); got > 7*time.Second {
			t.Errorf("one write took %s", got)
		}
		stop()
		time.Sleep(time.Minute) // Until what was under way has ended.
	})
}

// TestWriteRefused: where all is refused little is tried, one at a time; where some is, the others are made.
func TestWriteRefused(t *testing.T) {
	for name, c := range map[string]struct {
		refused      func(i int) bool
		done, failed int
	}{
		"nothing":             {func(int) bool { return false }, 100, 0},
		"everything":          {func(int) bool { return true }, 0, maxRefusals},
		"every other one":     {func(i int) bool { return i%2 == 0 }, 50, 50},
		"almost everything":   {func(i int) bool { return i%maxRefusals != 0 }, 10, 90},
		"all from the middle": {func(i int) bool { return i >= 50 }, 50, maxRefusals},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				result := Write(t.Context(), New(1), Batch[int, int]{Items: items(100), Next: always,
					Write: func(_ context.Context, i int) (int, error) {
						if c.refused(i) {
							return 0, errRefusedByServer
						}
						return i, nil
					}})
				if len(result.Done) != c.done || len(result.Failed) != c.failed || result.Stopped != nil {
					t.Errorf("%d done, %d failed, stopped by %v; want %d and "+
						"%d", len(result.Done), len(result.Failed), result.Stopped, c.done, c.failed)
				}
			})
		})
	}
}

// TestWriteBeginsSlowly: while nothing has succeeded, there is one write at a time, so that few are lost.
func TestWriteBeginsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		Write(t.Context(), New(16), Batch[int, int]{Items: items(100), Next: always,
			Write: func(context.Context, int) (int, error) {
				defer running.Add(-1)
				if running.Add(1) > 1 {
					t.Error("two at a time")
				}
				time.Sleep(time.Second)
				return 0, errRefusedByServer
			}})
	})
}

// TestWriteStops: what has begun is finished, nothing else is begun, and the reason is told. Afterwards others can
// write.
func TestWriteStops(t *testing.T) {
	errStop := errors.New("stop")
	for name, c := range map[string]struct {
		stop func(cancel func()) func(done int) error
		want error
	}{
		"Next": {func(func()) func(int) error {
			return func(done int) error {
				if done >= 5 {
					return errStop
				}
				return nil
			}
		}, errStop},
		"the context": {func(cancel func()) func(int) error {
			return func(done int) error {
				if done == 5 {
					cancel()
				}
				return nil
			}
		}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w := New(2)
				var begun, ended atomic.Int64
				write := func(_ context.Context, i int) (int, error) {
					begun.Add(1)
					time.Sleep(time.Second)
					ended.Add(1)
					return i, nil
				}
				result := Write(ctx, w, Batch[int, int]{Items: items(100), Write: write, Next: c.stop(cancel)})
				if !errors.Is(result.Stopped, c.want) || begun.Load() > 9 || begun.Load() != ended.Load() ||
					int64(len(result.Done)) != ended.Load() {
					t.Errorf("stopped by %v, %d begun, %d ended, %d "+
						"done", result.Stopped, begun.Load(), ended.Load(), len(result.Done))
				}
				if again := Write(t.Context(), w, Batch[int, int]{Items: items(4), Write: write,
					Next: always}); len(again.Done) != 4 {
					t.Errorf("afterwards %+v", again)
				}
			})
		})
	}
}

// TestWritePanics: a panic over one item is an error of that item.
func TestWritePanics(t *testing.T) {
	result := Write(t.Context(), New(2), Batch[int, int]{Items: items(3), Next: always,
		Write: func(_ context.Context, i int) (int, error) {
			if i == 1 {
				panic("no such thing")
			}
			return i, nil
		}})
	if len(result.Done) != 2 || len(result.Failed) != 1 || !strings.Contains(result.Failed[0].Error(),
		"no such thing") {
		t.Errorf("%+v", result)
	}
}
