package diagnose

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Trim drops most of what neither Nodes nor the page of view reads, for caches. It changes its argument. It never
// fails, and returns an error only because informers expect that of a transform.
func Trim(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil { // A tombstone, for example, is not an object.
		accessor.SetManagedFields(nil)
	}
	switch o := object.(type) {
	case *corev1.Pod:
		spec := corev1.PodSpec{NodeName: o.Spec.NodeName, Tolerations: o.Spec.Tolerations}
		for i := range o.Spec.Containers {
			c := &o.Spec.Containers[i]
			spec.Containers = append(spec.Containers,
				corev1.Container{Ports: c.Ports, Command: c.Command, Args: c.Args, Env: c.Env})
		}
		o.Annotations, o.Spec = nil, spec
	case *corev1.Node:
		conditions := o.Status.Conditions
		for i := range conditions {
			conditions[i].LastHeartbeatTime = metav1.Time{}
		}
		o.Annotations, o.Status = nil, corev1.NodeStatus{Conditions: conditions}
	}
	return object, nil
}
