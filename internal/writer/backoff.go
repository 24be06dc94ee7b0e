package writer

import (
	"time"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
)

// attempt identifies the write of a Service.
func (w *execution) attempt(service string) reconcile.Attempt {
	return reconcile.Attempt{Owner: w.ls.UID, Generation: w.ls.Generation, Name: service}
}

// untried identifies the writes that were never tried, and putOff those that were not tried again, because others like
// them were refused. No Service has a name with a '/'.
func (w *execution) untried(action plan.Action) reconcile.Attempt {
	return w.attempt("/" + string(action))
}

func (w *execution) putOff(action plan.Action) reconcile.Attempt {
	return w.attempt("/" + string(action) + "/again")
}

// due returns the changes of a kind that may be tried now: first the fresh ones, which were not refused before.
func (w *execution) due(action plan.Action, changes []plan.Change) (due []plan.Change, fresh int) {
	var refused []plan.Change
	waiting := 0
	untried := w.Refusals.Left(w.untried(action))
	putOff := max(untried, w.Refusals.Left(w.putOff(action)))
	for i := range changes {
		if changes[i].Action != action {
			continue
		}
		attempt := w.attempt(changes[i].Name)
		last, isRefused := w.Refusals.Get(attempt)
		switch {
		case !isRefused && w.wait(untried):
			waiting++
		case !isRefused:
			due = append(due, changes[i])
		case w.wait(max(putOff, w.Refusals.Left(attempt))):
			w.out.Refused = append(w.out.Refused, last.Err)
		default:
			refused = append(refused, changes[i])
		}
	}
	if pause, _ := w.Refusals.Get(w.untried(action)); waiting > 0 && len(w.out.Refused) == 0 {
		w.out.Refused = append(w.out.Refused, pause.Err)
	}
	if action == plan.Replace {
		// What a finalizer keeps stays first: no other goes while the cache lags.
		return append(due, refused...), len(due)
	}
	for _, group := range [][]plan.Change{due, refused} {
		w.Shuffle(len(group), func(i, j int) { group[i], group[j] = group[j], group[i] })
	}
	return append(due, refused...), len(due)
}

// wait takes in that a change has to wait for a while, and reports whether it has.
func (w *execution) wait(left time.Duration) bool {
	if left > 0 && (w.out.RetryAfter == 0 || left < w.out.RetryAfter) {
		w.out.RetryAfter = left
	}
	return left > 0
}

// conclude takes in what became of the writes of a kind. Of those that were due, so many were begun; the fresh ones,
// which were never tried, come first.
func (w *execution) conclude(action plan.Action, due []plan.Change, fresh, begun int, failed []attempted, err error) {
	for _, f := range failed {
		w.failed(&due[f.i], f.err)
	}
	known := due[max(fresh, begun):] // They were refused before, and not tried again.
	for i := range known {
		if last, isRefused := w.Refusals.Get(w.attempt(known[i].Name)); isRefused {
			w.out.Refused = append(w.out.Refused, last.Err)
		}
	}
	untried, isAllFailed := max(fresh-begun, 0), len(failed) > 0 && len(failed) == begun
	if begun > len(failed) { // Something was accepted.
		w.Refusals.Remove(w.untried(action))
		w.Refusals.Remove(w.putOff(action))
	}
	switch {
	case err == errTimeUp && !isAllFailed:
		w.out.More = true
	case err == errGivenUp && !isAllFailed:
		// Each of the others may be accepted, and is refused only once. If the API server is busy, the error is
		// retried.
		isRefused := w.giveUp(action, 0, len(known), failed[len(failed)-1].err)
		w.out.More = w.out.More || isRefused && untried > 0
	case err == errGivenUp, isAllFailed && (err == errUnsafe || err == errTimeUp):
		w.giveUp(action, untried, len(known), failed[len(failed)-1].err)
	}
}

// giveUp has changes wait because too many others were refused: fresh ones, which were never tried, and known ones,
// which were refused before.
func (w *execution) giveUp(action plan.Action, fresh, known int, last error) (isRefused bool) {
	if isStale(last) || mayPass(last) {
		return false // All of it is tried again soon.
	}
	for attempt, n := range map[reconcile.Attempt]int{w.untried(action): fresh, w.putOff(action): known} {
		if n > 0 {
			w.refuse(attempt, last)
		}
	}
	return true
}

// failed takes in a write that failed.
func (w *execution) failed(change *plan.Change, err error) {
	switch {
	case isStale(err):
		w.out.Stale = append(w.out.Stale, err)
	case mayPass(err):
		w.out.Failed = append(w.out.Failed, err)
	case isTerminating(err): // Nobody can act on this. If it was remembered, the next sync would report it.
		w.out.Refused = append(w.out.Refused, err)
	default:
		w.refused = append(w.refused, err)
		w.refuse(w.attempt(change.Name), err)
		w.out.Refused = append(w.out.Refused, err)
	}
}

// refuse has an attempt wait that was refused. Nothing is remembered if the LocalService is gone, or its spec is
// another by now.
func (w *execution) refuse(attempt reconcile.Attempt, err error) {
	if w.isWanted() == nil {
		w.Refusals.Add(attempt, err)
	}
	w.wait(w.Refusals.Left(attempt))
}
