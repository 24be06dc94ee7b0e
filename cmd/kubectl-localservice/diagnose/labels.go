package diagnose

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// nodeLabels finds out how pods get their node label. An admission policy may be installed and not work, and users who
// may see pods often may not see policies. The pods themselves show it: the controller's write is in their
// managedFields, but a field that admission sets has no manager, and binding a pod changes no managedFields. Pods with
// a wrong label, or with one that somebody else set, such as their template, show nothing. Nor do those on nodes with
// names too long for a label, which the policies leave to the controller.
func (v *view) nodeLabels() NodeLabels {
	var newest LabelOrigin
	pods := map[LabelOrigin]int{}
	byTime := func(a, b *corev1.Pod) int { return scheduled(a).Compare(scheduled(b)) }
	for _, pod := range slices.SortedStableFunc(slices.Values(v.Pods), byTime) {
		if node := pod.Spec.NodeName; node == "" || pod.Labels[v.nodeLabelKey] != node {
			continue
		}
		if origin := labelOrigin(pod, v.nodeLabelKey); origin != "" {
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

// managedLabels are the labels among the fields of one manager.
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

// bySelector says whether the owner of a pod selects it by its node label. The controller does not change such a label:
// the owner would lose the pod, and create another one.
type bySelector string

const (
	selects    bySelector = "selects"
	maySelect  bySelector = "may select"
	notSelects bySelector = ""
)

// selectedBy returns the owner of a pod, which is its controller, and whether it selects the pod by its node label.
func (v *view) selectedBy(pod *corev1.Pod) (owner string, how bySelector) {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return "", notSelects
	}
	var keys []string
	if v.SelectorKeys != nil {
		keys = v.SelectorKeys(ref)
	}
	switch {
	case keys == nil:
		how = maySelect
	case slices.Contains(keys, v.nodeLabelKey):
		how = selects
	}
	return ref.Kind + " " + ref.Name, how
}

// labelProblems are what may be wrong with a pod that has another node label, the most certain first. What to do comes
// last, after the first colon, so that the table can print it once for all nodes.
var labelProblems = []struct {
	how    bySelector
	reason Reason
	act    string
}{
	{selects, PodsSelectedByLabel, "give the workload another selector, or the controller another key " +
		"(-node-label-key)"},
	{maySelect, PodsSelectedByLabel, "check that selector, and see the pod's events"},
	{notSelects, PodsMislabelled, "the pod's events say whether the controller may correct it"},
}

// labelProblem finds what is wrong with the node label of pods that do not have that of their node.
func (v *view) labelProblem(label, value string, pods []*corev1.Pod) (Reason, string) {
	var unlabelled []string
	others := map[bySelector][]string{}
	for _, pod := range pods {
		other, found := pod.Labels[v.nodeLabelKey]
		if !found {
			unlabelled = append(unlabelled, pod.Name)
			continue
		}
		owner, how := v.selectedBy(pod)
		text := fmt.Sprintf("%s has %s=%s", pod.Name, v.nodeLabelKey, other)
		if how == notSelects {
			text += " instead of " + value
		} else {
			text += fmt.Sprintf(", by which %s %s it", owner, how)
		}
		others[how] = append(others[how], text)
	}
	v.waiting = v.waiting || len(unlabelled) > 0 || len(others[notSelects]) > 0
	for _, p := range labelProblems {
		if texts := others[p.how]; len(texts) > 0 {
			if more := len(texts) - 1; more > 0 {
				texts[0] += " (" + status.Count(more, "more pod") + ")"
			}
			return p.reason, texts[0] + ": " + p.act
		}
	}
	message := fmt.Sprintf("no label %s: %s", label, firstOf(unlabelled))
	if !v.Controller.Stopped {
		message += "; the pod's events say whether it was refused"
	}
	return PodsUnlabelled, message
}

// whyStray says why a pod has the node label of another node.
func (v *view) whyStray(pod *corev1.Pod) string {
	if owner, how := v.selectedBy(pod); how != notSelects {
		return fmt.Sprintf("%s %s it by that label", owner, how)
	}
	return "the controller has not corrected it yet"
}
