package diagnose

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Trim drops what neither Nodes nor the page of view reads, for caches. It may change its argument; for a pod or a node
// it returns a new object. It never fails, and returns an error only because informers expect that of a transform.
func Trim(object any) (any, error) {
	switch full := object.(type) {
	case *corev1.Pod:
		return trimPod(full), nil
	case *corev1.Node:
		return trimNode(full), nil
	}
	if accessor, err := meta.Accessor(object); err == nil { // A tombstone, for example, is not an object.
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

func trimNode(full *corev1.Node) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: full.Name, UID: full.UID, ResourceVersion: full.ResourceVersion,
			Labels: full.Labels},
		Spec: corev1.NodeSpec{Unschedulable: full.Spec.Unschedulable, Taints: full.Spec.Taints},
	}
	for _, c := range full.Status.Conditions {
		if c.Type == corev1.NodeReady {
			node.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status,
				LastTransitionTime: c.LastTransitionTime}}
		}
	}
	return node
}

func trimPod(full *corev1.Pod) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: full.Namespace, Name: full.Name, UID: full.UID, ResourceVersion: full.ResourceVersion,
			Labels: full.Labels, CreationTimestamp: full.CreationTimestamp, DeletionTimestamp: full.DeletionTimestamp,
			OwnerReferences: full.OwnerReferences,
		},
		Spec: corev1.PodSpec{NodeName: full.Spec.NodeName, Tolerations: trimTolerations(full.Spec.Tolerations),
			Containers: trimContainers(full.Spec.Containers)},
		Status: corev1.PodStatus{
			Phase: full.Status.Phase, Reason: full.Status.Reason, Message: full.Status.Message, PodIPs: full.Status.PodIPs,
			InitContainerStatuses: trimStatuses(full.Status.InitContainerStatuses),
			ContainerStatuses:     trimStatuses(full.Status.ContainerStatuses),
		},
	}
	for _, c := range full.Status.Conditions {
		if c.Type == corev1.PodReady || c.Type == corev1.PodScheduled {
			pod.Status.Conditions = append(pod.Status.Conditions, c)
		}
	}
	for i := range full.ManagedFields {
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: full.ManagedFields[i].Manager, FieldsV1: trimFields(full.ManagedFields[i].FieldsV1)})
	}
	return pod
}

// trimTolerations keeps those that say something about the taints of a nodeState. Most pods have none.
func trimTolerations(full []corev1.Toleration) []corev1.Toleration {
	return slices.DeleteFunc(slices.Clone(full), func(t corev1.Toleration) bool {
		return strings.HasPrefix(t.Key, ownTaints)
	})
}

// trimContainers keeps ports, and what refers to a variable.
func trimContainers(full []corev1.Container) []corev1.Container {
	var containers []corev1.Container
	for i := range full {
		c := corev1.Container{Ports: full[i].Ports}
		for _, arg := range slices.Concat(full[i].Command, full[i].Args) {
			if strings.Contains(arg, "$") {
				c.Args = append(c.Args, arg)
			}
		}
		for _, e := range full[i].Env {
			if strings.Contains(e.Value, "$") {
				c.Env = append(c.Env, e)
			}
		}
		if len(c.Ports)+len(c.Args)+len(c.Env) > 0 {
			containers = append(containers, c)
		}
	}
	return containers
}

func trimStatuses(full []corev1.ContainerStatus) []corev1.ContainerStatus {
	var statuses []corev1.ContainerStatus
	for i := range full {
		c := corev1.ContainerStatus{Name: full[i].Name, Ready: full[i].Ready, Started: full[i].Started,
			RestartCount: full[i].RestartCount, State: full[i].State,
			LastTerminationState: full[i].LastTerminationState}
		if c.State.Waiting != nil {
			c.Image = full[i].Image
		}
		statuses = append(statuses, c)
	}
	return statuses
}

// trimFields keeps the labels.
func trimFields(full *metav1.FieldsV1) *metav1.FieldsV1 {
	var fields managedLabels
	if full == nil || json.Unmarshal(full.GetRawBytes(), &fields) != nil || len(fields.Metadata.Labels) == 0 {
		return nil
	}
	labels, err := json.Marshal(fields)
	if err != nil {
		return nil // It was decoded from JSON.
	}
	return metav1.NewFieldsV1(string(labels))
}
