package cache

import (
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// Pod keeps the fields of a Pod that are read, in a hundredth of the memory.
type Pod struct {
	plan.Identity
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
	p := &Pod{Identity: plan.IdentityOf(full), node: unique.Make(full.Spec.NodeName), unlabelled: nothing}
	value, exists := full.Labels[nodeLabelKey]
	if full.Spec.NodeName != "" && value == naming.NodeLabelValue(full.Spec.NodeName) {
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

// Node returns the name of the node that the pod is on, "" before it is scheduled.
func (p *Pod) Node() string { return p.node.Value() }

// Labelled reports whether the pod's node label is right.
func (p *Pod) Labelled() bool { return p.unlabelled == nothing }

// NeedsLabel reports whether the pod is on a node, and its node label is missing or wrong.
func (p *Pod) NeedsLabel() bool { return !p.Labelled() && p.Node() != "" }

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
	return p.node == other.node && p.Labelled() == other.Labelled() &&
		p.GetUID() == other.GetUID() && p.unlabelled.labels == other.unlabelled.labels
}
