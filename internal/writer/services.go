package writer

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// Timeout limits one change, which may take several requests. A shutdown does not cancel a request that was sent.
	Timeout = 30 * time.Second
	// minTurn and maxTurn limit how long a turn begins writes, depending on whether other work waits for its end.
	// Then the sync reports, and the LocalService is planned again in its next turn. Writes under way are always
	// finished.
	minTurn, maxTurn = 500 * time.Millisecond, 5 * time.Second
)

// ErrNamespaceTerminating stops the writes of a plan: nothing that is written to the namespace will last.
var ErrNamespaceTerminating = errors.New("the namespace is being deleted")

// Dependencies holds what writers need. All writers of Services, EndpointSlices and statuses share refusals, because
// the status of a LocalService also reports refused EndpointSlices.
type Dependencies struct {
	Kube     kubernetes.Interface
	Dynamic  dynamic.Interface // for LocalServices, which may not fit their type
	Metadata metadata.Interface
	Caches   *cache.Caches
	Observed *cache.Observed
	Refusals *Refusals
	Pool     Pool // of the writes of Services
	// Record records an event.
	Record func(regarding runtime.Object, eventType, reason, note string)
	// Shuffle randomizes the order of writes. It is rand.Shuffle, or a reproducible one in simulations.
	Shuffle func(n int, swap func(i, j int))
}

// actions lists the actions of writes in the order in which they are made. Deletions come first, because they make
// room in a quota; adoptions need none.
var actions = []plan.Action{plan.Delete, plan.Adopt, plan.Create, plan.Update}

// WriteServices makes the changes of a plan, one action after the other. It skips changes that still wait after a
// refusal. isAwaited reports whether other work waits for the end of this turn. When time is up, no more writes begin,
// but each batch still records whether there is more to do. Before the first write, the LocalService is read from the
// API server, because the cache may lag: kubectl delete --cascade=orphan may just have deleted it.
func (d *Dependencies) WriteServices(ctx context.Context, ls *v1alpha1.LocalService, p *plan.Plan,
	isAwaited func() bool) status.Outcome {
	t := &turn{Dependencies: d, ls: ls, began: time.Now(), isAwaited: isAwaited,
		checkWanted: func() error { return cmp.Or(ctx.Err(), d.checkCurrent(ls)) },
		out:         status.Outcome{Made: map[plan.Action][]string{}}}
	confirm := sync.OnceValue(func() error { return d.confirm(ctx, ls) })
	for _, action := range actions {
		due := t.due(ctx, action, p.Changes[action])
		if len(due) == 0 {
			continue
		}
		if t.out.Stopped = cmp.Or(t.out.Stopped, confirm()); t.out.Stopped != nil {
			return t.out
		}
		t.batch = batch{action: action}
		written := make([]*corev1.Service, len(due))
		begun := d.Pool.Each(len(due), t.startsSlowly(action), t.mayBegin,
			func(i int) (err error) { written[i], err = t.write(ctx, due[i]); return err },
			func(i int, err error) bool { return t.ended(due[i], written[i], err) })
		t.conclude(ctx, due[begun:])
	}
	t.out.Refused = append(t.out.Refused, d.refusedCopies(ls, p.Copies.Changes)...)
	t.reportHeld()
	t.concludeTurn()
	return t.out
}

// turn makes the changes of one plan. Only write and its callees run concurrently.
type turn struct {
	*Dependencies
	ls    *v1alpha1.LocalService
	began time.Time
	// checkWanted returns an error if the controller is stopping, or if the plan is for another spec. It is called
	// before each write, at the end of each batch, and immediately before a Service is deleted, because the previous
	// steps may take time.
	checkWanted func() error
	isAwaited   func() bool

	writes int // The number of writes that have ended.
	batch  batch
	out    status.Outcome
	// rival is who has undone updates; nil until one was undone.
	rival *rival
}

// rival is a field manager, "" if it is not known, as the API server has it if the cache is current.
type rival struct {
	manager   string
	isCurrent bool
}

func (t *turn) client() typedcorev1.ServiceInterface {
	return t.Kube.CoreV1().Services(t.ls.Namespace)
}

// mayBegin reports whether another write of the batch may begin. It stops the turn if the plan is no longer wanted.
// Time is never up before the first write has ended, even if reading the LocalService took long.
func (t *turn) mayBegin() bool {
	t.out.Stopped = cmp.Or(t.out.Stopped, t.checkWanted())
	taken := time.Since(t.began)
	isTimeUp := t.writes > 0 && (taken >= maxTurn || taken >= minTurn && t.isAwaited())
	return t.out.Stopped == nil && !isTimeUp && !t.batch.isGivenUp()
}

// write makes one change, and returns the Service as the API server stored it.
func (t *turn) write(ctx context.Context, change *plan.Change) (service *corev1.Service, err error) {
	template := change.Template
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	switch change.Action {
	case plan.Create:
		service, err = t.client().Create(ctx, template.Service(change.Node),
			metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	case plan.Delete:
		err = t.delete(ctx, change)
	default:
		var patch []byte
		if patch, err = template.Patch(change.Current, change.Node); err == nil {
			service, err = t.client().Patch(ctx, change.Name, types.MergePatchType, patch,
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

// checkMutable returns an error if a change includes a field that Kubernetes does not let change. Nothing is deleted to
// change it: that would interrupt the clients.
func checkMutable(change *plan.Change) error {
	if change.Immutable == "" {
		return nil
	}
	return refuse("its %s differs, which Kubernetes does not let change: either keep it, and give this LocalService the "+
		"same value (kubectl replace --force recreates a LocalService with its Services), or delete the Service, which "+
		"interrupts its clients until it is created again", change.Immutable)
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
