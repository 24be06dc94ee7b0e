package diagnose

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// nodeLabels finds out how pods come by their node label. That an admission policy is installed would not show that it
// works, and who may see pods may often not see policies. The pods themselves show it: the controller's write is in
// their managedFields, but a field that admission has set has no manager, and binding a pod changes no managedFields.
// Pods that are not labelled rightly, or that somebody else has labelled, such as their template, show nothing.
func (v *view) nodeLabels() NodeLabels {
	var found NodeLabels
	var newest *corev1.Pod
	for node, pods := range v.pods {
		if node == "" || naming.NodeLabelValue(node) != node {
			continue // The policies leave longer names to the controller.
		}
		for _, pod := range pods {
			var origin LabelOrigin
			if pod.Labels[v.NodeLabelKey] == node {
				origin = labelOrigin(pod, v.NodeLabelKey)
			}
			switch origin {
			case AtBinding:
				found.AtBinding++
			case ByController:
				found.ByController++
			default:
				continue
			}
			if newest == nil || compareScheduled(newest, pod) < 0 {
				newest, found.Newest = pod, origin
			}
		}
	}
	return found
}

// labelOrigin is how a pod got a label, "" if that is not known.
func labelOrigin(pod *corev1.Pod, key string) LabelOrigin {
	origin := AtBinding
	if len(pod.ManagedFields) == 0 {
		origin = ""
	}
	for i := range pod.ManagedFields {
		switch entry := &pod.ManagedFields[i]; {
		case !hasLabel(entry.FieldsV1, key):
		case entry.Manager == v1alpha1.FieldManager:
			return ByController
		default:
			origin = ""
		}
	}
	return origin
}

// hasLabel says whether a label is among the fields of somebody.
func hasLabel(fields *metav1.FieldsV1, key string) bool {
	var object struct {
		Metadata struct {
			Labels map[string]json.RawMessage `json:"f:labels"`
		} `json:"f:metadata"`
	}
	if fields == nil || json.Unmarshal(fields.GetRawBytes(), &object) != nil {
		return false // Not the API server's.
	}
	_, found := object.Metadata.Labels["f:"+key]
	return found
}

// compareScheduled orders pods by when they got their node, and by name, so that the order is always the same.
func compareScheduled(a, b *corev1.Pod) int {
	return cmp.Or(scheduled(a).Compare(scheduled(b)), cmp.Compare(a.Name, b.Name))
}

func scheduled(pod *corev1.Pod) time.Time {
	if c := podCondition(pod, corev1.PodScheduled); c != nil && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

// String is a line for people, "" if nothing is known.
func (l NodeLabels) String() string {
	total := l.AtBinding + l.ByController
	switch {
	case l.Newest == AtBinding && l.ByController > 0:
		return fmt.Sprintf("Node labels: set with the binding, by the admission policies; by the controller on "+
			"%d of %d pods.", l.ByController, total)
	case l.Newest == AtBinding:
		return "Node labels: set with the binding, by the admission policies."
	case l.Newest == ByController && l.AtBinding > 0:
		return fmt.Sprintf("Node labels: set by the controller, after the binding; with the binding on %d of %d "+
			"pods.", l.AtBinding, total)
	case l.Newest == ByController:
		return "Node labels: set by the controller, after the binding."
	}
	return ""
}
