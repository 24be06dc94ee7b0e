package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/app"
	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/writer"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

const (
	eventLabelRefused   = "NodeLabelRefused"
	eventLabelContested = "NodeLabelContested"

	// labelInterval is the shortest time between two writes of a pod's label, if something else changes it again and
	// again.
	labelInterval = time.Second
	// conflictInterval is how long after a conflict a pod is tried again without an event.
	conflictInterval = 3 * time.Second
)

// podController copies the name of a pod's node into the pod's node label. It watches scheduled Pods, and LocalServices
// to know which pods to label. It owns only that label, on the pods that a LocalService selects, or on all pods with
// -label-all-pods. It writes nothing else, never removes a label, and changes none by which the pod's owner selects it.
type podController struct {
	labels       *writer.Labels
	recorder     app.Recorder
	nodeLabelKey string
	all          bool // label all pods, not only those that a LocalService selects
	caches       *cache.Caches
	loop         *reconcile.Loop
	observed     *cache.Observed
	refusals     *writer.Refusals
	// judging is held while a pod is compared with all LocalServices of its namespace. However many of both a tenant
	// has, that takes one processor, and the workers of others have the rest.
	judging sync.Mutex
}

func newPodController(deps app.Dependencies) (*podController, error) {
	observed := cache.NewObserved()
	c := &podController{
		labels: &writer.Labels{Kube: deps.Kube, Caches: deps.Caches, Observed: observed,
			Key: deps.Options.NodeLabelKey},
		recorder:     deps.Recorder,
		nodeLabelKey: deps.Options.NodeLabelKey,
		all:          deps.Options.LabelAllPods,
		caches:       deps.Caches,
		observed:     observed,
		refusals:     writer.NewRefusals(),
	}
	c.loop = reconcile.New("pod", deps.Clock, c.sync)
	return c, errors.Join(c.caches.Pods.OnChange(c.podChanged),
		c.caches.LocalServices.OnChange(c.localServiceChanged))
}

func (c *podController) podChanged(before, after *cache.Pod) {
	if before != nil && (after == nil || after.GetUID() != before.GetUID()) { // It is gone, or labelled.
		c.refusals.Remove(writer.Attempt{Owner: before.GetUID()})
	}
	if after == nil {
		c.observed.Forget(cache.KeyOf(before)) // Its successor has its own writes.
		return
	}
	switch {
	case !after.NeedsLabel():
	case before == nil || !before.NeedsLabel():
		c.loop.Add(cache.KeyOf(after))
	default: // It has been enqueued before, and its owner may change it as often as they like.
		c.loop.AddAfter(cache.KeyOf(after), batchPeriod)
	}
}

// localServiceChanged enqueues a namespace in which a LocalService may have begun to select pods.
func (c *podController) localServiceChanged(before, after *v1alpha1.LocalService) {
	if after == nil || c.all || !plan.LabelsPods(after) ||
		before != nil && plan.LabelsPods(before) && maps.Equal(before.Spec.Selector, after.Spec.Selector) {
		return
	}
	c.loop.AddAfter(reconcile.AllIn(after.Namespace), batchPeriod)
}

// Run runs the workers until ctx is done, and returns when all have stopped. The caches must be filled.
func (c *podController) Run(ctx context.Context, workers int) {
	c.loop.Run(ctx, workers, func(yield func(types.NamespacedName) bool) {
		if c.all {
			for pod := range c.caches.Pods.All() {
				if pod.NeedsLabel() && !yield(cache.KeyOf(pod)) {
					return
				}
			}
			return
		}
		for ls := range c.caches.LocalServices.All() {
			if plan.LabelsPods(ls) && !yield(reconcile.AllIn(ls.Namespace)) {
				return
			}
		}
	})
}

// sync labels a pod, or enqueues all pods of a namespace that need the label.
func (c *podController) sync(ctx context.Context, key types.NamespacedName) error {
	if reconcile.IsAll(key) {
		for _, pod := range c.caches.Pods.Unlabelled(key.Namespace) {
			c.loop.Add(cache.KeyOf(pod))
		}
		return nil
	}
	if wait := c.observed.Wait(key, c.caches.Pods, cache.ObservedTimeout); wait > 0 {
		return reconcile.Wait(wait)
	}
	p := c.caches.Pods.Get(key.Namespace, key.Name)
	if p == nil || !p.NeedsLabel() {
		return nil
	}
	ls := c.selectedBy(p)
	if ls == nil && !c.all {
		return nil
	}
	attempt, sinceWrite := writer.Attempt{Owner: p.GetUID()}, c.observed.SinceWrite(key, c.caches.Pods)
	if after := max(c.refusals.RetryAfter(attempt), labelInterval-sinceWrite); after > 0 {
		c.loop.AddAfter(key, after)
		return nil
	}
	if err := c.labels.Write(ctx, p); err != nil {
		return c.failed(ctx, p, err)
	}
	if sinceWrite >= cache.ObservedTimeout {
		wanted := time.Time{} // A long time ago, if all pods are labelled.
		if !c.all {
			wanted = ls.CreationTimestamp.Time
		}
		metrics.ObserveSince(metrics.PodLabel, p.Scheduled(), wanted)
	} else {
		c.recorder.Record(p.Regarding(), corev1.EventTypeWarning, eventLabelContested, fmt.Sprintf("Something else "+
			"has changed the label %s since the controller set it, so it was set again", c.nodeLabelKey))
	}
	klog.FromContext(ctx).V(4).Info("Pod labelled", "pod", klog.KObj(p), "node", p.Node())
	return nil
}

// failed reports that a pod could not be labelled, and tries it again later.
func (c *podController) failed(ctx context.Context, p *cache.Pod, err error) error {
	key, attempt := cache.KeyOf(p), writer.Attempt{Owner: p.GetUID()}
	failure := fmt.Errorf("set the label %s of pod %s: %w", c.nodeLabelKey, key, err)
	isGone := writer.IsGone(err) // It is nothing to report, unless the pod stays in the cache: then a webhook says so.
	switch class := writer.ClassOf(err); {
	case isGone:
	case class == writer.Stale: // The event of what has changed most likely comes sooner.
		c.loop.AddAfter(key, conflictInterval)
		return nil
	case class != writer.Refused:
		return failure
	default:
		c.recorder.Record(p.Regarding(), corev1.EventTypeWarning, eventLabelRefused, fmt.Sprintf("The pod cannot be "+
			"reached through its node's Service, because its label %s is not %q: %v", c.nodeLabelKey,
			naming.NodeLabelValue(p.Node()), err))
	}
	c.refusals.Add(attempt, err)
	after := c.refusals.RetryAfter(attempt)
	c.loop.AddAfter(key, after)
	if !isGone {
		klog.FromContext(ctx).Error(err, "Pod not labelled, trying again later", "pod", klog.KObj(p), "after", after)
	}
	return nil
}

// selectedBy returns the oldest of the LocalServices that select a pod, nil if there is none.
func (c *podController) selectedBy(p *cache.Pod) (oldest *v1alpha1.LocalService) {
	c.judging.Lock()
	defer c.judging.Unlock()
	labels := p.Labels().Set()
	for _, ls := range c.caches.Labelling(p.GetNamespace()) {
		if plan.SelectsPod(ls, labels) && (oldest == nil || isOlder(ls, oldest)) {
			oldest = ls
		}
	}
	return oldest
}

// isOlder reports whether a LocalService was created before another one. In the same second, the name decides.
func isOlder(ls, than *v1alpha1.LocalService) bool {
	return cmp.Or(ls.CreationTimestamp.Compare(than.CreationTimestamp.Time), cmp.Compare(ls.Name, than.Name)) < 0
}
