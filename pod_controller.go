package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	if c.wantsLabel(after) {
		c.loop.Add(cache.KeyOf(after))
	}
}

// localServiceChanged enqueues the pods that a LocalService has begun to select.
func (c *podController) localServiceChanged(before, after *v1alpha1.LocalService) {
	if after == nil || !plan.LabelsPods(after) ||
		before != nil && plan.LabelsPods(before) && maps.Equal(before.Spec.Selector, after.Spec.Selector) {
		return
	}
	for _, pod := range c.caches.Pods.Unlabelled(after.Namespace) {
		if plan.SelectsPod(after, pod.Labels()) {
			c.loop.Add(cache.KeyOf(pod))
		}
	}
}

// Run runs the workers until ctx is done, and returns when all have stopped. The caches must be filled.
func (c *podController) Run(ctx context.Context, workers int) {
	c.loop.Run(ctx, workers, func(yield func(types.NamespacedName) bool) {
		for pod := range c.caches.Pods.All() {
			if c.wantsLabel(pod) && !yield(cache.KeyOf(pod)) {
				return
			}
		}
	})
}

func (c *podController) sync(ctx context.Context, key types.NamespacedName) error {
	if wait := c.observed.Wait(key, c.caches.Pods, cache.ObservedTimeout); wait > 0 {
		return reconcile.Wait(wait)
	}
	p := c.caches.Pods.Get(key.Namespace, key.Name)
	if p == nil || !c.wantsLabel(p) {
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
		metrics.ObserveSince(metrics.PodLabel, p.Scheduled(), c.wantedSince(p))
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

// wantsLabel reports whether to write a pod's node label: it is missing or wrong, and this controller labels the pod.
func (c *podController) wantsLabel(p *cache.Pod) bool {
	return p.Node() != "" && !p.Labelled() && (c.all || c.isSelected(p))
}

func (c *podController) isSelected(p *cache.Pod) bool {
	for range c.caches.Selecting(p) {
		return true
	}
	return false
}

// wantedSince returns when the first of the LocalServices that need a pod's label was created, a time long ago if all
// pods are labelled.
func (c *podController) wantedSince(p *cache.Pod) (first time.Time) {
	if c.all {
		return first
	}
	first = time.Now()
	for ls := range c.caches.Selecting(p) {
		if created := ls.CreationTimestamp.Time; created.Before(first) {
			first = created
		}
	}
	return first
}
