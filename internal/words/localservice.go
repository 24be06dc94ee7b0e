package words

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// TranslatedPorts describes the ports that have another number in the pods, where the Services do not translate it;
// "" if there are none. For a targetPort that is a name, it uses the numbers in named.
func TranslatedPorts(ls *v1alpha1.LocalService, named plan.PortNumbers) string {
	if plan.HasClusterIPs(ls) {
		return ""
	}
	var ports []string
	for _, port := range ls.Spec.Ports {
		target := port.TargetPort.IntVal
		if port.TargetPort.StrVal != "" {
			target = named[port.Name]
		}
		if target == 0 || target == port.Port {
			continue
		}
		text := fmt.Sprintf("%d (not %d)", target, port.Port)
		if target == plan.Differs {
			text = fmt.Sprintf("%s of the pods, whose number differs (kubectl localservice url prints it)",
				port.TargetPort.StrVal)
		}
		if !slices.Contains(ports, text) {
			ports = append(ports, text) // A port may have two protocols.
		}
	}
	if len(ports) == 0 {
		return ""
	}
	return fmt.Sprintf("clients must connect to port %s: a headless Service does not translate ports",
		strings.Join(ports, ", "))
}

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

// AdoptionCommand returns the command that makes a Service without a controller an Orphan, for a node.
func AdoptionCommand(kubectl string, ls *v1alpha1.LocalService, node, nodeLabelKey string) string {
	return fmt.Sprintf(`%s patch service -n %s %s --type=merge -p `+
		`'{"metadata":{"labels":{"%s":"%s"}},"spec":{"selector":{"%s":"%s"}}}'`, kubectl, ls.Namespace,
		plan.ServiceName(ls.Name, plan.ForNode, node), v1alpha1.OwnerLabelKey, ls.Name, nodeLabelKey, naming.NodeLabelValue(node))
}

// Controller names the controller for people: "LocalService a", "Deployment b (apps/v1)". It escapes the text,
// because anybody can write anything into an owner reference.
func Controller(c plan.Controller) string {
	if c.IsLocalService() {
		return Printable(v1alpha1.Kind + " " + c.Name)
	}
	return Printable(cmp.Or(c.Kind, "object") + " " + c.Name + " (" + c.APIVersion + ")")
}
