package writer

import (
	"cmp"
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/status"
)

// maxFailures limits how many writes of an action may fail in a row before no more begin. If the API server refuses
// every write, as beyond a quota, few are tried. If it refuses some, the others are still made, because the order is
// random.
const maxFailures = 10

// batch tracks the writes of one action.
type batch struct {
	action                   plan.Action
	accepted, failed, inARow int
	refused                  []refusedWrite
}

// refusedWrite pairs a write that the API server refused, or stored differently, with its error.
type refusedWrite struct {
	attempt Attempt
	err     error
}

func (b *batch) isGivenUp() bool {
	return b.inARow >= maxFailures
}

// attempt identifies the write of a Service or, without a name, all writes of an action. An adoption counts as an
// update of the controller reference.
func (t *turn) attempt(action plan.Action, name string) Attempt {
	if action == plan.Adopt {
		action = plan.Update
	}
	return Attempt{Owner: t.ls.UID, Generation: t.ls.Generation, Action: action, Name: name}
}

// startsSlowly reports whether the first write of an action is made alone: yes in a first turn, and while all writes
// of the action are refused. In later turns, the API server has already accepted some.
func (t *turn) startsSlowly(action plan.Action) bool {
	return t.Refusals.Get(t.attempt(action, "")).Err != nil || !status.IsWriting(t.ls)
}

// due returns the changes of an action that may be tried now, each group in random order: first those that were never
// refused, then the others. It reports the last answers to those that still have to wait. An update that something else
// has undone waits, too, and one that Kubernetes does not allow is never due.
func (t *turn) due(ctx context.Context, action plan.Action, changes []plan.Change) []*plan.Change {
	if len(changes) == 0 {
		return nil
	}
	fresh, refused := make([]*plan.Change, 0, len(changes)), []*plan.Change(nil)
	whole := t.Refusals.Get(t.attempt(action, ""))
	waiting, isReported := false, false
	for i := range changes {
		change := &changes[i]
		if err := checkMutable(change); err != nil { // That takes no request, so nothing waits for it.
			t.out.Refused = append(t.out.Refused, t.failure(change, err))
			continue
		}
		last := t.Refusals.Get(t.attempt(action, change.Name))
		if undone := t.undone(ctx, change); undone != nil {
			last = t.Refusals.AddUndone(t.attempt(action, change.Name), undone)
		}
		switch left := max(last.left(change.Sum), time.Until(whole.RetryAt)); {
		case left > 0:
			waiting, isReported = true, isReported || last.Err != nil
			t.retryIn(left)
			t.report(last)
		case last.Err != nil:
			refused = append(refused, change)
		default:
			fresh = append(fresh, change)
		}
	}
	if waiting && !isReported {
		t.report(whole) // None of the waiting changes was refused by itself.
	}
	for _, group := range [][]*plan.Change{fresh, refused} {
		t.Shuffle(len(group), func(i, j int) { group[i], group[j] = group[j], group[i] })
	}
	return append(fresh, refused...)
}

// undone returns what to report if something else has undone an update, which must be made again; nil if not. Most
// likely it has done so to all Services, so only one of them is asked for who it was.
func (t *turn) undone(ctx context.Context, change *plan.Change) *status.ContestedError {
	if t.attempt(change.Action, "").Action != plan.Update {
		return nil
	}
	fields := t.Refusals.Undone(t.attempt(plan.Update, change.Name), change.Fields, change.Sum)
	if len(fields) == 0 {
		return nil
	}
	if t.rival == nil {
		var paths [][]string
		for _, field := range fields {
			paths = append(paths, plan.PathOf(field))
		}
		manager, isCurrent := t.rivalOf(ctx, corev1.SchemeGroupVersion.WithResource("services"), change.Current, paths...)
		t.rival = &rival{manager, isCurrent}
	}
	if !t.rival.isCurrent {
		return nil // The write will fail, and the sync is tried again.
	}
	return &status.ContestedError{Object: "Service " + change.Name, Fields: fields, Manager: t.rival.manager}
}

// retryIn records how long a change has to wait. The time may have just run out.
func (t *turn) retryIn(left time.Duration) {
	if left = max(left, 1); t.out.RetryAfter == 0 || left < t.out.RetryAfter {
		t.out.RetryAfter = left
	}
}

// ended records the outcome of one change, and reports whether it counts as a success.
func (t *turn) ended(change *plan.Change, stored *corev1.Service, err error) bool {
	t.writes++
	var contested error
	if err == nil && stored != nil {
		contested, err = contestedBy(change, stored)
	}
	isGone := isAbsent(err) && change.Action == plan.Delete
	if err != nil && !isGone {
		t.failed(change, err)
		return false
	}
	if attempt := t.attempt(change.Action, change.Name); attempt.Action == plan.Update {
		t.Refusals.Made(attempt, change.Fields, change.Sum)
	} else {
		t.Refusals.Remove(attempt)
		t.Refusals.Remove(t.attempt(plan.Update, change.Name)) // of another Service of that name
	}
	if t.batch.accepted == 0 {
		t.Refusals.Remove(t.attempt(change.Action, ""))
	}
	if contested != nil {
		t.refuse(change, contested)
	}
	t.batch.accepted, t.batch.inARow = t.batch.accepted+1, 0
	if !isGone { // Otherwise the Service was deleted before, and the cache lags.
		t.out.Made[change.Action] = append(t.out.Made[change.Action], change.Name)
	}
	return true
}

// failed records a write that failed.
func (t *turn) failed(change *plan.Change, err error) {
	t.batch.failed, t.batch.inARow = t.batch.failed+1, t.batch.inARow+1
	failure := t.failure(change, err)
	switch ClassOf(err) {
	case Terminating:
		t.out.Stopped = ErrNamespaceTerminating
	case Stale:
		t.out.Stale = append(t.out.Stale, failure)
	case Transient:
		t.out.Failed = append(t.out.Failed, failure)
	default:
		t.refuse(change, failure)
	}
}

func (t *turn) failure(change *plan.Change, err error) *status.WriteError {
	return &status.WriteError{Action: change.Action, Namespace: t.ls.Namespace, Name: change.Name, Node: change.Node,
		Err: err}
}

// refuse records that a change was refused in this turn. Its backoff begins when the batch ends.
func (t *turn) refuse(change *plan.Change, err error) {
	attempt := t.attempt(change.Action, change.Name)
	t.batch.refused = append(t.batch.refused, refusedWrite{attempt, err})
	t.report(t.Refusals.next(attempt, err))
}

// report adds a refusal, of this turn or an earlier one, to the outcome.
func (t *turn) report(refusal Refusal) {
	switch {
	case refusal.IsReported():
		t.out.Refused = append(t.out.Refused, refusal.Err)
	case refusal.Err != nil:
		t.out.Denied = true
	}
}

// conclude ends a batch. The rest is left to the next turn. If nothing was accepted and most failures were refusals,
// it backs off instead, provided that the batch gave up or that the turn wrote nothing else: each change refused
// before waits by itself, the others wait together.
func (t *turn) conclude(ctx context.Context, rest []*plan.Change) {
	if t.out.Stopped = cmp.Or(t.out.Stopped, t.checkWanted()); t.out.Stopped != nil {
		return // Refusals of a deleted LocalService, or of another spec, are not remembered.
	}
	t.remember(ctx)
	b := &t.batch
	t.out.GaveUp = t.out.GaveUp || b.isGivenUp()
	t.reportRefused(rest)
	isHopeless := b.accepted == 0 && 2*len(b.refused) > b.failed && (b.isGivenUp() || b.failed == t.writes)
	if !isHopeless {
		t.out.More = t.out.More || len(rest) > 0
		return
	}
	for _, change := range rest {
		waits, err := t.attempt(change.Action, change.Name), error(nil)
		// A denial counts only when it is the answer to a try: see Refusal.IsReported.
		if last := t.Refusals.Get(waits); last.IsReported() {
			err = last.Err
		} else {
			waits, err = t.attempt(b.action, ""), b.refused[len(b.refused)-1].err
		}
		if t.Refusals.RetryAfter(waits) == 0 {
			t.Refusals.Add(waits, err)
		}
		t.retryIn(t.Refusals.RetryAfter(waits))
	}
}

// remember starts the backoff of all refused changes when their batch ends, so that a single sync retries most of
// them.
func (t *turn) remember(ctx context.Context) {
	var errs []error
	for _, r := range t.batch.refused {
		refusal := t.Refusals.Add(r.attempt, r.err)
		t.retryIn(time.Until(refusal.RetryAt))
		// Contested fields are logged when their condition changes.
		if !isContested(r.err) && refusal.IsReported() {
			errs = append(errs, r.err)
		}
	}
	if len(errs) > 0 {
		klog.FromContext(ctx).Error(errors.New(status.Summarize(errs)), "Services refused, trying again later",
			"localService", klog.KObj(t.ls), "after", t.out.RetryAfter)
	}
}

// reportRefused reports the last answers to changes that are due but not tried in this turn.
func (t *turn) reportRefused(due []*plan.Change) {
	for _, change := range due {
		t.report(t.Refusals.Get(t.attempt(change.Action, change.Name)))
	}
}

// reportHeld reports a contested write of a short time ago: it may be contested again in a moment.
func (t *turn) reportHeld() {
	held := t.Refusals.Get(contestedOf(t.attempt(plan.Update, "")))
	if left := time.Until(held.RetryAt); left > 0 {
		t.out.Refused = append(t.out.Refused, held.Err)
		t.retryIn(left)
	}
}
