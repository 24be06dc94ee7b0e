package writer

import (
	"cmp"
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/status"
)

// maxFailures is how many writes of an action in a row may fail before no more are begun. If the API server refuses
// everything, as beyond a quota, little is tried; if it refuses some, the others are made, because the order is random.
// Replacements, which interrupt traffic, stop at the first failure.
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

// attempt identifies the write of a Service, or without a name all writes of an action. An adoption is an update of the
// controller reference. A replacement and a creation are different attempts: once the Service is gone, its creation may
// be accepted.
func (w *execution) attempt(action plan.Action, name string) Attempt {
	if action == plan.Adopt {
		action = plan.Update
	}
	return Attempt{Owner: w.ls.UID, Generation: w.ls.Generation, Action: action, Name: name}
}

// startsSlowly reports whether the first write of an action is made alone. In a later turn, the API server has accepted
// some already, unless it refused all of that action.
func (w *execution) startsSlowly(action plan.Action) bool {
	_, isActionRefused := w.Refusals.Get(w.attempt(action, ""))
	return isActionRefused || !status.IsWriting(w.ls)
}

// due returns the changes of an action that may be tried now: first those that were never refused, then the others,
// each in random order. Those that have to wait are reported with their last answer.
func (w *execution) due(action plan.Action, changes []plan.Change) []*plan.Change {
	if len(changes) == 0 {
		return nil
	}
	fresh, refused := make([]*plan.Change, 0, len(changes)), []*plan.Change(nil)
	whole, _ := w.Refusals.Get(w.attempt(action, ""))
	isAnyRefused := !w.Refusals.IsEmpty()
	waiting, isReported := false, false
	for i := range changes {
		change := &changes[i]
		last, isRefused := Refusal{}, false
		if isAnyRefused { // Otherwise thousands of look-ups find nothing.
			last, isRefused = w.Refusals.Get(w.attempt(action, change.Name))
		}
		switch left := max(time.Until(last.RetryAt), time.Until(whole.RetryAt)); {
		case left > 0:
			waiting, isReported = true, isReported || last.Err != nil
			w.retryIn(left)
			w.report(&last)
		case isRefused:
			refused = append(refused, change)
		default:
			fresh = append(fresh, change)
		}
	}
	if waiting && !isReported {
		w.report(&whole) // None of those that wait was refused itself.
	}
	if action != plan.Replace { // If a finalizer holds the first, a retry must begin with that one again.
		for _, group := range [][]*plan.Change{fresh, refused} {
			w.Shuffle(len(group), func(i, j int) { group[i], group[j] = group[j], group[i] })
		}
	}
	return append(fresh, refused...)
}

// retryIn records how long a change has to wait. It may have become due a moment ago.
func (w *execution) retryIn(left time.Duration) {
	if left = max(left, 1); w.out.RetryAfter == 0 || left < w.out.RetryAfter {
		w.out.RetryAfter = left
	}
}

// ended records the outcome of one change, and reports whether it counts as a success.
func (w *execution) ended(change *plan.Change, stored *corev1.Service, err error) bool {
	w.writes++
	var contested error
	hasEffect := true
	if err == nil && stored != nil {
		hasEffect, contested = contestedBy(change, stored)
	}
	isGone := apierrors.IsNotFound(err) && change.Action == plan.Delete
	switch {
	case err != nil && !isGone:
		w.failed(change, err)
		return false
	case !hasEffect:
		w.failed(change, contested)
		return false
	}
	w.Refusals.Remove(w.attempt(change.Action, change.Name))
	if w.batch.accepted == 0 {
		w.Refusals.Remove(w.attempt(change.Action, ""))
	}
	if contested != nil {
		w.refuse(change, contested)
	}
	w.batch.accepted, w.batch.inARow = w.batch.accepted+1, 0
	if !isGone { // Otherwise the Service had been deleted before, and the cache lags.
		w.out.Made[change.Action] = append(w.out.Made[change.Action], change.Name)
	}
	return true
}

// contestedBy returns an error if a Service is not stored as it was written, and whether the write has changed anything
// nevertheless: if not, it is as if it had been refused. After a creation or a replacement, an update may still correct
// what differs, because admission may act on creations only: that is not contested yet.
func contestedBy(change *plan.Change, stored *corev1.Service) (hasEffect bool, err error) {
	fields, needsReplacement := change.Template.Mismatches(stored, change.Node)
	switch {
	case len(fields) == 0, change.Action == plan.Create, change.Action == plan.Replace && !needsReplacement:
		return true, nil
	case change.Action == plan.Replace:
		return false, &plan.ContestedError{Fields: fields}
	}
	return !change.Template.IsUnchanged(change.Current, stored), &plan.ContestedError{Fields: fields}
}

// failed records a write that failed.
func (w *execution) failed(change *plan.Change, err error) {
	w.batch.failed, w.batch.inARow = w.batch.failed+1, w.batch.inARow+1
	failure := &plan.WriteError{Action: change.Action, Namespace: w.ls.Namespace, Name: change.Name,
		Node: change.Node, Err: err}
	switch ClassOf(err) {
	case Terminating:
		w.out.Stopped = ErrNamespaceTerminating
	case Stale:
		w.out.Stale = append(w.out.Stale, failure)
	case Transient:
		w.out.Failed = append(w.out.Failed, failure)
	default:
		w.refuse(change, failure)
	}
}

// refuse records a refusal of this sync. Its backoff begins when the batch ends.
func (w *execution) refuse(change *plan.Change, err error) {
	attempt := w.attempt(change.Action, change.Name)
	w.batch.refused = append(w.batch.refused, refusedWrite{attempt, err})
	refusal := w.Refusals.next(attempt, err)
	w.report(&refusal)
}

// report adds a refusal of this sync, or of one before, to the outcome.
func (w *execution) report(refusal *Refusal) {
	switch {
	case refusal.IsReported():
		w.out.Refused = append(w.out.Refused, refusal.Err)
	case refusal.Err != nil:
		w.out.Denied = true
	}
}

// conclude ends a batch. The rest follows in the next turn, unless nothing was accepted and most failures were refusals
// when the batch was given up, or when the turn ended without a write of another action. Then those of the rest that
// were refused before count as refused again. If others were never tried, all writes of the action wait.
func (w *execution) conclude(ctx context.Context, rest []*plan.Change) {
	if w.out.Stopped = cmp.Or(w.out.Stopped, w.checkWanted()); w.out.Stopped != nil {
		return // Nothing is remembered of what is gone, or of another spec.
	}
	w.remember(ctx)
	b := &w.batch
	w.out.GaveUp = w.out.GaveUp || b.isGivenUp()
	w.reportRefused(rest)
	isHopeless := b.accepted == 0 && 2*len(b.refused) > b.failed && (b.isGivenUp() || b.failed == w.writes)
	if !isHopeless {
		w.out.More = w.out.More || len(rest) > 0
		return
	}
	for _, change := range rest {
		waits, err := w.attempt(change.Action, change.Name), error(nil)
		if last, isRefused := w.Refusals.Get(waits); isRefused {
			err = last.Err
		} else {
			waits, err = w.attempt(b.action, ""), b.refused[len(b.refused)-1].err
		}
		if w.Refusals.RetryAfter(waits) == 0 {
			w.Refusals.Add(waits, err)
		}
		w.retryIn(w.Refusals.RetryAfter(waits))
	}
}

// remember begins the backoff of the batch's refused changes at its end, so that one sync tries most of them again.
func (w *execution) remember(ctx context.Context) {
	var errs []error
	for _, r := range w.batch.refused {
		w.Refusals.Add(r.attempt, r.err)
		w.retryIn(w.Refusals.RetryAfter(r.attempt))
		// A condition is logged when it changes.
		if refusal, _ := w.Refusals.Get(r.attempt); !isContested(r.err) && refusal.IsReported() {
			errs = append(errs, r.err)
		}
	}
	if len(errs) > 0 {
		klog.FromContext(ctx).Error(errors.New(status.Summarize(errs)), "Services refused, trying again later",
			"localService", klog.KObj(w.ls), "after", w.out.RetryAfter)
	}
}

// reportRefused reports the last answers to changes that are due, and not tried in this turn.
func (w *execution) reportRefused(due []*plan.Change) {
	for _, change := range due {
		last, _ := w.Refusals.Get(w.attempt(change.Action, change.Name))
		w.report(&last)
	}
}
