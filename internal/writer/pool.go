// Package writer carries out plans. It makes many writes at a time, within one limit for all LocalServices, and
// reports the outcome of each.
package writer

import (
	"runtime/debug"

	"k8s.io/klog/v2"
)

// Pool limits the writes under way. Each batch may always run one write. Every further write puts a token into the Pool
// for as long as it runs. So a batch whose writes hang slows others down, but never stops them.
type Pool chan struct{}

// Each makes the n writes of a batch. It calls mayBegin before each, and begins no more once that returns false. It
// returns how many it began, when all of them have ended. A slow start makes the first write alone. Once a write is
// accepted, as many run at a time as there are tokens. Each failed write lowers that limit by one, and each accepted
// write raises it, so that few writes are tried while all are refused, even from the middle of the batch on.
//
// Each calls write with the number of the write, from several goroutines. It calls ended with the error of each
// write, one at a time; ended reports whether the write was accepted.
func (p Pool) Each(n int, slowStart bool, mayBegin func() bool, write func(i int) error,
	ended func(i int, err error) bool) (begun int) {
	type end struct {
		i   int
		err error
	}
	ends := make(chan end)
	allowed, running := cap(p), 0
	if slowStart {
		allowed = 1
	}
	defer func() { // If a function panics, wait for the writes under way and return their tokens.
		for ; running > 0; running-- {
			if <-ends; running > 1 {
				<-p
			}
		}
	}()
	for more := true; ; {
		for more && begun < n && running < allowed {
			if more = mayBegin(); !more || running > 0 && !p.take() {
				break
			}
			go func(i int) {
				var err error
				defer func() { ends <- end{i, err} }()
				defer recoverInto(&err)
				err = write(i)
			}(begun)
			begun++
			running++
		}
		if running == 0 {
			return begun
		}
		last := <-ends
		if running--; running > 0 {
			<-p // All but one have a token.
		}
		switch isAccepted := ended(last.i, last.err); {
		case !isAccepted:
			allowed = max(allowed-1, 1)
		case slowStart:
			allowed, slowStart = cap(p), false
		default:
			allowed = min(allowed+1, cap(p))
		}
	}
}

// take takes a token, and reports whether there was one.
func (p Pool) take() bool {
	select {
	case p <- struct{}{}:
		return true
	default:
		return false
	}
}

// recoverInto turns a panic into an error, and logs its stack. One unforeseen object must not stop the work on all
// others.
func recoverInto(err *error) {
	if r := recover(); r != nil {
		*err = refuse("panic: %v", r)
		klog.Background().Error(*err, "A write panicked", "stack", string(debug.Stack()))
	}
}
