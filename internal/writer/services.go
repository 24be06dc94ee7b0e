package writer

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Timeout bounds one write. A write that has begun is finished also during a shutdown.
const Timeout = 30 * time.Second

// ErrNamespaceTerminating is met when the namespace is being deleted: nothing that is written there will last.
var ErrNamespaceTerminating = errors.New("the namespace is being deleted")

// Services makes the changes of plans.
type Services struct {
	kube   kubernetes.Interface
	writer *Writer
}

// NewServices makes Services with at most so many writes at a time.
func NewServices(kube kubernetes.Interface, concurrency int) *Services {
	return &Services{kube: kube, writer: New(concurrency)}
}

// Written is a change that was made. Service is as the API server has it now, nil after a deletion.
type Written struct {
	Change  plan.Change
	Service *corev1.Service
}

// Outcome is what became of the changes of a plan.
type Outcome struct {
	Written []Written
	// Refused are the writes that failed, and Stale those that failed because the cache was behind: the next plan, from
	// a newer cache, will be right.
	Refused, Stale []error
	// Stopped is why not all changes were tried: ErrNamespaceTerminating, or the error of next or of the context. It is
	// nil, too, if the API server refused too many.
	Stopped error
}

// Counts are the numbers of changes that were made.
func (o *Outcome) Counts() map[plan.Action]int {
	counts := map[plan.Action]int{}
	for i := range o.Written {
		counts[o.Written[i].Change.Action]++
	}
	return counts
}

// Write makes changes of a LocalService's Services. Deletions come first, because they make room where a quota has none;
// otherwise the order is random, so that no refused one comes first each time. next is called before each write, with
// the number of Services put in place; when it returns an error, no other write is begun.
func (s *Services) Write(ctx context.Context, template *plan.Template, changes []plan.Change,
	next func(inPlace int) error) Outcome {
	rand.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	var deletes, others []plan.Change
	for _, change := range changes {
		if change.Action == plan.Delete {
			deletes = append(deletes, change)
		} else {
			others = append(others, change)
		}
	}
	var o outcome
	o.Stopped = s.each(ctx, template, deletes, &o, next)
	o.deleted = len(o.Written)
	if o.Stopped == nil {
		o.Stopped = s.each(ctx, template, others, &o, next)
	}
	return o.Outcome
}

// outcome is an Outcome that several goroutines add to.
type outcome struct {
	mu sync.Mutex
	Outcome
	deleted     int
	terminating bool
}

func (s *Services) each(ctx context.Context, template *plan.Template, changes []plan.Change, o *outcome,
	next func(inPlace int) error) error {
	err := s.writer.Each(ctx, len(changes), func() error {
		inPlace, err := o.progress()
		if err != nil {
			return err
		}
		return next(inPlace)
	}, func(i int) error {
		var service *corev1.Service
		err := recovered(func() (err error) {
			service, err = s.write(ctx, template, changes[i])
			return err
		})
		o.add(changes[i], service, err)
		return err
	})
	if _, terminating := o.progress(); terminating != nil {
		return terminating
	}
	if errors.Is(err, errRefused) {
		return nil
	}
	return err
}

func (o *outcome) progress() (inPlace int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.terminating {
		return 0, ErrNamespaceTerminating
	}
	return len(o.Written) - o.deleted, nil
}

func (o *outcome) add(change plan.Change, service *corev1.Service, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.Written = append(o.Written, Written{change, service})
	case isStale(err):
		o.Stale = append(o.Stale, err)
	default:
		o.Refused = append(o.Refused, err)
		o.terminating = o.terminating || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
	}
}

// write makes one change.
func (s *Services) write(ctx context.Context, template *plan.Template, change plan.Change) (*corev1.Service, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	namespace := template.Namespace()
	service, err := s.request(ctx, namespace, template, change)
	metrics.ServiceWrites.WithLabelValues(string(change.Action), metrics.Result(err)).Inc()
	if err != nil {
		return nil, &status.WriteError{Action: change.Action, Namespace: namespace, Name: change.Name, Err: err}
	}
	klog.FromContext(ctx).V(4).Info("Service written", "action", change.Action,
		"service", klog.KRef(namespace, change.Name), "node", change.Node)
	return service, nil
}

func (s *Services) request(ctx context.Context, namespace string, template *plan.Template,
	change plan.Change) (*corev1.Service, error) {
	client := s.kube.CoreV1().Services(namespace)
	create := func() (*corev1.Service, error) {
		return client.Create(ctx, template.Service(change.Node),
			metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	}
	remove := func() error {
		// The precondition keeps a successor of the same name alive that the cache does not have yet.
		uid := change.Current.GetUID()
		err := client.Delete(ctx, change.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // It has gone already.
		}
		return err
	}
	switch change.Action {
	case plan.Create:
		return create()
	case plan.Delete:
		return nil, remove()
	case plan.Replace:
		if err := remove(); err != nil {
			return nil, err
		}
		return create()
	}
	patch, err := template.Patch(change.Current, change.Node)
	if err != nil {
		return nil, err
	}
	return client.Patch(ctx, change.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
}

// isStale reports whether a write failed because the cache was behind the API server.
func isStale(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) ||
		errors.Is(err, context.Canceled)
}
