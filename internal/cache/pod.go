package cache

import (
	"context"
	"sync"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// Pod keeps the fields of a Pod that are read, in a hundredth of the memory.
type Pod struct {
	identity
	node       unique.Handle[string] // spec.nodeName
	unlabelled *unlabelled           // nothing while the node label is right, as it is for most pods
}

// unlabelled holds what is read only of pods whose node label is not right.
type unlabelled struct {
	uid       types.UID
	labels    unique.Handle[plan.LabelString]
	scheduled int64 // in Unix seconds
	// controller is kept only if the node label has another value.
	controller *metav1.OwnerReference
}

// nothing is kept of a pod whose node label is right.
var nothing = &unlabelled{labels: unique.Make(plan.LabelString(""))}

func trimPod(full *corev1.Pod, nodeLabelKey string) (*Pod, error) {
	p := &Pod{identity: identityOf(full), node: unique.Make(full.Spec.NodeName), unlabelled: nothing}
	value, exists := full.Labels[nodeLabelKey]
	if value == naming.NodeLabelValue(full.Spec.NodeName) {
		return p, nil
	}
	p.unlabelled = &unlabelled{uid: full.UID, labels: unique.Make(plan.LabelStringOf(full.Labels)),
		scheduled: scheduled(full)}
	if exists {
		p.unlabelled.controller = metav1.GetControllerOf(full)
	}
	return p, nil
}

// scheduled returns when a pod was scheduled, in Unix seconds, 0 if nothing has scheduled it.
func scheduled(p *corev1.Pod) int64 {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Unix()
		}
	}
	return 0
}

// Node returns the name of the node that the pod is on. Only scheduled pods are watched.
func (p *Pod) Node() string { return p.node.Value() }

// NeedsLabel reports whether the pod's node label is missing or wrong.
func (p *Pod) NeedsLabel() bool { return p.unlabelled != nothing }

// Labels returns the labels of a pod whose node label is not right. Others are not kept.
func (p *Pod) Labels() plan.LabelString { return p.unlabelled.labels.Value() }

// Scheduled returns when a pod whose node label is not right was scheduled, a time long ago if that is not known.
func (p *Pod) Scheduled() time.Time { return time.Unix(p.unlabelled.scheduled, 0) }

// Controller returns the controller of a pod whose node label has another value than the pod's node; nil for none.
func (p *Pod) Controller() *metav1.OwnerReference { return p.unlabelled.controller }

// GetUID returns the UID of a pod whose node label is not right.
func (p *Pod) GetUID() types.UID { return p.unlabelled.uid }

// Same reports whether two states differ only in the resource version. Kubelets change other fields all the time.
func (p *Pod) Same(other *Pod) bool {
	return p.node == other.node && p.NeedsLabel() == other.NeedsLabel() &&
		p.GetUID() == other.GetUID() && p.unlabelled.labels == other.unlabelled.labels
}

// Pods is the cache of Pods. Pods are by far the most numerous objects, so it is empty, and watches nothing, until a
// LocalService needs labels on them. From then on it watches until the process ends. With -label-pods=false it stays
// empty.
type Pods struct {
	*Store[*Pod]
	begun chan struct{}
	begin func() // closes begun, once
}

func newPods(store *Store[*Pod]) *Pods {
	begun := make(chan struct{})
	return &Pods{store, begun, sync.OnceFunc(func() { close(begun) })}
}

// localServiceChanged begins to watch pods if a LocalService needs labels on them.
func (p *Pods) localServiceChanged(_, after *v1alpha1.LocalService) {
	if after != nil && needsLabels(after) {
		p.begin()
	}
}

// run fills the cache from the moment it is needed, until ctx is done.
func (p *Pods) run(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-p.begun:
		p.Store.run(ctx)
	}
}

// HasSynced reports whether the handlers have seen all pods of a namespace that existed when the watch began. It is
// true if pods are not watched. Ask after LocalServices have synced.
func (p *Pods) HasSynced(namespace string) bool {
	select {
	case <-p.begun:
		return p.Store.HasSynced(namespace)
	default:
		return true
	}
}

// Unlabelled returns the pods of a namespace that need the node label.
func (p *Pods) Unlabelled(namespace string) []*Pod { return p.indexed(namespace, "") }

// Labelling returns the LocalServices of a namespace that need labels on their pods.
func (c *Caches) Labelling(namespace string) []*v1alpha1.LocalService {
	return c.LocalServices.indexed(namespace, "")
}

// needsLabels reports whether a LocalService needs labels on pods. An invalid one selects none.
func needsLabels(ls *v1alpha1.LocalService) bool {
	return plan.LabelsPods(ls) && len(ls.Spec.Selector) > 0
}
