package writer

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
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
	wrote  func(*corev1.Service)
}

// NewServices makes Services with at most so many writes at a time. wrote is told what the API server answers to each,
// but for deletions.
func NewServices(kube kubernetes.Interface, concurrency int, wrote func(*corev1.Service)) *Services {
	return &Services{kube: kube, writer: New(concurrency), wrote: wrote}
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

// Write makes changes of a LocalService's Services. Deletions come first, because they make room where a quota has
// none; otherwise the order is random, so that no refused one comes first each time. next is called before each write,
// with the number of Services put in place; when it returns an error, no other write is begun.
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
	var out Outcome
	var mu sync.Mutex
	var inPlace atomic.Int64
	for _, batch := range [][]plan.Change{deletes, others} {
		var terminating atomic.Bool
		failed, err := s.writer.Each(ctx, len(batch), func() error {
			if terminating.Load() {
				return ErrNamespaceTerminating
			}
			return next(int(inPlace.Load())) // It may take a while, in which those under way must be able to end.
		}, func(i int) error {
			service, err := s.write(ctx, template, batch[i])
			if err != nil {
				terminating.Store(terminating.Load() || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause))
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			out.Written = append(out.Written, Written{batch[i], service})
			if service != nil {
				inPlace.Add(1)
				s.wrote(service)
			}
			return nil
		})
		out.addFailures(failed)
		if terminating.Load() {
			err = ErrNamespaceTerminating
		}
		if err != nil && !errors.Is(err, ErrRefused) {
			out.Stopped = err
			break
		}
	}
	return out
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
func (s *Services) write(ctx context.Context, template *plan.Template, change plan.Change) (service *corev1.Service,
	err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	client := s.kube.CoreV1().Services(template.Namespace())
	switch change.Action {
	case plan.Create:
		service, err = client.Create(ctx, template.Service(change.Node),
			metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	case plan.Delete:
		err = remove(ctx, client, change)
	case plan.Replace:
		if err = remove(ctx, client, change); err == nil {
			service, err = client.Create(ctx, template.Service(change.Node),
				metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
		}
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

// remove deletes the Service that a plan has seen. The precondition keeps a successor of the same name alive that the
// cache does not have yet.
func remove(ctx context.Context, client typedcorev1.ServiceInterface, change plan.Change) error {
	uid := change.Current.GetUID()
	err := client.Delete(ctx, change.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // It has gone already.
	}
	return err
}

// isStale reports whether a write failed because the cache was behind the API server.
func isStale(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) ||
		errors.Is(err, context.Canceled)
}
