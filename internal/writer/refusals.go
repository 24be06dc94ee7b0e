package writer

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/status"
)

const (
	// minRefusedBackoff delays the first retry of a refused write. The delay doubles with each refusal, up to
	// reconcile.MaxBackoff. A refusal is forgotten if the write is not retried within rememberedFor.
	minRefusedBackoff = 10 * time.Second
	rememberedFor     = 3 * reconcile.MaxBackoff
	// maxTimes is the number of refusals in a row after which the backoff is the longest.
	maxTimes = 5
	// minDeniedBackoff delays the first retry of a write that RBAC denies. The delay doubles with each denial. The
	// first earlyDenials, 15 seconds in all, are not reported: see status.IsDenied.
	minDeniedBackoff = time.Second
	earlyDenials     = 4
	// minUndoneBackoff delays the first retry of an update that something else has undone. The delay doubles each time.
	minUndoneBackoff = 2 * time.Second
	// soon is within what time an update counts as undone if it has to be made again.
	soon = reconcile.MaxBackoff
	// contestedStays is how long after a write was undone, or an undone one was made again, that is still reported: it
	// may be undone once more.
	contestedStays = 10 * time.Second
	// maxRemembered limits the refusals that are remembered. Writes beyond it may be retried too early.
	maxRemembered = 10000
)

// Attempt identifies a write that may be refused. The same write for another generation of its owner is another
// Attempt.
type Attempt struct {
	Owner      types.UID
	Generation int64
	// Action and Name identify the write among those of its owner. Without a Name, they stand for all writes of the
	// Action. The label of a pod has neither, because the controller writes nothing else to the pod.
	Action plan.Action
	Name   string
	Sum    uint64 // of what a creation sets
}

// Refusal records the last answer to an Attempt.
type Refusal struct {
	Err     error
	RetryAt time.Time
	// Times counts how often in a row the attempt was refused.
	Times int
	// made is the last update that was stored, be it otherwise; the zero value if none was, or the attempt is no update.
	made update
}

// update is what updates of an object have set in a short time: these fields, to what a sum stands for.
type update struct {
	at     time.Time
	fields []string
	sum    uint64
}

// Refusals remembers which writes the API server refused, and when to retry each. Each write has its own backoff, so
// that nothing else waits for it.
type Refusals struct {
	refusals *utilcache.LRUExpireCache // Refusal, by Attempt
}

// IsReported reports whether a refusal should be reported. RBAC's denial should not, until it has lasted for a while.
func (r Refusal) IsReported() bool {
	return r.Err != nil && (r.Times > earlyDenials || !status.IsDenied(r.Err))
}

// retryAfter returns how long the attempt still has to wait, 0 if it may be made now.
func (r Refusal) retryAfter() time.Duration { return max(time.Until(r.RetryAt), 0) }

// left returns how long the attempt to set fields to what a sum stands for still has to wait. What is contested waits by
// itself: not if other fields differ now, or something else is wanted.
func (r Refusal) left(fields []string, sum uint64) time.Duration {
	isSame := r.made.sum == sum && sets.New(r.made.fields...).HasAll(fields...)
	if isContested(r.Err) && !isSame {
		return 0
	}
	return r.retryAfter()
}

// NewRefusals returns empty Refusals.
func NewRefusals() *Refusals { return &Refusals{utilcache.NewLRUExpireCache(maxRemembered)} }

// Add records that an attempt was refused, and returns the refusal.
func (r *Refusals) Add(attempt Attempt, err error) Refusal {
	refusal := r.next(attempt, err)
	r.refusals.Add(attempt, refusal, rememberedFor)
	return refusal
}

// next returns the refusal to record for an attempt. What admission contests it will most likely contest again, so that
// gets the longest backoff at once. A denial, and what is refused after one, is counted anew: whatever was refused
// before, a restart of the API server is not reported.
func (r *Refusals) next(attempt Attempt, err error) Refusal {
	last := r.Get(attempt)
	if last.Err != nil && status.IsDenied(last.Err) != status.IsDenied(err) {
		last.Times = 0
	}
	times, first := last.Times+1, minRefusedBackoff
	switch {
	case isUndone(err):
		first = minUndoneBackoff
	case isContested(err):
		times = maxTimes
	case status.IsDenied(err):
		first = minDeniedBackoff
	}
	backoff := min(first<<min(times-1, 2*maxTimes), reconcile.MaxBackoff)
	return Refusal{Err: err, RetryAt: time.Now().Add(backoff), Times: times, made: last.made}
}

// Made records that an update was stored, which sets fields to what a sum stands for. If something else had undone it
// before, the next time has a longer backoff.
func (r *Refusals) Made(attempt Attempt, fields []string, sum uint64) {
	last := r.Get(attempt)
	now := Refusal{made: update{time.Now(), fields, sum}}
	if contested, is := errors.AsType[*status.ContestedError](last.Err); is && contested.IsUndone {
		now.Times = last.Times
		r.hold(attempt, contested)
	}
	if last.made.sum == sum && time.Since(last.made.at) <= soon { // Several may take turns to undo one field each.
		now.made.fields = sets.List(sets.New(fields...).Insert(last.made.fields...))
	}
	r.refusals.Add(attempt, now, rememberedFor)
}

// Undone returns those of the fields of an update that the attempt has set a short time ago to the same: something else
// has undone it, and would most likely do so again. It returns none if that is recorded as a refusal.
func (r *Refusals) Undone(attempt Attempt, fields []string, sum uint64) (undone []string) {
	last := r.Get(attempt)
	if last.Err != nil || last.made.sum != sum || time.Since(last.made.at) > soon {
		return nil
	}
	return sets.List(sets.New(fields...).Intersection(sets.New(last.made.fields...)))
}

// AddUndone records that something else has undone an update, and returns the refusal.
func (r *Refusals) AddUndone(attempt Attempt, contested *status.ContestedError) Refusal {
	contested.IsUndone = true
	r.hold(attempt, contested)
	return r.Add(attempt, contested)
}

// hold keeps a contested write of an owner reported for a while: of several, that of the first object by name, so that
// the report stays the same.
func (r *Refusals) hold(attempt Attempt, err *status.ContestedError) {
	key := contestedOf(attempt)
	if held, is := errors.AsType[*status.ContestedError](r.Get(key).Err); !is || held.Object >= err.Object {
		r.refusals.Add(key, Refusal{Err: err, RetryAt: time.Now().Add(contestedStays)}, contestedStays)
	}
}

// contestedOf returns the key of the last contested write of an owner.
func contestedOf(attempt Attempt) Attempt {
	return Attempt{Owner: attempt.Owner, Generation: attempt.Generation, Action: "Contested"}
}

// AfterFailure decides by the class of an error how to retry a failed attempt: after a fixed time, reporting a
// refusal if isReported, or with the backoff of the error that it returns.
func (r *Refusals) AfterFailure(attempt Attempt, err error) (retryAfter time.Duration, isReported bool, _ error) {
	switch ClassOf(err) {
	case Terminating:
		return reconcile.MaxBackoff, false, nil
	case Stale, Transient:
		return 0, false, err
	}
	refusal := r.Add(attempt, err)
	return refusal.retryAfter(), refusal.IsReported(), nil
}

// Get returns the last refusal of an attempt; the zero value if there is none.
func (r *Refusals) Get(attempt Attempt) Refusal {
	last, _ := r.refusals.Get(attempt)
	refusal, _ := last.(Refusal)
	return refusal
}

// RetryAfter returns how long an attempt still has to wait; 0 if it may be made now.
func (r *Refusals) RetryAfter(attempt Attempt) time.Duration {
	return r.Get(attempt).retryAfter()
}

// Remove forgets the refusal of an attempt that succeeded, or that is no longer needed.
func (r *Refusals) Remove(attempt Attempt) { r.refusals.Remove(attempt) }
