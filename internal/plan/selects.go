package plan

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Labels provides the labels of an object. labels.Set implements it.
type Labels interface {
	Lookup(key string) (value string, exists bool)
}

// LabelString holds the labels of an object in one string, in the form of labels.Set.String. Equal labels are ==.
type LabelString string

// LabelStringOf returns labels as a LabelString.
func LabelStringOf(set map[string]string) LabelString { return LabelString(labels.Set(set).String()) }

// Lookup returns the value of a label, and whether there is one. It runs for every node in every sync.
func (l LabelString) Lookup(key string) (value string, exists bool) {
	for label := range strings.SplitSeq(string(l), ",") {
		if value, found := strings.CutPrefix(label, key); found && strings.HasPrefix(value, "=") {
			return value[1:], true
		}
	}
	return "", false
}

// Set returns the labels as a map, for many look-ups.
func (l LabelString) Set() labels.Set {
	set := labels.Set{}
	for label := range strings.SplitSeq(string(l), ",") {
		if key, value, ok := strings.Cut(label, "="); ok {
			set[key] = value
		}
	}
	return set
}

// SelectsPod reports whether the Services of a LocalService select a pod with these labels, if it is on the right
// node.
func SelectsPod[L Labels](ls *v1alpha1.LocalService, pod L) bool {
	return len(ls.Spec.Selector) > 0 && subset(ls.Spec.Selector, pod)
}

func subset[L Labels](want map[string]string, have L) bool {
	for key, value := range want {
		if got, ok := have.Lookup(key); !ok || got != value {
			return false
		}
	}
	return true
}

// LabelsPods reports whether a LocalService needs the node label on its pods.
func LabelsPods(ls *v1alpha1.LocalService) bool { return ls.Spec.Mode != v1alpha1.ModeHostnames }

// HasNodeSelector reports whether a LocalService chooses among the nodes.
func HasNodeSelector(ls *v1alpha1.LocalService) bool {
	return len(ls.Spec.NodeSelector)+len(ls.Spec.NodeSelectorTerms) > 0
}

// Selects reports whether a LocalService selects a node, by the node's labels and name. The terms mean the same as in
// a pod's node affinity. Package nodeaffinity of Kubernetes, against which this is tested, compiles the terms and
// needs a map of each node's labels: for one change of a node, that takes 5.5 ms and 3 MB with 2,000 LocalServices, and
// Selects 0.1 ms.
func Selects[L Labels](ls *v1alpha1.LocalService, node string, have L) bool {
	if !subset(ls.Spec.NodeSelector, have) {
		return false
	}
	terms := ls.Spec.NodeSelectorTerms
	if len(terms) == 0 {
		return true
	}
	for i := range terms {
		if matchesTerm(&terms[i], node, have) {
			return true
		}
	}
	return false
}

func matchesTerm[L Labels](term *v1alpha1.NodeSelectorTerm, node string, have L) bool {
	for i := range term.MatchExpressions {
		e := &term.MatchExpressions[i]
		value, exists := have.Lookup(e.Key)
		if !matches(e.Operator, e.Values, value, exists) {
			return false
		}
	}
	for i := range term.MatchFields {
		if f := &term.MatchFields[i]; !matches(f.Operator, f.Values, node, true) {
			return false
		}
	}
	return len(term.MatchExpressions)+len(term.MatchFields) > 0
}

func matches(operator corev1.NodeSelectorOperator, values []string, value string, exists bool) bool {
	switch operator {
	case corev1.NodeSelectorOpIn:
		return exists && slices.Contains(values, value)
	case corev1.NodeSelectorOpNotIn:
		return !exists || !slices.Contains(values, value)
	case corev1.NodeSelectorOpExists:
		return exists
	case corev1.NodeSelectorOpDoesNotExist:
		return !exists
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		have, err := strconv.ParseInt(value, 10, 64)
		if err != nil || len(values) != 1 {
			return false
		}
		limit, err := strconv.ParseInt(values[0], 10, 64)
		return err == nil && (have > limit) == (operator == corev1.NodeSelectorOpGt) && have != limit
	}
	return false
}
