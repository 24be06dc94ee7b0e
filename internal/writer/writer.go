// Package writer makes many writes at a time, bounded over all who have something to write, and fair to each.
package writer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"golang.org/x/sync/semaphore"
)

// maxRefusals is how many writes in a row may fail before a batch is given up. Where the API server refuses everything,
// as beyond a quota, no more are tried; where it refuses some, the others are made, as batches come in random order.
const maxRefusals = 10

// Writer bounds the writes that are under way. Every batch has at most one write waiting for its turn, and who waits
// first is served first: so a short batch is not held up by long ones, and a batch that is alone has all the room.
type Writer struct {
	concurrency int
	turns       *semaphore.Weighted // serves its waiters in their order
}

// New makes a Writer of at most so many writes at a time, over all its batches.
func New(concurrency int) *Writer {
	return &Writer{concurrency: concurrency, turns: semaphore.NewWeighted(int64(concurrency))}
}

// Batch are writes that belong together.
type Batch[T, R any] struct {
	Items []T
	// Write makes one write, and returns what it has made. It is called by several goroutines.
	Write func(ctx context.Context, item T) (R, error)
	// Next is called before each write, by one goroutine, with what has been done so far. When it returns an error, no
	// other write is begun.
	Next func(done int) error
}

// Result is what became of a batch.
type Result[R any] struct {
	Done   []R
	Failed []error
	// Stopped is why not all writes were tried: the error of Next, or of the context. It is nil, too, if too many
	// failed.
	Stopped error
}

// Write makes the writes of a batch, and returns when those that were begun have ended. It begins with one, and allows
// one more at a time for each that succeeds, so that little is tried where all is refused.
func Write[T, R any](ctx context.Context, w *Writer, b Batch[T, R]) Result[R] {
	r := running[R]{window: make(chan struct{}, w.concurrency)}
	r.window <- struct{}{}
	for _, item := range b.Items {
		if err := r.turn(ctx, w.turns, b.Next); err != nil {
			if !errors.Is(err, errRefused) {
				r.result.Stopped = err
			}
			break
		}
		r.writes.Go(func() {
			defer w.turns.Release(1)
			r.end(attempt(ctx, item, b.Write))
		})
	}
	r.writes.Wait()
	return r.result
}

var errRefused = errors.New("too many writes in a row have failed")

// running is a batch that is being written.
type running[R any] struct {
	writes sync.WaitGroup
	window chan struct{} // holds a token for each write that may be begun

	mu       sync.Mutex
	result   Result[R]
	refusals int // in a row
}

// turn waits until a write may be begun. After an error it holds no turn.
func (r *running[R]) turn(ctx context.Context, turns *semaphore.Weighted, next func(int) error) error {
	select {
	case <-r.window:
	case <-ctx.Done():
		return ctx.Err()
	}
	r.mu.Lock()
	done, refusals := len(r.result.Done), r.refusals
	r.mu.Unlock()
	if refusals >= maxRefusals {
		return errRefused
	}
	if err := turns.Acquire(ctx, 1); err != nil {
		return err
	}
	if err := next(done); err != nil {
		turns.Release(1)
		return err
	}
	return nil
}

// end takes in what became of a write.
func (r *running[R]) end(done R, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.window <- struct{}{}
	if err != nil {
		r.refusals++
		r.result.Failed = append(r.result.Failed, err)
		return
	}
	r.refusals = 0
	r.result.Done = append(r.result.Done, done)
	if len(r.result.Done) < cap(r.window) {
		r.window <- struct{}{} // One more at a time.
	}
}

// attempt turns a panic into an error, so that one object that nobody thought of cannot stop the work on all others.
func attempt[T, R any](ctx context.Context, item T, write func(context.Context, T) (R, error)) (done R, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return write(ctx, item)
}
