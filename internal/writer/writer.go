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

var errRefused = errors.New("too many writes in a row have failed")

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

// Each makes a batch of n writes, and returns when those that were begun have ended. It begins with one, and allows one
// more at a time for each that succeeds, so that little is tried where all is refused.
//
// next is called before each write, by one goroutine; write is called with the number of the write, by several. The error
// says why not all were tried: that of next or of ctx, or errRefused. Those of write are for write to keep.
func (w *Writer) Each(ctx context.Context, n int, next func() error, write func(i int) error) error {
	b := batch{window: make(chan struct{}, w.concurrency), allowed: 1}
	b.window <- struct{}{}
	defer b.running.Wait()
	for i := range n {
		if err := b.begin(ctx, w.turns, next); err != nil {
			return err
		}
		b.running.Go(func() {
			defer w.turns.Release(1)
			b.end(write(i))
		})
	}
	return nil
}

// batch is what is known of a batch while it is being written.
type batch struct {
	running sync.WaitGroup
	window  chan struct{} // holds a token for each write that may be begun

	mu       sync.Mutex
	allowed  int // tokens that there are
	refusals int // in a row
}

// begin waits until a write may be begun. After an error there is nothing to release.
func (b *batch) begin(ctx context.Context, turns *semaphore.Weighted, next func() error) error {
	select {
	case <-b.window:
	case <-ctx.Done():
		return ctx.Err()
	}
	if b.isRefused() {
		return errRefused
	}
	if err := turns.Acquire(ctx, 1); err != nil {
		return err
	}
	if err := next(); err != nil {
		turns.Release(1)
		return err
	}
	return nil
}

func (b *batch) isRefused() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refusals >= maxRefusals
}

// end takes in what became of a write.
func (b *batch) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.window <- struct{}{}
	if err != nil {
		b.refusals++
		return
	}
	b.refusals = 0
	if b.allowed < cap(b.window) {
		b.allowed++
		b.window <- struct{}{}
	}
}

// recovered turns a panic into an error, so that one object that nobody thought of cannot stop the work on all others.
func recovered(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}
