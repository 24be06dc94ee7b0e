package writer

import (
	"cmp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// maxRefusals is how many writes of a kind in a row may fail before no more are begun. If the API server refuses
// everything, as beyond a quota, little is tried; if it refuses some, the others are made, because the order is random.
// Replacements, which delete what serves, stop at the first failure.
const maxRefusals = 10

// batch is the progress of the writes of one kind.
type batch struct {
	action                   plan.Action
	accepted, failed, inARow int
	last                     error // of those that failed
	refused                  []refused
}

// refused is a write that the API server refused.
type refused struct {
	attempt Attempt
	err     error
}

func (b *batch) isGivenUp() bool {
	return b.inARow >= maxRefusals || b.action == plan.Replace && b.failed > 0
}

// attempt identifies a change of a Service, with its action: what cannot be replaced can perhaps be created later.
func (w *execution) attempt(change *plan.Change) Attempt {
	return attempt(w.ls, string(change.Action)+" "+change.Name)
}

func attempt(ls *v1alpha1.LocalService, name string) Attempt {
	return Attempt{Owner: ls.UID, Generation: ls.Generation, Name: name}
}

// storedOtherwise identifies a change of a Service that was stored differently than it was written.
func (w *execution) storedOtherwise(change *plan.Change) Attempt {
	return attempt(w.ls, change.Name+" was stored otherwise")
}

// isStoredOtherwise reports whether a change was made before, and was stored differently than it was written.
func (w *execution) isStoredOtherwise(change *plan.Change) bool {
	if change.Action != plan.Update && change.Action != plan.Adopt {
		return false // isLasting remembers no others.
	}
	_, isRemembered := w.Refusals.Get(w.storedOtherwise(change))
	return isRemembered
}

// due returns the changes of a kind that may be tried now: first the fresh ones, then those that were put off because
// others were refused, then those that were refused themselves, and last those that were stored otherwise: where they
// end in contested fields, all Services have the rest of these fields by then.
func (w *execution) due(action plan.Action, changes []plan.Change) (due []plan.Change) {
	var fresh, untried, refused, otherwise []plan.Change
	var putOff error
	for i := range changes {
		if changes[i].Action != action {
			continue
		}
		attempt := w.attempt(&changes[i])
		last, isRefused := w.Refusals.Get(attempt)
		isWaiting := isRefused && w.wait(w.Refusals.RetryAfter(attempt))
		switch {
		case !isRefused && w.isStoredOtherwise(&changes[i]):
			otherwise = append(otherwise, changes[i])
		case !isRefused:
			fresh = append(fresh, changes[i])
		case isWaiting && last.Untried:
			putOff = last.Err
		case isWaiting:
			w.out.Refused = append(w.out.Refused, last.Err)
		case last.Untried:
			untried = append(untried, changes[i])
		default:
			refused = append(refused, changes[i])
		}
	}
	if putOff != nil && len(w.out.Refused) == 0 {
		w.out.Refused = append(w.out.Refused, putOff)
	}
	for _, group := range [][]plan.Change{fresh, untried, refused, otherwise} {
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
// rest were not begun. If no change was accepted, all of them wait; if the batch was given up, those wait that were
// refused before.
func (w *execution) conclude(rest []plan.Change) {
	b := &w.batch
	for _, r := range b.refused {
		w.refuse(r.attempt, r.err, w.Refusals.Add)
	}
	if cmp.Or(w.out.Stopped, w.contested) != nil {
		return
	}
	isAllFailed, isGivenUp := b.failed > 0 && b.accepted == 0, b.isGivenUp()
	for i := range rest {
		attempt := w.attempt(&rest[i])
		last, isRefused := w.Refusals.Get(attempt)
		isRefused = isRefused && !last.Untried
		switch {
		case (isAllFailed || isGivenUp) && (isStale(b.last) || mayPass(b.last)): // The sync is tried again soon.
		case isAllFailed, isGivenUp && isRefused:
			w.refuse(attempt, b.last, w.Refusals.AddLike)
		default:
			w.out.More = true
		}
		if isRefused {
			w.out.Refused = append(w.out.Refused, last.Err)
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
		w.refused = append(w.refused, err)
		w.batch.refused = append(w.batch.refused, refused{w.attempt(change), err})
		w.out.Refused = append(w.out.Refused, err)
	}
}

// refuse makes a refused attempt wait. It remembers nothing if the LocalService is gone, or its spec has changed.
func (w *execution) refuse(attempt Attempt, err error, add func(Attempt, error)) {
	if w.isWanted() == nil {
		add(attempt, err)
	}
	w.wait(w.Refusals.RetryAfter(attempt))
}

// isLasting looks at how a change was stored, and reports whether it had an effect. If admission has set fields to
// something else, they are contested if that would happen each time: the change had no effect, or not the whole effect
// for the second time. So a change that admission undoes in part is still made to all Services.
func (w *execution) isLasting(change *plan.Change, stored *corev1.Service) bool {
	fields := change.Template.Mismatches(stored, change.Node)
	if len(fields) == 0 {
		return true
	}
	switch change.Action {
	case plan.Replace: // Another one would delete what serves again.
		w.contest(fields)
		return true
	case plan.Update, plan.Adopt:
		if w.isStoredOtherwise(change) || change.Template.IsUnchanged(change.Current, stored) {
			w.contest(fields)
			return false
		}
		w.Refusals.AddContested(w.storedOtherwise(change), &contestedError{fields})
	}
	w.out.Stale = append(w.out.Stale, &contestedError{fields})
	return true
}

// contestedError has the names of fields that the API server returned differently than they were written: an admission
// webhook or policy sets them. They count as refused.
type contestedError struct{ fields []string }

func (e *contestedError) Error() string { return "something else sets " + strings.Join(e.fields, ", ") }

// contestedFields is the name of the attempt to write fields that were contested.
const contestedFields = "fields"

// ContestedFields returns the names of the fields of a LocalService's Services that are left as something else sets
// them, sorted. Otherwise every sync would write them.
func (s *Services) ContestedFields(ls *v1alpha1.LocalService) []string {
	attempt := attempt(ls, contestedFields)
	refusal, _ := s.Refusals.Get(attempt)
	e, isContested := refusal.Err.(*contestedError)
	if !isContested || s.Refusals.RetryAfter(attempt) == 0 {
		return nil
	}
	return e.fields
}

// contest records that fields are contested: the remaining changes are planned again, without them. Missing Services
// are still created.
func (w *execution) contest(fields []string) {
	known := w.ContestedFields(w.ls)
	err := &contestedError{sets.List(sets.New(known...).Insert(fields...))}
	if len(err.fields) > len(known) {
		w.Refusals.AddContested(attempt(w.ls, contestedFields), err)
	}
	w.contested = reconcile.Stale(err)
}
