package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// Timeout bounds one write. A write that has begun is finished also during a shutdown.
	Timeout = 30 * time.Second
	// One sync begins writes for syncTime; where the API server is slow, for slowSyncTime, or until it has begun
	// syncWrites, which is time for many at once. The LocalService then waits for its next turn, and is planned again.
	syncTime     = 500 * time.Millisecond
	slowSyncTime = 10 * syncTime
	syncWrites   = 64
	// ObserveAfter is when the controller looks again at what it wrote, whatever the watch reports: an object may be
	// deleted before the watch has shown that it existed.
	ObserveAfter = 5 * time.Second

	eventDeletingServices = "DeletingServices"
)

// ErrNamespaceTerminating stops the writes of a plan: nothing that is written to the namespace will last.
var ErrNamespaceTerminating = errors.New("the namespace is being deleted")

// Why not all changes of one kind were tried.
var (
	errTimeUp    = errors.New("the time of this sync is over")
	errUnsafe    = errors.New("no Service is replaced while others are refused")
	errContested = errors.New("something else changes what is written")
)

// Dependencies are what writes are made with.
type Dependencies struct {
	Kube     kubernetes.Interface
	Metadata metadata.Interface
	Clock    clock.PassiveClock
	Caches   *cache.Caches
	Observed *cache.Observed
	Refusals *reconcile.Refusals
	// Shuffle is rand.Shuffle, or one whose order can be repeated.
	Shuffle func(n int, swap func(i, j int))
}

// NewDependencies returns what the writes of one controller are made with, of which it remembers its own.
func NewDependencies(kube kubernetes.Interface, meta metadata.Interface, clk clock.PassiveClock, caches *cache.Caches,
	shuffle func(n int, swap func(i, j int))) Dependencies {
	return Dependencies{Kube: kube, Metadata: meta, Clock: clk, Caches: caches, Observed: cache.NewObserved(),
		Refusals: reconcile.NewRefusals(clk, reconcile.RememberMany), Shuffle: shuffle}
}

// Services makes the changes of plans.
type Services struct {
	Dependencies
	nodes  *liveNodes
	writer *Writer
	// Contested are the fields that the API server's answers showed to be contested.
	Contested Contested
	record    func(regarding runtime.Object, eventType, reason, note string)
}

// NewServices makes Services with so many writes at a time, which record an event before many are deleted.
func NewServices(deps Dependencies, concurrency int,
	record func(regarding runtime.Object, eventType, reason, note string)) *Services {
	return &Services{Dependencies: deps, nodes: newLiveNodes(deps.Metadata), writer: New(concurrency),
		Contested: newContested(), record: record}
}

// actions are the actions of writes, in the order in which they are made. Deletions come first, because they make room
// in a quota; adoptions need none. Replacements come late, and alone, because they delete what serves; and last what
// nobody needs any more.
var actions = []plan.Action{plan.Delete, plan.Adopt, plan.Create, plan.Update, plan.Replace, plan.Retire}

// Write makes the changes of a plan, in random order, but first those that were not refused before. Those that were refused a moment ago are not tried. If there is anything to write, the LocalService is first read from
// the API server, because the cache may lag: it may be deleted, and its Services orphaned by the same command.
func (s *Services) Write(ctx context.Context, ls *v1alpha1.LocalService, p *plan.Plan) Outcome {
	w := &execution{Services: s, ls: ls, began: s.Clock.Now(),
		out: Outcome{Made: map[plan.Action][]string{}, Contested: sets.Set[string]{}}}
	isCurrent := false
	for _, action := range actions {
		due, fresh := w.due(action, p.Changes)
		if len(due) == 0 || w.mayBegin(ctx, action) == errUnsafe {
			continue
		}
		if w.out.Stopped == nil && !isCurrent {
			if w.out.Stopped, isCurrent = s.isCurrent(ctx, ls), true; w.out.Stopped == nil {
				s.announce(ls, p)
			}
		}
		begun, failed, err := s.writer.Each(len(due), func() error { return w.mayBegin(ctx, action) },
			func(i int) error { return w.one(ctx, &due[i]) })
		w.conclude(action, due, fresh, begun, failed, err)
		if w.out.Stopped != nil || err == errContested {
			break
		}
	}
	if len(w.refused) > 0 {
		klog.FromContext(ctx).Error(errors.New(status.Summarize(w.refused)), "Services refused, trying again later",
			"localService", klog.KObj(ls), "after", w.out.RetryAfter)
	}
	return w.out
}

// announce records an event, before anything is written, of what somebody may not have meant: once, when it begins.
func (s *Services) announce(ls *v1alpha1.LocalService, p *plan.Plan) {
	if p.IsMassDeletion() && !meta.IsStatusConditionTrue(ls.Status.Conditions, v1alpha1.ConditionProgressing) {
		s.record(ls, corev1.EventTypeWarning, eventDeletingServices, fmt.Sprintf(
			"About to delete %d of %d Services, which no selected node wants any more", p.Count(plan.Delete), p.Owned))
	}
}

// execution is the work on the changes of one plan.
type execution struct {
	*Services
	ls    *v1alpha1.LocalService
	began time.Time

	mu        sync.Mutex
	writes    int // that were begun
	hasFailed bool
	refused   []error // by this sync
	out       Outcome
}

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
		return append(due, refused...), len(due) // What a finalizer keeps stays first: no other goes while the cache lags.
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

// conclude takes in what became of the writes of a kind. Of those that were due, so many were begun; the fresh ones, which
// were never tried, come first.
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
		// Each of the others may be accepted, and is refused only once. If the API server is busy, the error is retried.
		isRefused := w.giveUp(action, 0, len(known), failed[len(failed)-1].err)
		w.out.More = w.out.More || isRefused && untried > 0
	case err == errGivenUp, isAllFailed && (err == errUnsafe || err == errTimeUp):
		w.giveUp(action, untried, len(known), failed[len(failed)-1].err)
	}
}

// giveUp has changes wait because too many others were refused: fresh ones, which were never tried, and known ones, which
// were refused before.
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

// refuse has an attempt wait that was refused. Nothing is remembered if the LocalService is gone, or its spec is another
// by now.
func (w *execution) refuse(attempt reconcile.Attempt, err error) {
	if w.isWanted() == nil {
		w.Refusals.Add(attempt, err)
	}
	w.wait(w.Refusals.Left(attempt))
}

// mayBegin returns why another write of a kind must not begin, nil if it may.
func (w *execution) mayBegin(ctx context.Context, action plan.Action) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out.Stopped = cmp.Or(w.out.Stopped, ctx.Err(), w.isWanted())
	switch {
	case w.out.Stopped != nil:
		return w.out.Stopped
	case action == plan.Replace && (w.hasFailed || len(w.out.Refused) > 0):
		return errUnsafe
	case (action == plan.Replace || action == plan.Update) && len(w.out.Contested) > 0:
		return errContested
	}
	// At least one write is made, also if it took long to read the LocalService.
	taken := w.Clock.Since(w.began)
	if w.writes > 0 && taken >= slowSyncTime || w.writes >= syncWrites && taken >= syncTime {
		return errTimeUp
	}
	return nil
}

// one makes one change.
func (w *execution) one(ctx context.Context, change *plan.Change) error {
	w.mu.Lock()
	w.writes++
	w.mu.Unlock()
	service, err := w.write(ctx, change)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.hasFailed = true
		if isTerminating(err) {
			w.out.Stopped = ErrNamespaceTerminating
		}
		return err
	}
	if service == nil && change.Action == plan.Replace {
		return nil // It is contested.
	}
	w.Refusals.Remove(w.attempt(change.Name))
	w.out.Made[change.Action] = append(w.out.Made[change.Action], change.Name)
	return nil
}

// write makes one change, and returns the Service as the API server has it then.
func (w *execution) write(ctx context.Context, change *plan.Change) (service *corev1.Service, err error) {
	template := change.Template
	mayRemove := func() error { return cmp.Or(ctx.Err(), w.isWanted()) }
	writing, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	client := w.Kube.CoreV1().Services(template.Namespace())
	switch change.Action {
	case plan.Create:
		service, err = client.Create(writing, template.Service(change.Node),
			metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	case plan.Delete, plan.Retire:
		err = w.delete(writing, client, change, mayRemove)
	case plan.Replace:
		service, err = w.replace(writing, client, change, mayRemove)
	default:
		var patch []byte
		if patch, err = template.Patch(change.Current, change.Node); err == nil {
			service, err = client.Patch(writing, change.Name, types.MergePatchType, patch,
				metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
		}
	}
	metrics.ServiceWrites.WithLabelValues(string(change.Action), metrics.Result(err)).Inc()
	if err != nil {
		return nil, &status.WriteError{Action: change.Action, Namespace: template.Namespace(), Name: change.Name,
			Err: err}
	}
	if service != nil {
		w.Observed.Wrote(cache.KeyOf(w.ls), w.Caches.Services, service.ResourceVersion)
		w.isContested(change, service)
	}
	klog.FromContext(ctx).V(4).Info("Service written", "action", change.Action,
		"service", klog.KRef(template.Namespace(), change.Name), "node", change.Node)
	return service, nil
}
