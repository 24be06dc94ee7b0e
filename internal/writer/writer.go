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

// ErrRefused is returned for a batch that was given up because too many writes in a row have failed.
var ErrRefused = errors.New("too many writes in a row have failed")

// Writer bounds the writes that are under way, of each tenant and of all. Every batch has at most one write waiting for
// its turn, and who waits first is served first: so a short batch is not held up by long ones, and a batch that is
// alone has all the room of a tenant. Of the batches of a tenant one waits with those of others: so a tenant with many
// batches does not hold up the others. Nor does one whose writes all hang: there are some turns more than one tenant
// can have.
type Writer struct {
	concurrency int                 // of a tenant
	turns       *semaphore.Weighted // serves its waiters in their order

	mu      sync.Mutex
	tenants map[string]*tenant // those who have a write that waits, or is under way
}

// tenant is whose batches wait one after the other.
type tenant struct {
	next   *semaphore.Weighted // 1 at a time
	turns  *semaphore.Weighted
	writes int // that wait, or are under way
}

// New makes a Writer of at most so many writes at a time of each tenant, and a quarter more, but at least one, of all.
func New(concurrency int) *Writer {
	return &Writer{concurrency: concurrency, turns: semaphore.NewWeighted(int64(concurrency + max(concurrency/4, 1))),
		tenants: map[string]*tenant{}}
}

// Each makes a batch of n writes for a tenant, and returns when those that were begun have ended. It begins with one,
// and allows one more at a time for each that succeeds, and one less for each that fails, so that little is tried where
// all is refused, also from the middle of the batch on.
//
// next is called before each write, by one goroutine; write is called with the number of the write, by several. Each
// returns the errors of writes, and why not all were tried: the error of next or of ctx, or ErrRefused.
func (w *Writer) Each(ctx context.Context, tenant string, n int, next func() error,
	write func(i int) error) (failed []error, err error) {
	b := batch{window: make(chan struct{}, w.concurrency), allowed: 1}
	b.window <- struct{}{}
	defer b.running.Wait() // also if next panics
	for i := range n {
		var release func()
		if release, err = b.begin(ctx, w, tenant, next); err != nil {
			break
		}
		b.running.Go(func() {
			defer release()
			defer func() {
				// One object that nobody thought of must not stop the work on all others.
				if p := recover(); p != nil {
					b.end(fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
				}
			}()
			b.end(write(i))
		})
	}
	b.running.Wait()
	return b.failed, err
}

// await waits for the turn of a tenant's batch, until release is called.
func (w *Writer) await(ctx context.Context, name string) (release func(), err error) {
	t := w.enter(name)
	defer func() {
		if err != nil {
			w.leave(name, t)
		}
	}()
	if err := t.next.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer t.next.Release(1)
	if err := t.turns.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	if err := w.turns.Acquire(ctx, 1); err != nil {
		t.turns.Release(1)
		return nil, err
	}
	return func() {
		w.turns.Release(1)
		t.turns.Release(1)
		w.leave(name, t)
	}, nil
}

func (w *Writer) enter(name string) *tenant {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.tenants[name]
	if t == nil {
		t = &tenant{next: semaphore.NewWeighted(1), turns: semaphore.NewWeighted(int64(w.concurrency))}
		w.tenants[name] = t
	}
	t.writes++
	return t
}

func (w *Writer) leave(name string, t *tenant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.writes--; t.writes == 0 {
		delete(w.tenants, name)
	}
}

// batch is what is known of a batch while it is being written.
type batch struct {
	running sync.WaitGroup
	window  chan struct{} // holds a token for each write that may be begun

	mu       sync.Mutex
	allowed  int // tokens that there are
	refusals int // in a row
	failed   []error
}

// begin waits until a write may be begun, and returns what is to be called when it has ended. After an error there is
// nothing to release.
func (b *batch) begin(ctx context.Context, w *Writer, tenant string, next func() error) (release func(), err error) {
	select {
	case <-b.window:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if b.isRefused() {
		return nil, ErrRefused
	}
	turn, err := w.await(ctx, tenant)
	if err != nil {
		return nil, err
	}
	defer func() {
		if release == nil { // also if next panics
			turn()
		}
	}()
	if err := next(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // next may take a while.
		return nil, ctx.Err()
	}
	return turn, nil
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
	if err != nil {
		b.refusals++
		b.failed = append(b.failed, err)
		if b.allowed > 1 {
			b.allowed--
			return
		}
	} else if b.refusals = 0; b.allowed < cap(b.window) {
		b.allowed++
		b.window <- struct{}{}
	}
	b.window <- struct{}{}
}
