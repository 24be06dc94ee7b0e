package writer

import (
	"cmp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// maxRefusals is how many writes of a kind in a row may fail before no more are begun. Where the API server refuses
// everything, as beyond a quota, little is tried; where it refuses some, the others are made, because the order is
// random. Of replacements, which take away what serves, the first that fails is the last.
const maxRefusals = 10

// batch is what became so far of the writes of one kind.
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

// attempt identifies a change of a Service. What cannot be replaced can perhaps be created, once it is gone.
func (w *execution) attempt(change *plan.Change) Attempt {
	return attempt(w.ls, string(change.Action)+" "+change.Name)
}

func attempt(ls *v1alpha1.LocalService, name string) Attempt {
	return Attempt{Owner: ls.UID, Generation: ls.Generation, Name: name}
}

// due returns the changes of a kind that may be tried now: first the fresh ones, then those that were put off because
// others were refused, and last those that were refused themselves.
func (w *execution) due(action plan.Action, changes []plan.Change) (due []plan.Change) {
	var fresh, untried, refused []plan.Change
	var putOff error
	for i := range changes {
		if changes[i].Action != action {
			continue
		}
		attempt := w.attempt(&changes[i])
		last, isRefused := w.Refusals.Get(attempt)
		isWaiting := w.wait(w.Refusals.Left(attempt))
		switch {
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
	for _, group := range [][]plan.Change{fresh, untried, refused} {
		if action != plan.Replace { // What a finalizer keeps stays first: no other goes while the cache lags.
			w.Shuffle(len(group), func(i, j int) { group[i], group[j] = group[j], group[i] })
		}
		due = append(due, group...)
	}
	return due
}

// wait takes in that a change has to wait for a while, and reports whether it has.
func (w *execution) wait(left time.Duration) bool {
	if left > 0 && (w.out.RetryAfter == 0 || left < w.out.RetryAfter) {
		w.out.RetryAfter = left
	}
	return left > 0
}

// conclude has those changes of the batch wait that were refused, all for the same time, so that they are tried again
// in one sync. Of the rest, which were not begun, those wait as well that were refused before, where little else was
// accepted; and all, where nothing was.
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

// failed takes in a write that failed.
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

// refuse has an attempt wait that was refused. Nothing is remembered if the LocalService is gone, or its spec is
// another by now.
func (w *execution) refuse(attempt Attempt, err error, add func(Attempt, error)) {
	if w.isWanted() == nil {
		add(attempt, err)
	}
	w.wait(w.Refusals.Left(attempt))
}

// contestedError has the names of fields that have come back from the API server other than they were written: an
// admission webhook or policy sets them. They count as refused.
type contestedError struct{ fields []string }

func (e *contestedError) Error() string { return "something else sets " + strings.Join(e.fields, ", ") }

// contestedFields is the name of the attempt to write fields that were contested.
const contestedFields = "fields"

// ContestedFields returns the names of the fields of a LocalService's Services that are left as something else sets
// them, sorted. Without that they would be written at every sync.
func (s *Services) ContestedFields(ls *v1alpha1.LocalService) []string {
	attempt := attempt(ls, contestedFields)
	refusal, _ := s.Refusals.Get(attempt)
	e, isContested := refusal.Err.(*contestedError)
	if !isContested || s.Refusals.Left(attempt) == 0 {
		return nil
	}
	return e.fields
}

// contest takes in that fields are contested: what is still to be changed is planned again, without them. What is
// missing is made.
func (w *execution) contest(fields []string) {
	known := w.ContestedFields(w.ls)
	err := &contestedError{sets.List(sets.New(known...).Insert(fields...))}
	if len(err.fields) > len(known) {
		w.Refusals.AddContested(attempt(w.ls, contestedFields), err)
	}
	w.contested = reconcile.Stale(err)
}
