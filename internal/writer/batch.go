package writer

import (
	"context"
	"errors"
	"runtime/debug"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/status"
)

// maxFailures limits how many writes of an action may fail in a row before no more begin. If the API server refuses
// every write, as beyond a quota, few are tried. If it refuses some, the others are still made, because the order is
// random.
const maxFailures = 10

// batch makes the writes of one action, several at a time, and counts how they end.
type batch struct {
	*turn
	action  plan.Action
	changes []*plan.Change // in the order in which they are tried

	begun, accepted, failed, inARow int
	refused                         []refusedWrite
}

// refusedWrite pairs a write that the API server refused, or stored differently, with its error.
type refusedWrite struct {
	attempt Attempt
	err     error
}

// result is how a write has ended.
type result struct {
	change *plan.Change
	stored *corev1.Service // nil if there is none
	err    error
}

// run begins the writes, in order, until one of them must not begin, and returns when all have ended. A slow start makes
// the first write alone. Once a write is accepted, as many run at a time as the Pool has tokens.
func (b *batch) run(ctx context.Context) {
	results := make(chan result, len(b.changes)) // Nobody receives the last ones after a panic.
	running, most := 0, b.Pool.size
	if b.startsSlowly() {
		most = 1
	}
	for {
		for running < most && b.mayBegin() && (running == 0 || b.Pool.tokens.TryAcquire(1)) {
			change, hasToken := b.changes[b.begun], running > 0
			b.begun++
			running++
			go func() {
				end := result{change: change}
				defer func() { results <- end }()
				if hasToken {
					defer b.Pool.tokens.Release(1)
				}
				defer recoverInto(&end.err)
				end.stored, end.err = b.writeService(ctx, change)
			}()
		}
		if running == 0 {
			return
		}
		end := <-results
		running--
		if b.ended(&end); b.accepted > 0 {
			most = b.Pool.size
		}
	}
}

// startsSlowly reports whether the first write is made alone: yes in a first turn, and while all writes of the action
// are refused. In later turns, the API server has already accepted some.
func (b *batch) startsSlowly() bool {
	return b.Refusals.Get(b.attempt(b.action, "")).Err != nil || !status.IsWriting(b.ls)
}

// mayBegin reports whether another write may begin. It stops the turn if the plan is no longer wanted. Time is never up
// before the first write has ended, even if reading the LocalService took long.
func (b *batch) mayBegin() bool {
	if b.begun == len(b.changes) || b.isGivenUp() || b.out.Stopped != nil || b.writes > 0 && b.isTimeUp() {
		return false
	}
	b.out.Stopped = b.checkWanted()
	return b.out.Stopped == nil
}

func (b *batch) isGivenUp() bool { return b.inARow >= maxFailures }

// recoverInto turns a panic into an error, and logs its stack. One unforeseen object must not stop the work on all
// others.
func recoverInto(err *error) {
	if r := recover(); r != nil {
		*err = refuse("panic: %v", r)
		klog.Background().Error(*err, "A write panicked", "stack", string(debug.Stack()))
	}
}

// ended records how a write has ended.
func (b *batch) ended(end *result) {
	b.writes++
	change, err, contested := end.change, end.err, error(nil)
	if err == nil && end.stored != nil {
		contested, err = contestedBy(change, end.stored)
	}
	attempt := b.attemptOf(change)
	if attempt.Action == plan.Update && (err == nil || isContested(err)) {
		b.Refusals.Made(attempt, change.Fields, change.Sum)
	}
	isGone := change.Action == plan.Delete && isAbsent(err)
	if err != nil && !isGone {
		b.add(change, err)
		return
	}
	if attempt.Action != plan.Update {
		b.Refusals.Remove(attempt)
		b.Refusals.Remove(b.attempt(plan.Update, change.Name)) // of another Service of that name
	}
	if b.accepted == 0 {
		b.Refusals.Remove(b.attempt(change.Action, ""))
	}
	if contested != nil {
		b.addRefused(change, contested)
	}
	b.accepted, b.inARow = b.accepted+1, 0
	if !isGone { // Otherwise the Service was deleted before, and the cache lags.
		b.out.Made[change.Action] = append(b.out.Made[change.Action], change.Name)
	}
}

// add records a write that failed.
func (b *batch) add(change *plan.Change, err error) {
	b.failed, b.inARow = b.failed+1, b.inARow+1
	failure := &status.WriteError{Action: change.Action, Namespace: b.ls.Namespace, Name: change.Name, Node: change.Node,
		Err: err}
	switch ClassOf(err) {
	case Terminating:
		b.out.Stopped = ErrNamespaceTerminating
	case Stale:
		b.out.Stale = append(b.out.Stale, failure)
	case Transient:
		b.out.Failed = append(b.out.Failed, failure)
	default:
		b.addRefused(change, failure)
	}
}

// addRefused records that a change was refused. Its backoff begins when the batch ends.
func (b *batch) addRefused(change *plan.Change, err error) {
	attempt := b.attemptOf(change)
	b.refused = append(b.refused, refusedWrite{attempt, err})
	b.report(b.Refusals.next(attempt, err))
}

// finish ends a batch: what it has not tried is left to the next turn, or waits.
func (b *batch) finish(ctx context.Context) {
	if b.out.Stopped == nil {
		b.out.Stopped = b.checkWanted()
	}
	if b.out.Stopped != nil {
		return // Refusals of a deleted LocalService, or of another spec, are not remembered.
	}
	b.remember(ctx)
	b.out.GaveUp = b.out.GaveUp || b.isGivenUp()
	rest := b.changes[b.begun:]
	for _, change := range rest {
		b.report(b.Refusals.Get(b.attemptOf(change)))
	}
	if !b.isHopeless() {
		b.out.More = b.out.More || len(rest) > 0
		return
	}
	for _, change := range rest {
		b.backOff(change)
	}
}

// isHopeless reports whether the writes that were not tried would most likely be refused, too: none was accepted, most
// that failed were refused, and the batch gave up, or the turn wrote nothing else.
func (b *batch) isHopeless() bool {
	return b.accepted == 0 && 2*len(b.refused) > b.failed && (b.isGivenUp() || b.failed == b.writes)
}

// backOff lets a change wait that was not tried: one that was refused before by itself, the others together. A denial
// counts only when it is the answer to a try: see Refusal.IsReported.
func (b *batch) backOff(change *plan.Change) {
	attempt := b.attemptOf(change)
	refusal := b.Refusals.Get(attempt)
	err := refusal.Err
	if !refusal.IsReported() {
		attempt, err = b.attempt(b.action, ""), b.refused[len(b.refused)-1].err
		refusal = b.Refusals.Get(attempt)
	}
	if refusal.retryAfter() == 0 {
		refusal = b.Refusals.Add(attempt, err)
	}
	b.retryIn(refusal.retryAfter())
}

// remember starts the backoff of all refused changes when their batch ends, so that a single sync retries most of
// them.
func (b *batch) remember(ctx context.Context) {
	var errs []error
	for _, r := range b.refused {
		refusal := b.Refusals.Add(r.attempt, r.err)
		b.retryIn(refusal.retryAfter())
		// Contested fields are logged when their condition changes.
		if !isContested(r.err) && refusal.IsReported() {
			errs = append(errs, r.err)
		}
	}
	if len(errs) > 0 {
		klog.FromContext(ctx).Error(errors.New(status.Summarize(errs)), "Services refused, trying again later",
			"localService", klog.KObj(b.ls), "after", b.out.RetryAfter)
	}
}
