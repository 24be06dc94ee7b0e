package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// SelectorHint explains which label in the selector of a LocalService is a node label, which pods hardly ever have;
// it returns "" if none is. The hint helps if no name answers.
func SelectorHint(ls *v1alpha1.LocalService) string {
	for _, key := range slices.Sorted(maps.Keys(ls.Spec.Selector)) {
		if isOfNodes(key) {
			return fmt.Sprintf("the label %s is one of nodes, and selector selects pods: choose nodes with "+
				"nodeSelector", key)
		}
	}
	return ""
}

func isOfNodes(key string) bool {
	switch key {
	case corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable:
		return true
	}
	return strings.HasPrefix(key, "node.kubernetes.io/") || strings.HasPrefix(key, "node-role.kubernetes.io/")
}
