package writer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// minTurn and maxTurn limit how long a turn begins writes, depending on whether other work waits for its end. Then the
// sync reports, and the LocalService is planned again in its next turn. Writes under way are always finished.
const minTurn, maxTurn = 500 * time.Millisecond, 5 * time.Second

// ErrNamespaceTerminating stops the writes of a plan: nothing that is written to the namespace will last.
var ErrNamespaceTerminating = errors.New("the namespace is being deleted")

// actions lists the actions of writes in the order in which they are made. Deletions come first, because they make
// room in a quota; adoptions need none.
var actions = []plan.Action{plan.Delete, plan.Adopt, plan.Create, plan.Update}

// WriteServices makes the changes of a plan, one action after the other. It skips changes that still wait after a
// refusal. isAwaited reports whether other work waits for the end of this turn. When time is up, no more writes begin,
// but each batch still records whether there is more to do.
func (w *Writer) WriteServices(ctx context.Context, ls *v1alpha1.LocalService, p *plan.Plan,
	isAwaited func() bool) status.Outcome {
	began := time.Now()
	t := &turn{
		Writer:      w,
		ls:          ls,
		checkWanted: func() error { return cmp.Or(ctx.Err(), w.checkCurrent(ls)) },
		confirm:     sync.OnceValue(func() error { return w.confirm(ctx, ls) }),
		isTimeUp: func() bool {
			taken := time.Since(began)
			return taken >= maxTurn || taken >= minTurn && isAwaited()
		},
		out: status.Outcome{Made: map[plan.Action][]string{}},
	}
	for _, action := range actions {
		if t.write(ctx, action, p.Changes[action]); t.out.Stopped != nil {
			return t.out
		}
	}
	t.out.Refused = append(t.out.Refused, w.refusedCopies(ls, p.Copies.Changes)...)
	t.reportHeld()
	t.conclude()
	return t.out
}

// turn makes the changes of one plan.
type turn struct {
	*Writer
	ls *v1alpha1.LocalService
	// checkWanted returns an error if the controller is stopping, or if the plan is for another spec. It is called
	// before each write, at the end of each batch, and immediately before a Service is deleted, because the previous
	// steps may take time.
	checkWanted func() error
	// confirm reads the LocalService from the API server, once before the first write: the cache may lag after
	// `kubectl delete --cascade=orphan`.
	confirm  func() error
	isTimeUp func() bool

	writes int     // that have ended
	setter *setter // of updates that something else has undone; nil until one was
	out    status.Outcome
}

// write makes the changes of one action that may be tried now, and reports the others.
func (t *turn) write(ctx context.Context, action plan.Action, changes []plan.Change) {
	if action == plan.Update || action == plan.Adopt {
		t.findUndone(ctx, changes)
	}
	whole := t.Refusals.Get(t.attempt(action, ""))
	fresh, refused, waiting := split(changes, func(c *plan.Change) Refusal {
		return t.Refusals.Get(t.attemptOf(c))
	}, whole)
	t.reportWaiting(waiting, whole)
	for _, group := range [][]*plan.Change{fresh, refused} {
		t.Shuffle(len(group), func(i, j int) { group[i], group[j] = group[j], group[i] })
	}
	b := batch{turn: t, action: action, changes: append(fresh, refused...)}
	if len(b.changes) == 0 {
		return
	}
	if t.out.Stopped = t.confirm(); t.out.Stopped == nil {
		b.run(ctx)
		b.finish(ctx)
	}
}

// attempt identifies the write of a Service or, without a name, all writes of an action. An adoption counts as an
// update of the controller reference.
func (t *turn) attempt(action plan.Action, name string) Attempt {
	if action == plan.Adopt {
		action = plan.Update
	}
	return Attempt{Owner: t.ls.UID, Generation: t.ls.Generation, Action: action, Name: name}
}

// attemptOf identifies a change. The creation of what should be something else, because a label of its node was
// corrected, is another one.
func (t *turn) attemptOf(c *plan.Change) Attempt {
	attempt := t.attempt(c.Action, c.Name)
	if c.Action == plan.Create {
		attempt.Sum = c.Sum
	}
	return attempt
}

// waiting pairs a change that may not be tried yet with the refusal of the same write, if there is one.
type waiting struct {
	refusal Refusal
	left    time.Duration
}

// split divides the changes of an action into those that were never refused, those that were and may be tried again,
// and those that have to wait: by themselves, or as the whole action does.
func split(changes []plan.Change, last func(*plan.Change) Refusal, whole Refusal) (fresh, refused []*plan.Change,
	wait []waiting) {
	for i := range changes {
		change := &changes[i]
		refusal := last(change)
		left := max(refusal.left(change.Fields, change.Sum), whole.retryAfter())
		switch {
		case left > 0:
			wait = append(wait, waiting{refusal, left})
		case refusal.Err != nil:
			refused = append(refused, change)
		default:
			fresh = append(fresh, change)
		}
	}
	return fresh, refused, wait
}

// findUndone records as refused those updates which something else has undone. Most likely it has done so to all
// Services, so only one of them is asked for who it was.
func (t *turn) findUndone(ctx context.Context, changes []plan.Change) {
	for i := range changes {
		change := &changes[i]
		attempt := t.attemptOf(change)
		fields := t.Refusals.Undone(attempt, change.Fields, change.Sum)
		if len(fields) == 0 {
			continue
		}
		if t.setter == nil {
			var paths [][]string
			for _, field := range fields {
				paths = append(paths, plan.PathOf(field))
			}
			t.setter = new(t.setterOf(ctx, corev1.SchemeGroupVersion.WithResource("services"), change.Current, paths...))
		}
		_, _ = t.addUndone(attempt, "Service "+change.Name, fields, *t.setter) // If it has changed, the write will fail.
	}
}

// reportWaiting reports the last answers to writes that may not be tried yet.
func (t *turn) reportWaiting(wait []waiting, whole Refusal) {
	for _, w := range wait {
		t.retryIn(w.left)
		t.report(w.refusal)
	}
	isRefused := func(w waiting) bool { return w.refusal.Err != nil }
	if len(wait) > 0 && !slices.ContainsFunc(wait, isRefused) {
		t.report(whole)
	}
}

// reportHeld reports a contested write of a short time ago: it may be contested again in a moment.
func (t *turn) reportHeld() {
	held := t.Refusals.Get(contestedOf(t.attempt(plan.Update, "")))
	if left := held.retryAfter(); left > 0 {
		t.out.Refused = append(t.out.Refused, held.Err)
		t.retryIn(left)
	}
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

// retryIn records how long a change has to wait. The time may have just run out.
func (t *turn) retryIn(left time.Duration) {
	if left = max(left, 1); t.out.RetryAfter == 0 || left < t.out.RetryAfter {
		t.out.RetryAfter = left
	}
}

// conclude decides what follows from a turn: another turn at once, a retry with backoff, or nothing.
func (t *turn) conclude() {
	out, hasMade := &t.out, len(t.out.Made) > 0
	switch {
	case out.More && hasMade:
		out.Failed, out.Stale = nil, nil // The next turn tries them again.
		return
	case out.More && len(out.Failed)+len(out.Stale) == 0:
		out.Stale = append(out.Stale, staleError("nothing was made in this turn"))
	}
	out.More = false
	isFromAPI := func(err error) bool { return !errors.Is(err, errStale) }
	if !hasMade && len(out.Stale) > 0 && len(out.Refused)+len(out.Failed) == 0 &&
		!slices.ContainsFunc(out.Stale, isFromAPI) {
		// Live reads have shown that a cache lags. Nothing was written, so there is nothing to report.
		out.Stopped = out.Err(cache.KeyOf(t.ls))
	}
}

// writeService makes one change, and returns the Service as the API server stored it.
func (t *turn) writeService(ctx context.Context, change *plan.Change) (service *corev1.Service, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	client := t.Kube.CoreV1().Services(t.ls.Namespace)
	switch change.Action {
	case plan.Create:
		service, err = client.Create(ctx, change.Template.Service(change.Node),
			metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	case plan.Delete:
		err = t.deleteService(ctx, change)
	default:
		var patch []byte
		if patch, err = change.Template.Patch(change.Current, change.Node); err == nil {
			service, err = client.Patch(ctx, change.Name, types.MergePatchType, patch,
				metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
		}
	}
	metrics.ServiceWrites.WithLabelValues(string(change.Action), metrics.Result(err)).Inc()
	if err == nil && service != nil {
		t.Observed.Wrote(cache.KeyOf(t.ls), t.Caches.Services, service.ResourceVersion)
		err = checkController(service, t.ls)
	}
	if err != nil {
		return nil, err
	}
	if node := t.Caches.Nodes.Get("", change.Node); node != nil && change.Action == plan.Create {
		metrics.ObserveSince(metrics.NodeFanout, node.Created(), t.ls.CreationTimestamp.Time)
	}
	klog.FromContext(ctx).V(4).Info("Change made", "action", change.Action,
		"service", klog.KRef(t.ls.Namespace, change.Name), "node", change.Node)
	return service, nil
}

// deleteService deletes a Service that no node wants, once the API server has confirmed that: the cache of nodes may lag
// behind that of Services. It deletes the version that the plan has seen: a Service that was changed since may belong
// to another object. It first checks whether the plan is still wanted, because the confirmation may have taken time.
func (t *turn) deleteService(ctx context.Context, change *plan.Change) error {
	labels, err := t.nodeLabels(ctx, change.Node)
	if err != nil {
		return err
	}
	if labels != nil && (change.IfNodeGone || plan.Wants(t.ls, change.Node, labels, change.Name)) {
		return staleError("its node %s exists", change.Node)
	}
	if err := t.checkWanted(); err != nil {
		return err
	}
	return t.Kube.CoreV1().Services(t.ls.Namespace).Delete(ctx, change.Name, ifUnchanged(change.Current))
}

// ifUnchanged returns the options of a deletion of what the cache has: neither of a later version, nor of a successor.
func ifUnchanged(object metav1.Object) metav1.DeleteOptions {
	uid, version := object.GetUID(), object.GetResourceVersion()
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
}

// checkController returns an error if a Service was stored with another controller: the garbage collector could
// delete it each time it is created. A Service without a controller is adopted later.
func checkController(service *corev1.Service, ls *v1alpha1.LocalService) error {
	if controller := metav1.GetControllerOf(service); controller != nil && controller.UID != ls.UID {
		return refuse("it was stored with the controller %q %q instead of this LocalService: exempt it from the "+
			"admission webhook or policy that changes metadata.ownerReferences", controller.Kind, controller.Name)
	}
	return nil
}
