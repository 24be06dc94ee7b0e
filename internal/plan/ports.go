package plan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// HasClusterIPs reports whether the Services of a LocalService have cluster IPs. The others are headless.
func HasClusterIPs(ls *v1alpha1.LocalService) bool {
	return ls.Spec.ClusterIP != corev1.ClusterIPNone && ls.Spec.Mode != v1alpha1.ModeHostnames
}

// TranslatedPorts says which ports have another number in the pods where the Services do not translate it, "" if none.
func TranslatedPorts(ls *v1alpha1.LocalService) string {
	if HasClusterIPs(ls) {
		return ""
	}
	var ports []string
	for _, port := range ls.Spec.Ports {
		target := port.TargetPort.IntVal
		if target == 0 || target == port.Port {
			continue
		}
		if text := fmt.Sprintf("%d (not %d)", target, port.Port); !slices.Contains(ports, text) {
			ports = append(ports, text) // A port may have two protocols.
		}
	}
	if len(ports) == 0 {
		return ""
	}
	return fmt.Sprintf("clients must connect to port %s: a headless Service does not translate ports",
		strings.Join(ports, ", "))
}
