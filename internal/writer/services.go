package writer

import (
	"cmp"
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	clientset "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned"
)

const (
	// Timeout bounds one change, which may take several requests. A shutdown does not cancel a request that was sent.
	Timeout = 30 * time.Second
	// A turn begins writes for minTurn if other work waits for its end, otherwise for maxTurn. Then the sync reports, and
	// the LocalService is planned again in its next turn. Writes under way are always finished.
	minTurn, maxTurn = 500 * time.Millisecond, 5 * time.Second
)

// ErrNamespaceTerminating stops the writes of a plan: nothing that is written to the namespace will last.
var ErrNamespaceTerminating = errors.New("the namespace is being deleted")

// Dependencies are what writes are made with.
type Dependencies struct {
	Kube     kubernetes.Interface
	Client   clientset.Interface
	Metadata metadata.Interface
	Caches   *cache.Caches
	Observed *cache.Observed
	Refusals *Refusals
	// Record records an event.
	Record func(regarding runtime.Object, eventType, reason, note string)
	// Shuffle is rand.Shuffle, or one with a reproducible order.
	Shuffle func(n int, swap func(i, j int))
}

// Services makes the changes of plans.
type Services struct {
	Dependencies
	pool *Pool
}

// NewServices makes Services with a number of writes at a time.
func NewServices(deps Dependencies, concurrency int) *Services {
	return &Services{deps, NewPool(concurrency)}
}

// actions are the actions of writes, in the order in which they are made. Deletions come first, because they make room
// in a quota; adoptions need none. Replacements come last, and alone, because they interrupt traffic.
var actions = []plan.Action{plan.Delete, plan.Adopt, plan.Create, plan.Update, plan.Replace}

// Write makes the changes of a plan, one action after the other. Those that have to wait after a refusal are not tried.
// isAwaited reports whether somebody waits for the end of this turn. When the time is up, nothing more begins, but each
// batch still says whether there is more to do. If there is anything to write, the LocalService is first read from the
// API server, because the cache may lag: kubectl delete --cascade=orphan may just have deleted it.
func (s *Services) Write(ctx context.Context, ls *v1alpha1.LocalService, p *plan.Plan,
	isAwaited func() bool) plan.Outcome {
	w := &execution{Services: s, ls: ls, began: time.Now(), isAwaited: isAwaited,
		checkWanted: func() error { return cmp.Or(ctx.Err(), s.checkCurrent(ls)) },
		out:         plan.Outcome{Made: map[plan.Action][]string{}}}
	isConfirmed := false
	for _, action := range actions {
		due := w.due(action, p.Changes[action])
		if action == plan.Replace && hasFailed(&w.out) {
			w.reportRefused(due) // Nothing is replaced until a sync in which nothing fails.
			continue
		}
		if len(due) == 0 {
			continue
		}
		if !isConfirmed {
			if w.out.Stopped = s.confirm(ctx, ls); w.out.Stopped != nil {
				return w.out
			}
			isConfirmed = true
		}
		w.batch = batch{action: action}
		written := make([]*corev1.Service, len(due))
		begun := s.pool.Each(len(due), w.startsSlowly(action), w.mayBegin,
			func(i int) (err error) { written[i], err = w.write(ctx, due[i]); return err },
			func(i int, err error) bool { return w.ended(due[i], written[i], err) })
		w.conclude(ctx, due[begun:])
	}
	if p.IsHostnames {
		w.out.Refused = append(w.out.Refused, s.refusedCopies(ls, p.Copies.Changes)...)
	}
	w.concludeTurn()
	return w.out
}

// execution makes the changes of one plan. Only write and its callees run concurrently.
type execution struct {
	*Services
	ls    *v1alpha1.LocalService
	began time.Time
	// checkWanted returns an error if the controller stops, or the plan is for another spec. It is called before each
	// write, at the end of each batch, and immediately before a Service is deleted, because what precedes that may take
	// time.
	checkWanted func() error
	isAwaited   func() bool

	writes int // the number of writes that have ended
	batch  batch
	out    plan.Outcome
}

func (w *execution) client() typedcorev1.ServiceInterface {
	return w.Kube.CoreV1().Services(w.ls.Namespace)
}

// mayBegin reports whether another write of the batch may begin, and stops the turn if its plan is not wanted any more.
// Until the first write has ended, time is not up, even if reading the LocalService took long.
func (w *execution) mayBegin() bool {
	w.out.Stopped = cmp.Or(w.out.Stopped, w.checkWanted())
	taken := time.Since(w.began)
	isTimeUp := w.writes > 0 && (taken >= maxTurn || taken >= minTurn && w.isAwaited())
	return w.out.Stopped == nil && !isTimeUp && !w.batch.isGivenUp()
}

// write makes one change, and returns the Service as the API server has it then.
func (w *execution) write(ctx context.Context, change *plan.Change) (service *corev1.Service, err error) {
	template := change.Template
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	switch change.Action {
	case plan.Create:
		service, err = w.client().Create(ctx, template.Service(change.Node),
			metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	case plan.Delete:
		err = w.delete(ctx, change)
	case plan.Replace:
		service, err = w.replace(ctx, change)
	default:
		var patch []byte
		if patch, err = template.Patch(change.Current, change.Node); err == nil {
			service, err = w.client().Patch(ctx, change.Name, types.MergePatchType, patch,
				metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
		}
	}
	metrics.ServiceWrites.WithLabelValues(string(change.Action), metrics.Result(err)).Inc()
	if err == nil && service != nil {
		w.Observed.Wrote(cache.KeyOf(w.ls), w.Caches.Services, service.ResourceVersion)
		err = checkController(service, w.ls)
	}
	if err != nil {
		return nil, err
	}
	if node := w.Caches.Nodes.Get("", change.Node); node != nil && change.Action == plan.Create {
		metrics.ObserveSince(metrics.NodeFanout, node.Created(), w.ls.CreationTimestamp.Time)
	}
	klog.FromContext(ctx).V(4).Info("Change made", "action", change.Action,
		"service", klog.KRef(w.ls.Namespace, change.Name), "node", change.Node)
	return service, nil
}

// checkController returns an error if a Service was stored with another controller: the garbage collector could delete
// it each time it is created. One without a controller is adopted later.
func checkController(service *corev1.Service, ls *v1alpha1.LocalService) error {
	if controller := metav1.GetControllerOf(service); controller != nil && controller.UID != ls.UID {
		return refuse("it was stored with the controller %q %q instead of this LocalService: exempt it from the "+
			"admission webhook or policy that changes metadata.ownerReferences", controller.Kind, controller.Name)
	}
	return nil
}
