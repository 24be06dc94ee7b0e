package writer

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
)

const (
	// A write that was refused is tried again after minRefusedBackoff, and after twice as long each time, up to
	// reconcile.MaxBackoff. It is forgotten when it was not tried again for rememberedFor.
	minRefusedBackoff = 10 * time.Second
	rememberedFor     = 3 * reconcile.MaxBackoff
	// After maxTimes refusals in a row, the backoff is the longest.
	maxTimes = 5
	// Beyond maxRemembered refused writes, some are forgotten, and tried again too early.
	maxRemembered = 10000
)

// Attempt identifies a write that may be refused: another generation of its owner makes another write.
type Attempt struct {
	Owner      types.UID
	Generation int64
	// Action and Name say which write of the owner it is. Without a Name, it is all writes of the Action. The label of
	// a pod has neither, because the pod has no other write.
	Action plan.Action
	Name   string
}

// Refusal is the last answer to an Attempt.
type Refusal struct {
	Err     error
	RetryAt time.Time
	// Times is how often in a row the attempt was refused.
	Times int
}

// Refusals remembers which writes the API server refused, and when each of them is tried again. The backoff belongs to
// the write, so that nothing else waits for it.
type Refusals struct {
	refusals *utilcache.LRUExpireCache // Refusal, by Attempt
}

// NewRefusals makes Refusals.
func NewRefusals() *Refusals { return &Refusals{utilcache.NewLRUExpireCache(maxRemembered)} }

// Add records that an attempt was refused. A contested write will most likely be contested again, so it gets the
// longest backoff at once.
func (r *Refusals) Add(attempt Attempt, err error) {
	last, _ := r.Get(attempt)
	times := last.Times + 1
	if isContested(err) {
		times = maxTimes
	}
	backoff := min(minRefusedBackoff<<min(times-1, maxTimes), reconcile.MaxBackoff)
	r.refusals.Add(attempt, Refusal{Err: err, RetryAt: time.Now().Add(backoff), Times: times}, rememberedFor)
}

// AfterFailure decides by the class of an error how an attempt that failed is tried again: after a time, with whether it
// was refused, or with the backoff of the error.
func (r *Refusals) AfterFailure(attempt Attempt, err error) (retryAfter time.Duration, isRefused bool, _ error) {
	switch ClassOf(err) {
	case Terminating:
		return reconcile.MaxBackoff, false, nil
	case Stale:
		return 0, false, reconcile.Stale(err)
	case Transient:
		return 0, false, err
	}
	r.Add(attempt, err)
	return r.RetryAfter(attempt), true, nil
}

// Get returns the refusal of an attempt, and whether there is one.
func (r *Refusals) Get(attempt Attempt) (refusal Refusal, isRefused bool) {
	last, isRefused := r.refusals.Get(attempt)
	refusal, _ = last.(Refusal)
	return refusal, isRefused
}

// IsEmpty reports whether nothing was refused. Usually that is so.
func (r *Refusals) IsEmpty() bool { return len(r.refusals.Keys()) == 0 }

// RetryAfter returns how long an attempt still has to wait, 0 if it may be made now.
func (r *Refusals) RetryAfter(attempt Attempt) time.Duration {
	refusal, _ := r.Get(attempt)
	return max(time.Until(refusal.RetryAt), 0)
}

// Remove forgets the refusal of an attempt that succeeded, or is not needed any more.
func (r *Refusals) Remove(attempt Attempt) { r.refusals.Remove(attempt) }

// Forget forgets all refusals of an owner that is gone.
func (r *Refusals) Forget(owner types.UID) {
	r.refusals.RemoveAll(func(key any) bool { return key.(Attempt).Owner == owner })
}
