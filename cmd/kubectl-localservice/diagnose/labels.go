package diagnose

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// LabelOrigin says how a pod got its node label.
type LabelOrigin string

const (
	// AtBinding: an admission policy set it in the write that gave the pod its node.
	AtBinding LabelOrigin = "AtBinding"
	// ByController: the controller set it, in a write of its own.
	ByController LabelOrigin = "ByController"
)

// NodeLabels counts pods by how they got their node label. Pods for which that is not known are left out.
type NodeLabels struct {
	// Newest is how the last scheduled pod got it, which shows whether the admission policies work. "" if not known.
	Newest       LabelOrigin `json:"newest"`
	AtBinding    int         `json:"atBinding"`
	ByController int         `json:"byController"`
}

// nodeLabelsOf finds out how pods get their node label. An admission policy may be installed and not work, and users who
// may see pods often may not see policies. The pods themselves show it: the controller's write is in their
// managedFields, but a field that admission sets has no manager, and binding a pod changes no managedFields. Pods with
// a wrong label, or with one that somebody else set, such as their template, show nothing. Nor do those on nodes with
// names too long for a label, which the policies leave to the controller.
func nodeLabelsOf(f *facts) NodeLabels {
	var newest LabelOrigin
	pods := map[LabelOrigin]int{}
	byTime := func(a, b *corev1.Pod) int { return scheduled(a).Compare(scheduled(b)) }
	for _, pod := range slices.SortedStableFunc(slices.Values(f.Pods), byTime) {
		if node := pod.Spec.NodeName; node == "" || pod.Labels[f.nodeLabelKey] != node {
			continue
		}
		if origin := labelOrigin(pod, f.nodeLabelKey); origin != "" {
			pods[origin]++
			newest = origin
		}
	}
	return NodeLabels{Newest: newest, AtBinding: pods[AtBinding], ByController: pods[ByController]}
}

// scheduled returns when a pod got its node.
func scheduled(pod *corev1.Pod) time.Time {
	return cmp.Or(podCondition(pod, corev1.PodScheduled).LastTransitionTime, pod.CreationTimestamp).Time
}

// labelOrigin returns how a pod got a label, "" if that is not known.
func labelOrigin(pod *corev1.Pod, key string) LabelOrigin {
	var managers []string
	for i := range pod.ManagedFields {
		if hasLabel(pod.ManagedFields[i].FieldsV1, key) {
			managers = append(managers, pod.ManagedFields[i].Manager)
		}
	}
	switch {
	case slices.Contains(managers, v1alpha1.FieldManager):
		return ByController
	case len(managers) > 0, len(pod.ManagedFields) == 0:
		return ""
	}
	return AtBinding
}

// managedLabels decodes the labels among the fields of one manager.
type managedLabels struct {
	Metadata struct {
		Labels map[string]json.RawMessage `json:"f:labels"`
	} `json:"f:metadata"`
}

// hasLabel reports whether a label is among the fields of one manager.
func hasLabel(fields *metav1.FieldsV1, key string) bool {
	var object managedLabels
	if fields == nil || json.Unmarshal(fields.GetRawBytes(), &object) != nil {
		return false // Not written by the API server.
	}
	_, found := object.Metadata.Labels["f:"+key]
	return found
}

// String returns a line for people, "" if nothing is known.
func (l NodeLabels) String() string {
	const atBinding, byController = "with the binding", "by the controller"
	var line, otherwise string
	var others int
	switch l.Newest {
	case AtBinding:
		line, otherwise, others = atBinding+", by the admission policies", byController, l.ByController
	case ByController:
		line, otherwise, others = byController+", after the binding", atBinding, l.AtBinding
	default:
		return ""
	}
	if others > 0 {
		line += fmt.Sprintf("; %s on %d of %d pods", otherwise, others, l.AtBinding+l.ByController)
	}
	return "Node labels: set " + line + "."
}
