package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
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

const eventLabelRefused = "NodeLabelRefused"

// podController copies the name of a pod's node into the pod's node label. It watches scheduled Pods, and LocalServices
// to know which pods to label. It owns only that label, on the pods that a LocalService selects, or on all pods with
// -label-all-pods. It writes nothing else, and never removes a label.
type podController struct {
	kube         kubernetes.Interface
	recorder     app.Recorder
	nodeLabelKey string
	all          bool // label all pods, not only those that a LocalService selects
	caches       *cache.Caches
	loop         *reconcile.Loop
	observed     *cache.Observed
	refusals     *writer.Refusals
	waits        *metrics.Waits // of pods since they were scheduled
}

func newPodController(deps app.Dependencies) (*podController, error) {
	c := &podController{
		kube:         deps.Kube,
		recorder:     deps.Recorder,
		nodeLabelKey: deps.Options.NodeLabelKey,
		all:          deps.Options.LabelAllPods,
		caches:       deps.Caches,
		observed:     cache.NewObserved(),
		refusals:     writer.NewRefusals(),
		waits:        metrics.NewWaits(metrics.PodLabel),
	}
	c.loop = reconcile.New("pod", deps.Clock, c.sync)
	c.caches.Pods.OnChange(c.podChanged)
	return c, c.caches.LocalServices.OnChange(c.localServiceChanged)
}

// podScheduled shows, by a newly scheduled pod, whether an admission policy labels pods in the write that binds them.
func podScheduled(p *cache.Pod) {
	switch node := p.Node(); {
	case naming.NodeLabelValue(node) != node: // The policy leaves longer names to us.
	case p.Labelled():
		metrics.PodsLabelledAtBinding.Set(1)
	default:
		metrics.PodsLabelledAtBinding.Set(0)
	}
}

func (c *podController) podChanged(before, after *cache.Pod) {
	if before != nil && (after == nil || after.GetUID() != before.GetUID()) { // It is gone, or labelled.
		c.refusals.Remove(writer.Attempt{Owner: before.GetUID()})
	}
	if after == nil {
		c.waits.Forget(cache.KeyOf(before)) // Its successor has its own wait.
		return
	}
	// Pods from before the start say nothing about current bindings.
	isScheduled := before == nil && c.loop.Running() && c.caches.Pods.HasSynced(after.GetNamespace())
	if isScheduled {
		podScheduled(after)
	}
	if c.wantsLabel(after) {
		if isScheduled {
			c.waits.Begin(cache.KeyOf(after))
		}
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
	if !c.observed.IsObserved(key) {
		return reconcile.Stale(errNotObserved)
	}
	began := time.Now()
	p := c.caches.Pods.Get(key.Namespace, key.Name)
	if p == nil || !c.wantsLabel(p) {
		c.waits.Forget(key)
		return nil
	}
	attempt := writer.Attempt{Owner: p.GetUID()}
	if after := c.refusals.RetryAfter(attempt); after > 0 {
		c.loop.AddAfter(key, after)
		return nil
	}
	patch, err := c.labelPatch(p)
	if err != nil {
		return fmt.Errorf("label pod %s: %w", key, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writer.Timeout)
	defer cancel()
	written, err := c.kube.CoreV1().Pods(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	metrics.PodLabelWrites.WithLabelValues(metrics.Result(err)).Inc()
	switch {
	case err == nil:
		c.observed.Wrote(key, c.caches.Pods, written.ResourceVersion)
		c.waits.Done(key, began)
		klog.FromContext(ctx).V(4).Info("Pod labelled", "pod", klog.KObj(p), "node", p.Node())
		return nil
	case apierrors.IsConflict(err): // Another pod of this name, or a webhook's own: a newer cache will show it.
		return reconcile.Stale(fmt.Errorf("label pod %s with %s: %w", key, c.nodeLabelKey, err))
	case apierrors.IsNotFound(err), isOtherUID(err):
		return nil // The pod is gone. A successor, if any, has its own event.
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		c.recorder.Record(p, corev1.EventTypeWarning, eventLabelRefused, fmt.Sprintf(
			"The pod cannot be reached through its node's Service, because its label %s=%s was refused: %v",
			c.nodeLabelKey, naming.NodeLabelValue(p.Node()), err))
		c.refusals.Add(attempt, err)
		c.loop.AddAfter(key, c.refusals.RetryAfter(attempt))
		klog.FromContext(ctx).Error(err, "Pod not labelled, trying again later", "pod", klog.KObj(p),
			"after", c.refusals.RetryAfter(attempt))
		return nil
	}
	return fmt.Errorf("label pod %s with %s: %w", key, c.nodeLabelKey, err)
}

// wantsLabel reports whether to write a pod's node label: it is missing or wrong, and this controller labels the pod.
func (c *podController) wantsLabel(p *cache.Pod) bool {
	return p.Node() != "" && !p.Labelled() && (c.all || c.caches.Selecting(p))
}

// labelPatch returns the JSON merge patch that labels a pod. The UID protects another pod of the same name. No resource
// version is needed, because the label is a fact: whatever else changes on the pod, its node does not.
func (c *podController) labelPatch(p *cache.Pod) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":    p.GetUID(),
		"labels": map[string]string{c.nodeLabelKey: naming.NodeLabelValue(p.Node())},
	}})
}

// isOtherUID reports whether a patch was refused because its UID is not that of the object.
func isOtherUID(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsInvalid(err) || status.ErrStatus.Details == nil {
		return false
	}
	return slices.ContainsFunc(status.ErrStatus.Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "metadata.uid"
	})
}
