// Package writer carries out plans: it makes many writes at a time, within one bound for all LocalServices, and reports
// the outcome of each.
package writer

import (
	"runtime/debug"

	"k8s.io/klog/v2"
)

// Pool bounds the writes under way. Every batch may always have one write under way; more than that only while the pool
// has room. So a batch whose writes hang slows others down, but never stops them.
type Pool struct{ shared chan struct{} } // holds a token for each write beyond the first of its batch

// NewPool makes a Pool for a number of writes at a time. Each batch may have one more under way.
func NewPool(concurrency int) *Pool { return &Pool{make(chan struct{}, concurrency)} }

// Each makes a batch of n writes, until mayBegin, which is called before each, reports that no more may begin. When all
// that were begun have ended, it returns their number. A slow start makes the first write alone. Once one is accepted,
// as many are made at a time as the pool has room for. Each failed write allows one less, and each accepted one more
// again, so that little is tried while all are refused, even from the middle of the batch on.
//
// write is called with the number of the write, by several goroutines. ended is called with its error, one at a time,
// and reports whether the write was accepted.
func (p *Pool) Each(n int, slowStart bool, mayBegin func() bool, write func(i int) error,
	ended func(i int, err error) bool) (begun int) {
	type end struct {
		i   int
		err error
	}
	ends := make(chan end)
	allowed, running := cap(p.shared), 0
	if slowStart {
		allowed = 1
	}
	defer func() { // Nothing is left behind when a function panics.
		for ; running > 0; running-- {
			if <-ends; running > 1 {
				<-p.shared
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
			<-p.shared // All but one have a token.
		}
		switch isAccepted := ended(last.i, last.err); {
		case !isAccepted:
			allowed = max(allowed-1, 1)
		case slowStart:
			allowed, slowStart = cap(p.shared), false
		default:
			allowed = min(allowed+1, cap(p.shared))
		}
	}
}

// take takes a token, if there is one.
func (p *Pool) take() bool {
	select {
	case p.shared <- struct{}{}:
		return true
	default:
		return false
	}
}

// recoverInto turns a panic into an error, and logs where it was. One unforeseen object must not stop the work on all
// others.
func recoverInto(err *error) {
	if r := recover(); r != nil {
		*err = refuse("panic: %v", r)
		klog.Background().Error(*err, "A write panicked", "stack", string(debug.Stack()))
	}
}
