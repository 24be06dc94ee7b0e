package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/fanout"
	"github.com/localservice-dev/local-service-controller/pkg/metrics"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/pkg/reconcile"
	"github.com/localservice-dev/local-service-controller/pkg/slim"
)

const (
	// refusedRetryInterval is when a pod's label is tried again that the API server, or an admission plug-in, refused.
	refusedRetryInterval = 5 * time.Minute
	// localServicesBySelector is the index of LocalServices by one pair of their selector.
	localServicesBySelector = "selector"
	// unlabelledByNamespace is the index of pods that have not their right node label, by namespace.
	unlabelledByNamespace = "unlabelled"

	eventLabelRefused = "NodeLabelRefused"
)

// podController copies the name of a pod's node into the pod's node label. It watches Pods that have a node, and
// LocalServices to know which pods to label; it owns that one label, of the pods that a LocalService selects, or of all
// pods if told so; it writes nothing else, and never takes a label away.
type podController struct {
	kube         kubernetes.Interface
	recorder     events.EventRecorder
	nodeLabelKey string
	all          bool // label all pods, not only those that a LocalService selects

	pods          cache.Indexer
	localServices cache.Indexer
	loop          *reconcile.Loop[types.NamespacedName]

	// labelledAtBinding is whether the pod that was scheduled last had its label from the beginning: then the admission
	// policy works, and there is nothing left to write. nil until one is seen. Only the event handler uses it.
	labelledAtBinding *bool
}

func newPodController(deps dependencies) (*podController, error) {
	c := &podController{
		kube:          deps.kube,
		recorder:      deps.recorder,
		nodeLabelKey:  deps.nodeLabelKey,
		all:           deps.labelAllPods,
		pods:          deps.pods.GetIndexer(),
		localServices: deps.localServices.GetIndexer(),
	}
	c.loop = reconcile.New("pod", deps.clock, c.sync)
	if err := deps.localServices.AddIndexers(cache.Indexers{localServicesBySelector: indexBySelector}); err != nil {
		return nil, fmt.Errorf("index LocalServices by selector: %w", err)
	}
	if err := deps.pods.AddIndexers(cache.Indexers{unlabelledByNamespace: indexUnlabelled}); err != nil {
		return nil, fmt.Errorf("index pods by namespace: %w", err)
	}
	_, err1 := deps.pods.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial { // Run looks at all pods when all caches are filled.
				c.podScheduled(obj.(*pod))
				c.podChanged(obj.(*pod))
			}
		},
		UpdateFunc: func(_, obj any) { c.podChanged(obj.(*pod)) },
	})
	_, err2 := deps.localServices.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				c.localServiceChanged(obj.(*v1alpha1.LocalService))
			}
		},
		UpdateFunc: func(old, obj any) {
			if !maps.Equal(old.(*v1alpha1.LocalService).Spec.Selector, obj.(*v1alpha1.LocalService).Spec.Selector) {
				c.localServiceChanged(obj.(*v1alpha1.LocalService))
			}
		},
	})
	return c, errors.Join(err1, err2)
}

// podScheduled learns from a pod that is new in the cache of scheduled pods whether an admission policy labels pods in
// the same write that binds them.
func (c *podController) podScheduled(p *pod) {
	if node := p.node.Value(); p.completed || naming.NodeLabelValue(node) != node {
		return // Longer names the policy leaves to us.
	}
	if c.labelledAtBinding != nil && *c.labelledAtBinding == p.labelled {
		return
	}
	c.labelledAtBinding = &p.labelled
	if p.labelled {
		metrics.PodsLabelledAtBinding.Set(1)
		klog.Background().Info("Pods arrive with their node label: the admission policy works, and only pods from before are left to label")
	} else {
		metrics.PodsLabelledAtBinding.Set(0)
		klog.Background().Info("Pods arrive without their node label: it is written to each", "allPods", c.all)
	}
}

func (c *podController) podChanged(p *pod) {
	if c.wantsLabel(p) {
		c.loop.Add(keyOf(p))
	}
}

// localServiceChanged finds the pods that a LocalService has begun to select.
func (c *podController) localServiceChanged(ls *v1alpha1.LocalService) {
	// The index exists, so this cannot fail.
	objs, _ := c.pods.ByIndex(unlabelledByNamespace, ls.Namespace)
	for _, obj := range objs {
		if p := obj.(*pod); fanout.SelectsPod(ls, p.labels.Value()) {
			c.loop.Add(keyOf(p))
		}
	}
}

// Run works until ctx is done, and returns when no worker is running any more. The caches must be filled.
func (c *podController) Run(ctx context.Context, workers int) {
	for _, obj := range c.pods.List() {
		c.podChanged(obj.(*pod))
	}
	c.loop.Run(ctx, workers)
}

func (c *podController) sync(ctx context.Context, key types.NamespacedName) error {
	obj, exists, err := c.pods.GetByKey(key.String())
	if err != nil {
		return fmt.Errorf("get pod %s from the cache: %w", key, err)
	}
	if !exists {
		return nil
	}
	p := obj.(*pod)
	if !c.wantsLabel(p) {
		return nil
	}
	patch, err := c.labelPatch(p)
	if err != nil {
		return fmt.Errorf("label pod %s: %w", key, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	_, err = c.kube.CoreV1().Pods(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	metrics.PodLabelWrites.WithLabelValues(metrics.Result(err)).Inc()
	switch {
	case err == nil:
		klog.FromContext(ctx).V(4).Info("Pod labelled", "pod", klog.KObj(p), "node", p.node.Value())
		return nil
	case apierrors.IsNotFound(err), isOtherUID(err):
		return nil // The pod is gone, and its successor, if there is one, has an event of its own.
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		recordEvent(c.recorder, p, corev1.EventTypeWarning, eventLabelRefused, fmt.Sprintf(
			"The pod cannot be reached through its node's Service, because its label %s=%s was refused: %v",
			c.nodeLabelKey, naming.NodeLabelValue(p.node.Value()), err))
		return reconcile.After(fmt.Errorf("label pod %s with %s: %w", key, c.nodeLabelKey, err), refusedRetryInterval)
	}
	return fmt.Errorf("label pod %s with %s: %w", key, c.nodeLabelKey, err)
}

// wantsLabel says whether a pod's node label is to be written: it is missing or wrong, and the pod concerns us.
// Completed pods serve nobody, and are left as they are.
func (c *podController) wantsLabel(p *pod) bool {
	return p.node.Value() != "" && !p.labelled && !p.completed && (c.all || c.selected(p))
}

// selected says whether a LocalService selects a pod. It looks only at those that one of the pod's labels leads to, so
// that a namespace may have thousands.
func (c *podController) selected(p *pod) bool {
	for key, value := range p.labels.Value().All {
		// The index exists, so this cannot fail.
		objs, _ := c.localServices.ByIndex(localServicesBySelector, selectorIndexKey(p.GetNamespace(), key, value))
		for _, obj := range objs {
			if fanout.SelectsPod(obj.(*v1alpha1.LocalService), p.labels.Value()) {
				return true
			}
		}
	}
	return false
}

// labelPatch is the JSON merge patch that labels a pod. The UID keeps it from another pod of the same name. A resource
// version is not needed, because the label is a fact: whatever else changes on the pod, its node does not.
func (c *podController) labelPatch(p *pod) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":    p.uid,
		"labels": map[string]string{c.nodeLabelKey: naming.NodeLabelValue(p.node.Value())},
	}})
}

// isOtherUID says whether a patch was refused because it names another UID than the object has.
func isOtherUID(err error) bool {
	if apierrors.IsConflict(err) {
		return true
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsInvalid(err) || status.ErrStatus.Details == nil {
		return false
	}
	return slices.ContainsFunc(status.ErrStatus.Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "metadata.uid"
	})
}

// indexBySelector is the index function of localServicesBySelector: by the first pair, in the order of keys, of which
// any would do.
func indexBySelector(obj any) ([]string, error) {
	ls := obj.(*v1alpha1.LocalService)
	if len(ls.Spec.Selector) == 0 {
		return nil, nil
	}
	key := slices.Min(slices.Collect(maps.Keys(ls.Spec.Selector)))
	return []string{selectorIndexKey(ls.Namespace, key, ls.Spec.Selector[key])}, nil
}

func selectorIndexKey(namespace, key, value string) string {
	return namespace + "/" + key + "=" + value
}

// indexUnlabelled is the index function of unlabelledByNamespace.
func indexUnlabelled(obj any) ([]string, error) {
	if p := obj.(*pod); !p.labelled {
		return []string{p.GetNamespace()}, nil
	}
	return nil, nil
}

// pod is what the cache keeps of a Pod: a hundredth of it.
type pod struct {
	slim.Identity
	uid       types.UID                  // "" while labelled
	node      unique.Handle[string]      // spec.nodeName
	labels    unique.Handle[slim.Labels] // none while labelled
	labelled  bool                       // the node label is right
	completed bool                       // all containers have ended for good
}

// trimPod is the transform function of the cache of Pods.
func trimPod(nodeLabelKey string) cache.TransformFunc {
	return trim(func(full *corev1.Pod) (any, error) {
		p := &pod{
			Identity:  slim.IdentityOf(full),
			node:      unique.Make(full.Spec.NodeName),
			labelled:  full.Spec.NodeName != "" && full.Labels[nodeLabelKey] == naming.NodeLabelValue(full.Spec.NodeName),
			completed: full.Status.Phase == corev1.PodSucceeded || full.Status.Phase == corev1.PodFailed,
		}
		if p.labelled {
			p.labels = unique.Make(slim.Labels(""))
		} else {
			p.uid, p.labels = full.UID, unique.Make(slim.LabelsOf(full.Labels))
		}
		return p, nil
	})
}

// GetObjectMeta makes a pod a metav1.ObjectMetaAccessor, from which caches make its key, and events their reference.
func (p *pod) GetObjectMeta() metav1.Object {
	meta := p.Identity.GetObjectMeta()
	meta.SetUID(p.uid)
	return meta
}

// GetObjectKind makes a pod a runtime.Object, of the kind Pod, so that events can be about it.
func (p *pod) GetObjectKind() schema.ObjectKind {
	return &metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
}

// DeepCopyObject makes a pod a runtime.Object, so that the cache mutation detector watches over it.
func (p *pod) DeepCopyObject() runtime.Object { return new(*p) }
