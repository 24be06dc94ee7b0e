package writer

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// maxFailures is how many writes of a kind in a row may fail before no more are begun. If the API server refuses
// everything, as beyond a quota, little is tried; if it refuses some, the others are made, because the order is random.
// Replacements, which delete what serves, stop at the first failure.
const maxFailures = 10

// batch is the progress of the writes of one kind.
type batch struct {
	action                   plan.Action
	accepted, failed, inARow int
	refused                  []refused
}

// refused is a write that the API server refused, or stored differently.
type refused struct {
	attempt Attempt
	err     error
}

func (b *batch) isGivenUp() bool {
	return b.inARow >= maxFailures || b.action == plan.Replace && b.failed > 0
}

// dueChange is a change that may be tried now.
type dueChange struct {
	*plan.Change
	refusal error // the last answer, nil if there was none
}

// attempt identifies a change of a Service, with its action: what cannot be replaced can perhaps be created later. One
// of other fields is not held up by those that are refused. To adopt a Service is to update its controller.
func (w *execution) attempt(change *plan.Change) Attempt {
	attempt := attempt(w.ls, change.Name)
	if attempt.Action = change.Action; change.Action == plan.Adopt {
		attempt.Action = plan.Update
	}
	attempt.Fields = strings.Join(change.Fields, ",")
	return attempt
}

func attempt(ls *v1alpha1.LocalService, name string) Attempt {
	return Attempt{Owner: ls.UID, Generation: ls.Generation, Name: name}
}

// due returns the changes of a kind that may be tried now, in this order:
//   - the fresh ones;
//   - those that were put off because others were refused;
//   - those that were refused themselves.
func (w *execution) due(action plan.Action, changes []plan.Change) (due []dueChange) {
	var fresh, untried, refused []dueChange
	var putOff error
	for i := range changes {
		change := &changes[i]
		if change.Action != action {
			continue
		}
		attempt := w.attempt(change)
		last, isRefused := w.Refusals.Get(attempt)
		isWaiting := isRefused && w.wait(time.Until(last.RetryAt))
		switch {
		case !isRefused:
			fresh = append(fresh, dueChange{change, nil})
		case isWaiting && last.Untried && !isContested(last.Err):
			putOff = last.Err
		case isWaiting:
			w.tell(last.Err)
		case last.Untried:
			untried = append(untried, dueChange{change, nil})
		default:
			refused = append(refused, dueChange{change, last.Err})
		}
	}
	if putOff != nil && len(w.out.Refused) == 0 {
		w.out.Refused = append(w.out.Refused, putOff)
	}
	for _, group := range [][]dueChange{fresh, untried, refused} {
		if action != plan.Replace { // If a finalizer holds the first, no other is deleted while the cache lags.
			w.Shuffle(len(group), func(i, j int) { group[i], group[j] = group[j], group[i] })
		}
		due = append(due, group...)
	}
	return due
}

// wait records how long a change has to wait, and reports whether it has to.
func (w *execution) wait(left time.Duration) bool {
	if left > 0 && (w.out.RetryAfter == 0 || left < w.out.RetryAfter) {
		w.out.RetryAfter = left
	}
	return left > 0
}

// conclude ends a batch, of which the rest was not begun. If all that were begun were refused, those that differ in the
// same fields wait with the last one. The others are tried in the next turn.
func (w *execution) conclude(ctx context.Context, rest []dueChange) {
	if w.out.Stopped = cmp.Or(w.out.Stopped, w.isWanted()); w.out.Stopped != nil {
		return // Nothing is remembered of what is gone, or of another spec.
	}
	w.remember(ctx)
	b := &w.batch
	// All were refused, until the batch was given up, or until the time was over, with no other writes in the turn.
	isHopeless := b.accepted == 0 && len(b.refused) > 0 && len(b.refused) == b.failed &&
		(b.isGivenUp() || b.failed == w.writes)
	for _, change := range rest {
		if change.refusal != nil {
			w.tell(change.refusal)
		}
		attempt := w.attempt(change.Change)
		if isHopeless && attempt.Fields == b.refused[len(b.refused)-1].attempt.Fields {
			w.Refusals.PutOff(attempt, b.refused[len(b.refused)-1].attempt)
		} else {
			w.out.More = true
		}
	}
}

// remember makes the refused changes of the batch wait, all for the same time, so that one sync tries them again.
func (w *execution) remember(ctx context.Context) {
	if len(w.batch.refused) == 0 {
		return
	}
	var errs []error
	for _, r := range w.batch.refused {
		add := w.Refusals.Add
		if isContested(r.err) {
			add = w.Refusals.AddContested
		}
		add(r.attempt, r.err)
		w.wait(w.Refusals.RetryAfter(r.attempt))
		errs = append(errs, r.err)
	}
	klog.FromContext(ctx).Error(errors.New(status.Summarize(errs)), "Services refused, trying again later",
		"localService", klog.KObj(w.ls), "after", w.out.RetryAfter)
}

// failed records a write that failed.
func (w *execution) failed(change *plan.Change, err error) {
	w.batch.failed, w.batch.inARow = w.batch.failed+1, w.batch.inARow+1
	switch {
	case isTerminating(err):
		w.out.Stopped = ErrNamespaceTerminating
	case isStale(err):
		w.out.Stale = append(w.out.Stale, err)
	case mayPass(err):
		w.out.Failed = append(w.out.Failed, err)
	default:
		w.refuse(change, err)
	}
}

// refuse records a refusal of this sync. The change waits from the end of the batch on.
func (w *execution) refuse(change *plan.Change, err error) {
	w.batch.refused = append(w.batch.refused, refused{w.attempt(change), err})
	w.tell(err)
}

// tell adds a refusal of this sync, or of one before, to the outcome.
func (w *execution) tell(err error) {
	if contested, is := errors.AsType[*contestedError](err); is {
		w.out.Contested.Insert(contested.fields...)
	} else {
		w.out.Refused = append(w.out.Refused, err)
	}
}
