package plan

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// Rivals returns the nodes without the name that a LocalService would give them, because another one of the nodes has
// it, such as x.y beside x-y. It maps each to the node that has the name. See naming.ServiceName.
func Rivals(ls *v1alpha1.LocalService, nodes []string) map[string]string {
	if ls.Spec.GroupBy != "" {
		return nil // Nodes share the name of their group.
	}
	mayChange := func(node string) bool {
		return strings.Contains(node, ".") || len(ls.Name)+1+len(node) > validation.DNS1123LabelMaxLength
	}
	if !slices.ContainsFunc(nodes, mayChange) {
		return nil // All have their own names.
	}
	holders := make(map[string]string, len(nodes))
	for _, node := range nodes {
		name := nameOfNode(ls, node)
		if holder, isTaken := holders[name]; !isTaken || node < holder {
			holders[name] = node
		}
	}
	if len(holders) == len(nodes) {
		return nil
	}
	rivals := map[string]string{}
	for _, node := range nodes {
		if holder := holders[nameOfNode(ls, node)]; holder != node {
			rivals[node] = holder
		}
	}
	return rivals
}

// nameOfNode returns the name that a LocalService gives a node unless another node has it: the name of its Service
// or, in mode Hostnames, its hostname.
func nameOfNode(ls *v1alpha1.LocalService, node string) string {
	if ls.Spec.Mode == v1alpha1.ModeHostnames {
		return naming.Hostname(node)
	}
	return naming.ServiceName(ls.Name, node)
}
