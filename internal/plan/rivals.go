package plan

import (
	"hash/maphash"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// Rivals returns the nodes without the name that a LocalService would give them, because another one of the nodes has
// it, such as x.y beside x-y. It maps each to the node that has the name. See naming.ServiceName.
func Rivals(ls *v1alpha1.LocalService, nodes []string) map[string]string {
	longest := validation.DNS1123LabelMaxLength
	switch {
	case ls.Spec.GroupBy != "":
		return nil // Nodes share the name of their group.
	case ls.Spec.Mode != v1alpha1.ModeHostnames:
		longest -= len(ls.Name) + 1
	}
	isChanged := func(node string) bool { return strings.Contains(node, ".") || len(node) > longest }
	if !slices.ContainsFunc(nodes, isChanged) || !mayClash(ls, nodes) {
		return nil // All have their own names.
	}
	holders, others := make(map[string]string, len(nodes)), []string(nil)
	for _, node := range nodes {
		name := nameOfNode(ls, node)
		holder, isTaken := holders[name]
		switch {
		case !isTaken:
			holders[name] = node
		case node < holder:
			holders[name], others = node, append(others, holder)
		default:
			others = append(others, node)
		}
	}
	rivals := make(map[string]string, len(others))
	for _, node := range others {
		rivals[node] = holders[nameOfNode(ls, node)]
	}
	return rivals
}

// mayClash reports whether two nodes may want the same name. It compares hashes, because it runs for all nodes in
// each sync.
func mayClash(ls *v1alpha1.LocalService, nodes []string) bool {
	seen, name := make(map[uint64]struct{}, len(nodes)), []byte(nil)
	for _, node := range nodes {
		if ls.Spec.Mode == v1alpha1.ModeHostnames {
			name = append(name[:0], naming.Hostname(node)...)
		} else {
			name = naming.AppendServiceName(name[:0], ls.Name, node)
		}
		seen[maphash.Bytes(seed, name)] = struct{}{}
	}
	return len(seen) < len(nodes)
}

// nameOfNode returns the name that a LocalService gives a node unless another node has it: the name of its Service
// or, in mode Hostnames, its hostname.
func nameOfNode(ls *v1alpha1.LocalService, node string) string {
	if ls.Spec.Mode == v1alpha1.ModeHostnames {
		return naming.Hostname(node)
	}
	return naming.ServiceName(ls.Name, node)
}
