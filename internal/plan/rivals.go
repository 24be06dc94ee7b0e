package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// Hostnames returns the hostname of each node that has one in mode Hostnames, and the Rivals. With groupBy, nodes share
// the hostname of their group, and those on which the label is missing or empty have none.
func Hostnames(ls *v1alpha1.LocalService, nodes []string, labels NodeLabels) (hostnames, rivals map[string]string) {
	valueOf, values := func(node string) string { return node }, nodes
	if groupBy := ls.Spec.GroupBy; groupBy != "" {
		valueOf = func(node string) string {
			value, _ := labels(node, groupBy)
			return value
		}
		distinct := sets.Set[string]{}
		for _, node := range nodes {
			distinct.Insert(valueOf(node))
		}
		values = distinct.Delete("").UnsortedList()
	}
	hostnames, rivals = make(map[string]string, len(nodes)), Rivals(ls, values)
	for _, node := range nodes {
		if value := valueOf(node); value != "" && rivals[value] == "" {
			hostnames[node] = naming.Hostname(value)
		}
	}
	return hostnames, rivals
}

// Rivals returns the nodes, or with groupBy the values of the label, without the name that a LocalService would give
// them, because another one has it, such as x.y beside x-y. It maps each to the one that has the name. See
// naming.Hostname. nodesOrValues lists each once.
func Rivals(ls *v1alpha1.LocalService, nodesOrValues []string) map[string]string {
	longest := validation.DNS1123LabelMaxLength
	if ls.Spec.Mode != v1alpha1.ModeHostnames {
		longest -= len(ls.Name) + 1
	}
	isName := func(value string) bool { return len(value) <= longest && naming.Hostname(value) == value }
	if !slices.ContainsFunc(nodesOrValues, func(value string) bool { return !isName(value) }) {
		return nil // All have their own names.
	}
	holders := make(map[string]string, len(nodesOrValues))
	for _, value := range nodesOrValues {
		name := nameOf(ls, value)
		holder, isTaken := holders[name]
		if !isTaken || isName(value) || !isName(holder) && value < holder {
			holders[name] = value
		}
	}
	if len(holders) == len(nodesOrValues) {
		return nil
	}
	rivals := map[string]string{}
	for _, value := range nodesOrValues {
		if holder := holders[nameOf(ls, value)]; holder != value {
			rivals[value] = holder
		}
	}
	return rivals
}

// nameOf returns the name that a LocalService gives a node, or a group by the value of its label, unless another one
// has it: the name of its Service or, in mode Hostnames, its hostname.
func nameOf(ls *v1alpha1.LocalService, nodeOrValue string) string {
	if ls.Spec.Mode == v1alpha1.ModeHostnames {
		return naming.Hostname(nodeOrValue)
	}
	return naming.ServiceName(ls.Name, nodeOrValue)
}
