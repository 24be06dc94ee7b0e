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
	// A write that RBAC denies is tried again after minDeniedBackoff, and after twice as long each time. The first
	// earlyDenials, which last 15 seconds together, are not reported: see plan.IsDenied.
	minDeniedBackoff = time.Second
	earlyDenials     = 4
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

// IsReported reports whether a refusal is one to report: RBAC's denial is not, until it has lasted for a while.
func (r *Refusal) IsReported() bool {
	return r.Err != nil && (r.Times > earlyDenials || !plan.IsDenied(r.Err))
}

// NewRefusals makes Refusals.
func NewRefusals() *Refusals { return &Refusals{utilcache.NewLRUExpireCache(maxRemembered)} }

// Add records that an attempt was refused.
func (r *Refusals) Add(attempt Attempt, err error) {
	r.refusals.Add(attempt, r.next(attempt, err), rememberedFor)
}

// next returns the next refusal of an attempt. A contested write will most likely be contested again, so it gets the
// longest backoff at once.
func (r *Refusals) next(attempt Attempt, err error) Refusal {
	last, _ := r.Get(attempt)
	times, first := last.Times+1, minRefusedBackoff
	switch {
	case isContested(err):
		times = maxTimes
	case plan.IsDenied(err):
		first = minDeniedBackoff
	}
	backoff := min(first<<min(times-1, 2*maxTimes), reconcile.MaxBackoff)
	return Refusal{Err: err, RetryAt: time.Now().Add(backoff), Times: times}
}

// AfterFailure decides by the class of an error how an attempt that failed is tried again: after a time, with whether
// that is a refusal to report, or with the backoff of the error.
func (r *Refusals) AfterFailure(attempt Attempt, err error) (retryAfter time.Duration, isReported bool, _ error) {
	switch ClassOf(err) {
	case Terminating:
		return reconcile.MaxBackoff, false, nil
	case Stale:
		return 0, false, reconcile.Stale(err)
	case Transient:
		return 0, false, err
	}
	r.Add(attempt, err)
	refusal, _ := r.Get(attempt)
	return r.RetryAfter(attempt), refusal.IsReported(), nil
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
