package writer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// maxFailures is how many writes of an action in a row may fail before no more are begun. If the API server refuses
// everything, as beyond a quota, little is tried; if it refuses some, the others are made, because the order is random.
// Replacements, which delete what serves, stop at the first failure.
const maxFailures = 10

// batch is the progress of the writes of one action.
type batch struct {
	action                   plan.Action
	accepted, failed, inARow int
	refused                  []refusedWrite
}

// refusedWrite is a write that the API server refused, or stored differently.
type refusedWrite struct {
	attempt Attempt
	err     error
}

func (b *batch) isGivenUp() bool {
	return b.inARow >= maxFailures || b.action == plan.Replace && b.failed > 0
}

// dueChange is a change that may be tried now.
type dueChange struct {
	*plan.Change
	refusal error // the last answer, nil if it was never tried
}

// attempt identifies a change of a Service, with its action: what cannot be replaced can perhaps be created later. One
// of other fields is not held up by those that are refused. To adopt a Service is to update its controller.
func (w *execution) attempt(change *plan.Change) Attempt {
	attempt := attemptOf(w.ls, change.Name)
	if attempt.Action = change.Action; change.Action == plan.Adopt {
		attempt.Action = plan.Update
	}
	attempt.Fields = strings.Join(change.Fields, ",")
	return attempt
}

func attemptOf(ls *v1alpha1.LocalService, name string) Attempt {
	return Attempt{Owner: ls.UID, Generation: ls.Generation, Name: name}
}

// due returns the changes of an action that may be tried now, in this order:
//   - the fresh ones, and those that are overdue because others failed all the time;
//   - those that were put off because others were refused;
//   - those that were refused themselves.
//
// It also returns the refusals of those that have to wait.
func (w *execution) due(action plan.Action, changes []plan.Change) (due []dueChange, waiting []Refusal) {
	var fresh, untried, tried []dueChange
	for i := range changes {
		change := &changes[i]
		if change.Action != action {
			continue
		}
		last, isRefused := w.Refusals.Get(w.attempt(change))
		if !isRefused {
			fresh = append(fresh, dueChange{Change: change})
			continue
		}
		candidate := dueChange{change, last.Err}
		if last.Untried {
			candidate.refusal = nil
		}
		switch left := time.Until(last.RetryAt); {
		case left > 0:
			waiting = append(waiting, last)
		case left < -minRefusedBackoff:
			fresh = append(fresh, candidate)
		case last.Untried:
			untried = append(untried, candidate)
		default:
			tried = append(tried, candidate)
		}
	}
	for _, group := range [][]dueChange{fresh, untried, tried} {
		if action != plan.Replace { // If a finalizer holds the first, no other is deleted while the cache lags.
			w.Shuffle(len(group), func(i, j int) { group[i], group[j] = group[j], group[i] })
		}
	}
	return slices.Concat(fresh, untried, tried), waiting
}

// tellWaiting records the refusals of changes that have to wait. Of those that were put off, one is enough.
func (w *execution) tellWaiting(waiting []Refusal) {
	var putOff error
	for _, last := range waiting {
		w.retryIn(time.Until(last.RetryAt))
		if last.Untried && ClassOf(last.Err) != Contested {
			putOff = last.Err
		} else {
			w.tell(last.Err)
		}
	}
	if putOff != nil && len(w.out.Refused) == 0 {
		w.tell(putOff)
	}
}

// retryIn records how long a change has to wait. It may have become due a moment ago.
func (w *execution) retryIn(left time.Duration) {
	if left = max(left, 1); w.out.RetryAfter == 0 || left < w.out.RetryAfter {
		w.out.RetryAfter = left
	}
}

// conclude ends a batch, of which the rest was not begun. If most that were begun were refused, and none accepted,
// those that differ in the same fields wait with the last one refused. The others are tried in the next turn.
func (w *execution) conclude(ctx context.Context, rest []dueChange) {
	if w.out.Stopped = cmp.Or(w.out.Stopped, w.isWanted()); w.out.Stopped != nil {
		return // Nothing is remembered of what is gone, or of another spec.
	}
	w.remember(ctx)
	b := &w.batch
	w.out.GaveUp = w.out.GaveUp || b.isGivenUp()
	// Most were refused and none accepted, until the batch was given up, or until the time was over, with no other
	// writes in the turn.
	isHopeless := b.accepted == 0 && 2*len(b.refused) > b.failed && (b.isGivenUp() || b.failed == w.writes)
	w.remind(rest)
	if !isHopeless {
		w.out.More = w.out.More || len(rest) > 0
		return
	}
	last := b.refused[len(b.refused)-1].attempt
	for _, change := range rest {
		if attempt := w.attempt(change.Change); attempt.Fields == last.Fields {
			w.Refusals.PutOff(attempt, last)
		} else {
			w.out.More = true
		}
	}
}

// remember makes the refused changes of the batch wait, all from the same moment on, so that one sync tries them again.
func (w *execution) remember(ctx context.Context) {
	var errs []error
	for _, r := range w.batch.refused {
		if ClassOf(r.err) == Contested {
			w.Refusals.AddContested(r.attempt, r.err) // The condition is logged when it changes.
		} else {
			w.Refusals.Add(r.attempt, r.err)
			errs = append(errs, r.err)
		}
		w.retryIn(w.Refusals.RetryAfter(r.attempt))
	}
	if len(errs) > 0 {
		klog.FromContext(ctx).Error(errors.New(status.Summarize(errs)), "Services refused, trying again later",
			"localService", klog.KObj(w.ls), "after", w.out.RetryAfter)
	}
}

// failed records a write that failed.
func (w *execution) failed(change *plan.Change, err error) {
	w.batch.failed, w.batch.inARow = w.batch.failed+1, w.batch.inARow+1
	switch ClassOf(err) {
	case Terminating:
		w.out.Stopped = ErrNamespaceTerminating
	case Stale:
		w.out.Stale = append(w.out.Stale, err)
	case Transient:
		w.out.Failed = append(w.out.Failed, err)
	default:
		w.refuse(change, err)
	}
}

// refuse records a refusal of this sync. The change waits from the end of the batch on.
func (w *execution) refuse(change *plan.Change, err error) {
	w.batch.refused = append(w.batch.refused, refusedWrite{w.attempt(change), err})
	w.tell(err)
}

// remind adds to the outcome what was refused before, is due, and is not tried in this turn.
func (w *execution) remind(due []dueChange) {
	for _, change := range due {
		if change.refusal != nil {
			w.tell(change.refusal)
		}
	}
}

// tell adds a refusal of this sync, or of one before, to the outcome.
func (w *execution) tell(err error) {
	if contested, is := errors.AsType[*contestedError](err); is {
		w.out.Contested.Insert(contested.fields...)
	} else {
		w.out.Refused = append(w.out.Refused, err)
	}
}
