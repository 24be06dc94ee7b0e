package cache

import (
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// Pod keeps the fields of a Pod that are read, in a hundredth of the memory.
type Pod struct {
	Identity
	uid    types.UID             // "" while the node label is right, as it is for most pods
	node   unique.Handle[string] // spec.nodeName
	labels unique.Handle[Labels] // none while the node label is right
	// controller is kept only if the node label has another value.
	controller *metav1.OwnerReference
}

func trimPod(full *corev1.Pod, nodeLabelKey string) (*Pod, error) {
	p := &Pod{
		Identity: identityOf(full),
		node:     unique.Make(full.Spec.NodeName),
		labels:   unique.Make(Labels("")),
	}
	value, exists := full.Labels[nodeLabelKey]
	if full.Spec.NodeName != "" && value == naming.NodeLabelValue(full.Spec.NodeName) {
		return p, nil
	}
	p.uid, p.labels = full.UID, unique.Make(labelsOf(full.Labels))
	if exists {
		p.controller = metav1.GetControllerOf(full)
	}
	return p, nil
}

// Node returns the name of the node that the pod is on, "" before it is scheduled.
func (p *Pod) Node() string { return p.node.Value() }

// Labels returns the labels of a pod whose node label is not right. Others are not kept.
func (p *Pod) Labels() Labels { return p.labels.Value() }

// Labelled reports whether the pod's node label is right.
func (p *Pod) Labelled() bool { return p.uid == "" }

// Controller returns the controller of a pod whose node label has another value than the pod's node; nil for none.
func (p *Pod) Controller() *metav1.OwnerReference { return p.controller }

// GetUID returns the UID of a pod whose node label is not right.
func (p *Pod) GetUID() types.UID { return p.uid }

// Regarding returns what an event about the pod refers to. With a resource version, each repetition would be an event of
// its own.
func (p *Pod) Regarding() *Pod {
	regarding := *p
	regarding.resourceVersion = ""
	return &regarding
}

// GetObjectMeta makes it a metav1.ObjectMetaAccessor, from which caches make its key, and events their reference.
func (p *Pod) GetObjectMeta() metav1.Object {
	meta := p.Identity.GetObjectMeta()
	meta.SetUID(p.uid)
	return meta
}

// GetObjectKind makes it a runtime.Object of the kind Pod, so that events can refer to it.
func (p *Pod) GetObjectKind() schema.ObjectKind {
	return &metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
}

// DeepCopyObject makes it a runtime.Object, which the cache mutation detector can check.
func (p *Pod) DeepCopyObject() runtime.Object { return new(*p) }
