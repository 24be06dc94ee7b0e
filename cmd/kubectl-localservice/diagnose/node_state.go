package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// NodeState is what keeps pods off a node, or from answering there.
type NodeState struct {
	// Cordoned is whether the node takes no new pods.
	Cordoned bool
	// NotReady is whether the node's kubelet is not ready, or not heard of; Since is when that began, if known.
	NotReady bool
	Since    metav1.Time
	// Taints are those that somebody has set: Kubernetes' own ones follow from the other fields.
	Taints []corev1.Taint
}

// ownTaints is the prefix of the taints that Kubernetes sets.
const ownTaints = "node.kubernetes.io/"

// NodeStateOf returns the state of a node, the zero value for one that takes pods.
func NodeStateOf(node *corev1.Node) NodeState {
	s := NodeState{Cordoned: node.Spec.Unschedulable}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			s.NotReady, s.Since = true, c.LastTransitionTime
		}
	}
	for _, t := range node.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(t.Key, ownTaints) {
			s.Taints = append(s.Taints, t)
		}
	}
	return s
}

// all reports whether something is true of the node that a name is for, or of all nodes of the group.
func (v *view) all(name *name, is func(NodeState) bool) bool {
	return len(name.nodes) > 0 && !slices.ContainsFunc(name.nodes, func(node string) bool {
		return !is(v.States[node])
	})
}

func (v *view) cordoned(name *name) bool {
	return v.all(name, func(s NodeState) bool { return s.Cordoned })
}

// notReady says that the node of a name is not ready, or all nodes of its group; "" if it is.
func (v *view) notReady(name *name) string {
	if !v.all(name, func(s NodeState) bool { return s.NotReady }) {
		return ""
	}
	last := v.States[name.nodes[0]]
	for _, node := range name.nodes {
		if s := v.States[node]; last.Since.Before(&s.Since) {
			last = s
		}
	}
	if v.LocalService.Spec.GroupBy != "" {
		return "its nodes are NotReady" + v.since(last)
	}
	return "the node is NotReady" + v.since(last)
}

// since says since when a node is not ready: for how long if Now is known, or the time, which stays the same.
func (v *view) since(state NodeState) string {
	switch {
	case state.Since.IsZero():
		return ""
	case v.Now.IsZero():
		return " since " + state.Since.UTC().Format(time.DateTime) + " UTC"
	}
	return " since " + ageOf(v.Now.Sub(state.Since.Time))
}

// ageOf formats a duration as kubectl does, with a space: 40 s, 3 m 20 s.
func ageOf(d time.Duration) string {
	text := duration.HumanDuration(max(d, 0))
	var spaced strings.Builder
	for i, r := range text {
		isUnit := r < '0' || r > '9'
		if isUnit || i > 0 && (text[i-1] < '0' || text[i-1] > '9') {
			spaced.WriteByte(' ')
		}
		spaced.WriteRune(r)
	}
	return spaced.String()
}

// untolerated returns a taint of the node of a name that no pod of the LocalService tolerates, "" if there is none. In
// a group, each node must have one.
func (v *view) untolerated(name *name) (taint string) {
	hasOne := v.all(name, func(s NodeState) bool {
		for i := range s.Taints {
			if t := &s.Taints[i]; !v.tolerates(t) {
				taint = fmt.Sprintf("%s:%s", strings.TrimSuffix(t.Key+"="+t.Value, "="), t.Effect)
				return true
			}
		}
		return false
	})
	if !hasOne {
		return ""
	}
	return taint
}

// tolerates reports whether a pod of the LocalService tolerates a taint, or there is no pod.
func (v *view) tolerates(taint *corev1.Taint) bool {
	key := corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect}
	tolerated, known := v.tolerated[key]
	if !known {
		tolerated = len(v.Pods) == 0 || slices.ContainsFunc(v.Pods, func(pod *corev1.Pod) bool {
			return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return matches(&t, taint) })
		})
		v.tolerated[key] = tolerated
	}
	return tolerated
}

// matches reports whether a toleration tolerates a taint, or may do so by a comparison of numbers.
func matches(t *corev1.Toleration, taint *corev1.Taint) bool {
	isEqual := t.Operator == "" || t.Operator == corev1.TolerationOpEqual
	return (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == "" || t.Key == taint.Key) &&
		(!isEqual || t.Value == taint.Value)
}
