// Package writer carries out plans: it makes many writes at a time, bounded over all who have something to write, and
// says what became of each.
package writer

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// maxRefusals is how many writes in a row may fail before a batch is given up. Where the API server refuses everything,
// as beyond a quota, no more are tried; where it refuses some, the others are made, as batches come in random order.
const maxRefusals = 10

// errGivenUp is returned for a batch that was given up because too many writes in a row failed.
var errGivenUp = errors.New("too many writes in a row failed")

// Writer bounds the writes under way. Every batch may have one write under way; more than that only as long as there
// are few in all. So a batch whose writes hang slows others down, and never stops them.
type Writer struct{ shared chan struct{} } // holds a token for each write beyond the first of its batch

// New makes a Writer of so many writes at a time, and one more for each batch.
func New(concurrency int) *Writer { return &Writer{make(chan struct{}, concurrency)} }

// attempted is what became of a write.
type attempted struct {
	i   int
	err error
}

// Each makes a batch of n writes, and returns when those that were begun have ended: how many those are, and the errors
// of those that failed. It begins with one write at a time, and allows one more for each that succeeds, and one less
// for each that fails, so that little is tried where all is refused, also from the middle of the batch on.
//
// mayBegin is called before each write, also where that then waits for others; its error, or errGivenUp, is why not all
// were begun. write is called with the number of the write, by several goroutines.
func (w *Writer) Each(n int, mayBegin func() error, write func(i int) error) (begun int, failed []attempted,
	err error) {
	ended := make(chan attempted)
	allowed, running, refused := 1, 0, 0
	defer func() { // Nothing is left behind when mayBegin panics.
		for ; running > 0; running-- {
			if <-ended; running > 1 {
				<-w.shared
			}
		}
	}()
	for {
		for begun < n && err == nil && running < allowed {
			if err = mayBegin(); err != nil || running > 0 && !w.take() {
				break
			}
			go func(i int) { ended <- attempted{i, attempt(i, write)} }(begun)
			begun++
			running++
		}
		if running == 0 {
			return begun, failed, err
		}
		end := <-ended
		if running--; running > 0 {
			<-w.shared // All but one have a token.
		}
		if end.err == nil {
			refused, allowed = 0, min(allowed+1, cap(w.shared))
			continue
		}
		failed, allowed = append(failed, end), max(allowed-1, 1)
		if refused++; refused == maxRefusals && begun < n && err == nil {
			err = errGivenUp
		}
	}
}

// take takes a token, if there is one.
func (w *Writer) take() bool {
	select {
	case w.shared <- struct{}{}:
		return true
	default:
		return false
	}
}

// attempt makes a write. One object that nobody thought of must not stop the work on all others.
func attempt(i int, write func(i int) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return write(i)
}
