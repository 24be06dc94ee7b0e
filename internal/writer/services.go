package writer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Timeout bounds one write. A write that has begun is finished also during a shutdown.
const Timeout = 30 * time.Second

var (
	// ErrNamespaceTerminating is met when the namespace is being deleted: nothing that is written there will last.
	ErrNamespaceTerminating = errors.New("the namespace is being deleted")
	// ErrContested is met when what was written has come back different: see Outcome.Contested.
	ErrContested = errors.New("something else changes what is written")

	errUnsafe = errors.New("no Service is replaced while others are refused")
)

// Services makes the changes of plans.
type Services struct {
	kube   kubernetes.Interface
	nodes  *liveNodes
	writer *Writer
	wrote  func(object metav1.Object, generation int64)
	// shuffle is rand.Shuffle, or one whose order can be had again.
	shuffle func(n int, swap func(i, j int))
	// Contested is what answers have shown.
	Contested Contested
}

// NewServices makes Services with at most so many writes at a time. wrote is told what the API server answers to each
// but deletions, and the generation of the LocalService that it was for.
func NewServices(kube kubernetes.Interface, meta metadata.Interface, concurrency int,
	shuffle func(n int, swap func(i, j int)), wrote func(object metav1.Object, generation int64)) *Services {
	return &Services{kube: kube, nodes: newLiveNodes(meta), writer: New(concurrency), wrote: wrote, shuffle: shuffle,
		Contested: newContested()}
}

// Written is a change that was made. There may be thousands, so that what the API server has answered is not kept.
type Written struct {
	Change          plan.Change
	ResourceVersion string // since then, "" after a deletion
}

// Outcome is what became of the changes of a plan.
type Outcome struct {
	Written []Written
	// Refused are the writes that failed, and Stale those that failed because the cache was behind: the next plan, from
	// a newer cache, will be right.
	Refused, Stale []error
	// Contested are the names of fields that have come back from the API server other than they were written: an
	// admission webhook or policy sets them.
	Contested sets.Set[string]
	// Stopped is why not all changes were tried: ErrNamespaceTerminating, ErrContested, or the error of next or of the
	// context. It is nil, too, if the API server refused too many.
	Stopped error

	slices []writtenSlice
}

// Add adds what became of other changes, which are made only if nothing has stopped these.
func (o *Outcome) Add(next func() Outcome) {
	if o.Stopped != nil {
		return
	}
	other := next()
	o.Written = append(o.Written, other.Written...)
	o.Refused, o.Stale = append(o.Refused, other.Refused...), append(o.Stale, other.Stale...)
	o.Contested, o.Stopped = o.Contested.Union(other.Contested), other.Stopped
}

// Counts are the numbers of changes that were made.
func (o *Outcome) Counts() map[plan.Action]int {
	counts := map[plan.Action]int{}
	for i := range o.Written {
		counts[o.Written[i].Change.Action]++
	}
	return counts
}

// batches are the changes in the order in which they are made. Deletions come first, because they make room where a
// quota has none. Replacements come late, and alone, because they take away what serves; and last what nobody needs any
// more.
var batches = [][]plan.Action{{plan.Delete}, {plan.Create, plan.Adopt}, {plan.Update}, {plan.Replace}, {plan.Retire}}

// Write makes changes of a LocalService's Services, in random order within each batch, so that no refused one comes
// first each time. next is called before each write, with the number of Services put in place; when it returns an
// error, no other write is begun. A write may ask something before it takes a Service away: isOutdated is called then,
// by several writes at a time, and keeps the Service if it returns an error.
func (s *Services) Write(ctx context.Context, namespace string, changes []plan.Change,
	next func(inPlace int) error, isOutdated func() error) Outcome {
	w := &execution{Services: s, next: next, isOutdated: isOutdated, out: Outcome{Contested: sets.Set[string]{}}}
	s.shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	for _, actions := range batches {
		batch := slices.DeleteFunc(slices.Clone(changes), func(change plan.Change) bool {
			return !slices.Contains(actions, change.Action)
		})
		failed, err := s.writer.Each(ctx, namespace, len(batch),
			func() error { return w.mayBegin(actions[0]) }, func(i int) error { return w.one(ctx, batch[i]) })
		w.out.addFailures(failed)
		if w.terminating.Load() {
			err = ErrNamespaceTerminating
		}
		if err != nil && !errors.Is(err, ErrRefused) && !errors.Is(err, errUnsafe) {
			w.out.Stopped = err
			break
		}
	}
	return w.out
}

// execution is the work on the changes of one plan.
type execution struct {
	*Services
	next       func(inPlace int) error
	isOutdated func() error

	inPlace              atomic.Int64
	refused, terminating atomic.Bool

	mu  sync.Mutex
	out Outcome
}

// mayBegin returns why another write of a batch must not begin, nil if it may.
func (w *execution) mayBegin(action plan.Action) error {
	switch {
	case w.terminating.Load():
		return ErrNamespaceTerminating
	case action == plan.Replace && w.refused.Load():
		return errUnsafe
	case (action == plan.Replace || action == plan.Update) && w.isContested():
		return ErrContested
	}
	return w.next(int(w.inPlace.Load())) // It may take a while, in which those under way must be able to end.
}

func (w *execution) isContested() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.out.Contested) > 0
}

func (w *execution) one(ctx context.Context, change plan.Change) error {
	service, err := w.write(ctx, change)
	if contested, ok := errors.AsType[*contestedError](err); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.out.Contested.Insert(contested.fields...)
		return nil
	}
	if err != nil {
		w.refused.Store(true)
		w.terminating.Store(w.terminating.Load() || isTerminating(err))
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	written := Written{Change: change}
	if service != nil {
		written.ResourceVersion = service.ResourceVersion
		w.inPlace.Add(1)
		w.wrote(service, change.Template.Generation())
		w.out.Contested.Insert(change.Template.Mismatches(service, change.Node)...)
	}
	w.out.Written = append(w.out.Written, written)
	return nil
}

// Await waits until shows returns true for all that was written, so that the next plan does not write it again. When
// that takes too long, it returns false: the next plan may meet a conflict, which is harmless, and what is never shown
// may be gone.
func (o *Outcome) Await(ctx context.Context, shows func(*Written) bool) bool {
	return await(ctx, o.Written, shows)
}

// AwaitSlices is Await for EndpointSlices.
func (o *Outcome) AwaitSlices(ctx context.Context, shows func(name, resourceVersion string) bool) bool {
	return await(ctx, o.slices, func(slice *writtenSlice) bool { return shows(slice.name, slice.resourceVersion) })
}

func await[T any](ctx context.Context, left []T, shows func(*T) bool) bool {
	err := wait.PollUntilContextTimeout(ctx, time.Millisecond, cache.AwaitTimeout, true, func(context.Context) (bool, error) {
		for len(left) > 0 && shows(&left[0]) {
			left = left[1:]
		}
		return len(left) == 0, nil
	})
	return err == nil
}

// MayPass reports whether all that failed did so for reasons that may pass in a moment: the API server could not be
// reached, or was busy. What it has refused it will refuse again.
func (o *Outcome) MayPass() bool {
	return !slices.ContainsFunc(o.Refused, func(err error) bool { return !mayPass(err) })
}

func mayPass(err error) bool {
	_, answered := errors.AsType[*apierrors.StatusError](err)
	return !answered && !reconcile.IsRefused(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

func (o *Outcome) addFailures(errs []error) {
	for _, err := range errs {
		if isStale(err) {
			o.Stale = append(o.Stale, err)
		} else {
			o.Refused = append(o.Refused, err)
		}
	}
}

// write makes one change, and returns the Service as the API server has it then.
func (w *execution) write(ctx context.Context, change plan.Change) (service *corev1.Service, err error) {
	template := change.Template
	stopped := ctx.Err
	mayRemove := func() error {
		if err := w.isOutdated(); err != nil {
			return reconcile.Stale(err)
		}
		return stopped()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	client := w.kube.CoreV1().Services(template.Namespace())
	switch change.Action {
	case plan.Create:
		service, err = client.Create(ctx, template.Service(change.Node),
			metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	case plan.Delete, plan.Retire:
		err = w.delete(ctx, client, change, mayRemove)
	case plan.Replace:
		service, err = replace(ctx, client, change, mayRemove)
	default:
		var patch []byte
		if patch, err = template.Patch(change.Current, change.Node); err == nil {
			service, err = client.Patch(ctx, change.Name, types.MergePatchType, patch,
				metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
		}
	}
	metrics.ServiceWrites.WithLabelValues(string(change.Action), metrics.Result(err)).Inc()
	if err != nil {
		return nil, &status.WriteError{Action: change.Action, Namespace: template.Namespace(), Name: change.Name,
			Err: err}
	}
	klog.FromContext(ctx).V(4).Info("Service written", "action", change.Action,
		"service", klog.KRef(template.Namespace(), change.Name), "node", change.Node)
	return service, nil
}

// isStale reports whether a write failed because the cache was behind the API server.
func isStale(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) ||
		errors.Is(err, context.Canceled) || reconcile.IsStale(err)
}
