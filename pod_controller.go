package main

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
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
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/internal/writer"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// podController copies the name of a pod's node into the pod's node label. It watches scheduled Pods, and
// LocalServices to know which pods to label. It owns only that label, on the pods that a LocalService selects, or on
// all pods with -label-all-pods. It writes nothing else, never removes a label, and does not change a label by which
// the pod's owner selects it.
type podController struct {
	caches     *cache.Caches
	writer     *writer.Writer
	options    *app.Options
	loop       *reconcile.Loop
	complaints *app.Complaints
	// judging holds locks that namespaces share by a hash. A worker holds the lock while it compares a pod with all
	// LocalServices of the namespace, so that a tenant with thousands of both takes one processor at most, and leaves
	// the others to other tenants.
	judging [64]sync.Mutex
}

var seed = maphash.MakeSeed()

func newPodController(deps *app.Dependencies) *podController {
	c := &podController{caches: deps.Caches, options: deps.Options, complaints: app.NewComplaints(),
		writer: writer.New(&deps.Shared, writer.NewRefusals())} // There are many more pods than LocalServices.
	c.loop = reconcile.New("pod", deps.Clock, c.sync)
	c.caches.Pods.OnChange(c.podChanged)
	c.caches.LocalServices.OnChange(c.localServiceChanged)
	return c
}

// podChanged enqueues a pod that needs the label.
func (c *podController) podChanged(before, after *cache.Pod) {
	isOther := func() bool { return after.NeedsLabel() && after.GetUID() != before.GetUID() }
	if before != nil && (after == nil || isOther()) { // The pod was deleted or recreated.
		c.writer.Refusals.Remove(writer.LabelAttempt(before))
	}
	if after == nil {
		c.writer.Observed.Forget(cache.KeyOf(before)) // A recreated pod has writes of its own.
		return
	}
	switch {
	case !after.NeedsLabel():
	case before == nil || !before.NeedsLabel():
		c.loop.Add(cache.KeyOf(after))
	default: // It was enqueued before, and its owner may change it at any rate.
		c.loop.AddAfter(cache.KeyOf(after), reconcile.BatchPeriod)
	}
}

// localServiceChanged enqueues a namespace in which a LocalService may have begun to select pods.
func (c *podController) localServiceChanged(before, after *v1alpha1.LocalService) {
	if after == nil || c.options.LabelAllPods || !plan.LabelsPods(after) ||
		before != nil && plan.LabelsPods(before) && maps.Equal(before.Spec.Selector, after.Spec.Selector) {
		return
	}
	c.loop.AddAfter(reconcile.AllIn(after.Namespace), reconcile.BatchPeriod)
}

// keys yields the keys to begin with.
func (c *podController) keys(yield func(types.NamespacedName) bool) {
	if c.options.LabelAllPods {
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
}

// sync labels a pod, or enqueues all pods of a namespace that need the label.
func (c *podController) sync(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	if reconcile.IsAll(key) {
		for _, pod := range c.caches.Pods.Unlabelled(key.Namespace) {
			c.loop.Add(cache.KeyOf(pod))
		}
		return 0, nil
	}
	if wait := c.writer.Observed.Wait(key, c.caches.Pods, cache.ObservedTimeout); wait > 0 {
		return wait, nil
	}
	p := c.caches.Pods.Get(key.Namespace, key.Name)
	if p == nil || !p.NeedsLabel() {
		return 0, nil
	}
	if after := c.writer.Refusals.RetryAfter(writer.LabelAttempt(p)); after > 0 {
		return after, nil
	}
	ls := c.selectedBy(p)
	if ls == nil && !c.options.LabelAllPods {
		return 0, nil
	}
	isAgain := c.writer.Observed.SinceWrite(key, c.caches.Pods) < cache.StatusTimeout
	retryAfter, refusal, err := c.writer.WriteLabel(ctx, p, c.options.NodeLabelKey)
	switch {
	case err != nil:
		return 0, err
	case retryAfter > 0:
		if refusal != nil {
			c.warn(ctx, ls, p, plan.EventNodeLabelRefused, fmt.Sprintf("The label %s of pods is wrong or missing, so that "+
				"they do not answer under the name of their node, but maybe under that of another: %s",
				c.options.NodeLabelKey, status.CauseOf(refusal, p.GetName(), p.Node())))
		}
		return retryAfter, nil
	case isAgain: // It was right before.
	case ls != nil:
		metrics.ObserveSince(metrics.PodLabel, p.Scheduled(), ls.CreationTimestamp.Time)
	default: // All pods are labelled.
		metrics.ObserveSince(metrics.PodLabel, p.Scheduled())
	}
	klog.FromContext(ctx).V(4).Info("Pod labelled", "pod", klog.KObj(p), "node", p.Node())
	return 0, nil
}

// warn reports a problem with the label of a pod in the log, and in an event of the LocalService that selects the
// pod, or of the pod if none does. Thousands of pods may have the same problem, so it is reported once in a while,
// not for each pod.
func (c *podController) warn(ctx context.Context, ls *v1alpha1.LocalService, p *cache.Pod, reason, note string) {
	// A resource version would make each repetition a new event.
	regarding := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.GetNamespace(), Name: p.GetName(),
		UID: p.GetUID()}
	subject := p.GetNamespace()
	if ls != nil {
		regarding = &corev1.ObjectReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.Kind,
			Namespace: ls.Namespace, Name: ls.Name, UID: ls.UID}
		subject += "/" + ls.Name
	}
	note = words.Printable(note) // A webhook may answer anything.
	if c.complaints.IsNews(subject+": "+note, "") {
		c.writer.Record(regarding, corev1.EventTypeWarning, reason, note)
		klog.FromContext(ctx).Error(errors.New(note), "The label of a pod is not right, nor perhaps those of others",
			"reason", reason, "pod", klog.KObj(p), "localService", klog.KObj(ls))
	}
}

// selectedBy returns the LocalService that selects a pod, of several the first by name; nil if none does.
func (c *podController) selectedBy(p *cache.Pod) (first *v1alpha1.LocalService) {
	judging := &c.judging[maphash.String(seed, p.GetNamespace())%uint64(len(c.judging))]
	judging.Lock()
	defer judging.Unlock()
	labels := p.Labels().Set()
	for _, ls := range c.caches.Labelling(p.GetNamespace()) {
		if plan.SelectsPod(ls, labels) && (first == nil || ls.Name < first.Name) {
			first = ls
		}
	}
	return first
}
