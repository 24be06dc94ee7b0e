package writer

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/localservice-dev/local-service-controller/internal/plan"
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
	last                     error // of those that failed
	refused                  []refused
}

// refused is a write that the API server refused, or stored differently.
type refused struct {
	attempt Attempt
	fields  []string
	err     error
}

func (b *batch) isGivenUp() bool {
	return b.inARow >= maxFailures || b.action == plan.Replace && b.failed > 0
}

// attempt identifies a change of a Service, with its action: what cannot be replaced can perhaps be created later. One
// of other fields is not held up by those that are refused. To adopt a Service is to update its controller.
func (w *execution) attempt(change *plan.Change) Attempt {
	action := change.Action
	if action == plan.Adopt {
		action = plan.Update
	}
	name := string(action) + " " + change.Name
	if len(change.Fields) > 0 {
		name += " " + strings.Join(change.Fields, ",")
	}
	return attempt(w.ls, name)
}

func attempt(ls *v1alpha1.LocalService, name string) Attempt {
	return Attempt{Owner: ls.UID, Generation: ls.Generation, Name: name}
}

// due returns the changes of a kind that may be tried now, in this order:
//   - the fresh ones;
//   - those that were put off because others were refused;
//   - those that were refused themselves.
func (w *execution) due(action plan.Action, changes []plan.Change) (due []*plan.Change) {
	var fresh, untried, refused []*plan.Change
	var putOff error
	for i := range changes {
		change := &changes[i]
		if change.Action != action {
			continue
		}
		attempt := w.attempt(change)
		last, isRefused := w.Refusals.Get(attempt)
		isWaiting := isRefused && w.wait(last.RetryAt.Sub(w.Clock.Now()))
		switch {
		case !isRefused:
			fresh = append(fresh, change)
		case isWaiting && last.Untried && !isContested(last.Err):
			putOff = last.Err
		case isWaiting:
			w.tell(last.Err)
		case last.Untried:
			untried = append(untried, change)
		default:
			refused = append(refused, change)
		}
	}
	if putOff != nil && len(w.out.Refused) == 0 {
		w.out.Refused = append(w.out.Refused, putOff)
	}
	for _, group := range [][]*plan.Change{fresh, untried, refused} {
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

// conclude makes the refused changes of the batch wait, all for the same time, so that one sync tries them again. The
// rest were not begun. If none was accepted, however many could be tried in the time of the sync, those that differ in
// the same fields wait with the last one that was refused. The others are tried in the next turn.
func (w *execution) conclude(rest []*plan.Change) {
	b := &w.batch
	if w.isWanted() != nil {
		b.refused = nil // Nothing is remembered of what is gone, or of another spec.
	}
	for _, r := range b.refused {
		add := w.Refusals.Add
		if isContested(r.err) {
			add = w.Refusals.AddContested
		}
		add(r.attempt, r.err)
		w.wait(w.Refusals.RetryAfter(r.attempt))
	}
	if w.out.Stopped != nil {
		return
	}
	// Nothing was accepted, and the batch was given up, or its writes were the only ones of the turn, and all failed.
	isHopeless := b.accepted == 0 && (b.isGivenUp() || b.failed > 0 && b.failed == w.writes)
	// After an answer that is stale, or may pass, the whole sync is tried again soon.
	isPutOff := isHopeless && len(b.refused) > 0 && !isStale(b.last) && !mayPass(b.last)
	for _, change := range rest {
		attempt := w.attempt(change)
		if last, isRefused := w.Refusals.Get(attempt); isRefused && !last.Untried {
			w.tell(last.Err) // It is due, but was not reached.
		}
		switch {
		case isPutOff && slices.Equal(change.Fields, b.refused[len(b.refused)-1].fields):
			w.Refusals.AddLike(attempt, b.refused[len(b.refused)-1].attempt)
		case isPutOff || !isHopeless:
			w.out.More = true
		}
	}
}

// failed records a write that failed.
func (w *execution) failed(change *plan.Change, err error) {
	w.batch.failed, w.batch.inARow, w.batch.last = w.batch.failed+1, w.batch.inARow+1, err
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
	w.batch.refused = append(w.batch.refused, refused{w.attempt(change), change.Fields, err})
	if !isContested(err) {
		w.refusals = append(w.refusals, err)
	}
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
