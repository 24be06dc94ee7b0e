package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// missingPorts returns the ports of a name that Kubernetes does not publish for its ready pods, because no container of
// theirs has a port of the name that targetPort gives. Nothing can connect to these.
func (v *view) missingPorts(name string) []v1alpha1.ServicePort {
	published := slices.Concat(v.ports[name]...) // Pods with other ports are in other EndpointSlices.
	if len(v.ports[name]) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(v.LocalService.Spec.Ports), func(port v1alpha1.ServicePort) bool {
		return port.TargetPort.StrVal == "" ||
			slices.ContainsFunc(published, func(p discoveryv1.EndpointPort) bool { return nameOf(&p) == port.Name })
	})
}

func nameOf(port *discoveryv1.EndpointPort) string {
	if port.Name == nil {
		return ""
	}
	return *port.Name
}

// portProblem says which ports of a name nothing listens on.
func (v *view) portProblem(name *name, missing []v1alpha1.ServicePort) string {
	var targets, ports []string
	for i := range missing {
		target := fmt.Sprintf("%q", missing[i].TargetPort.StrVal)
		if protocol := missing[i].Protocol; protocol != "" && protocol != corev1.ProtocolTCP {
			target += " for " + string(protocol)
		}
		targets = append(targets, target)
		ports = append(ports, fmt.Sprint(missing[i].Port))
	}
	message := "no container has a port named " + strings.Join(targets, ", ")
	for _, pod := range name.pods {
		if v.whyNotReady(pod).word == "" {
			message = fmt.Sprintf("no container of %s has a port named %s (%s)", pod.Name, strings.Join(targets, ", "),
				portsOf(pod))
			break
		}
	}
	return message + ": nothing listens behind port " + strings.Join(ports, ", ")
}

// portsOf lists the ports of a pod's containers.
func portsOf(pod *corev1.Pod) string {
	var named []string
	for i := range pod.Spec.Containers {
		for _, port := range pod.Spec.Containers[i].Ports {
			if port.Name != "" {
				named = append(named, fmt.Sprintf("%s: %d/%s", port.Name, port.ContainerPort,
					cmp.Or(port.Protocol, corev1.ProtocolTCP)))
			}
		}
	}
	if len(named) == 0 {
		return "it names no port"
	}
	return "it has " + firstOf(named)
}

// numbers returns the numbers that the pods have for ports whose targetPort is a name, by the name of the port.
func (v *view) numbers() plan.PortNumbers {
	numbers := plan.PortNumbers{}
	for _, all := range v.ports {
		for _, published := range all {
			for i := range published {
				if number := published[i].Port; number != nil {
					numbers.Add(nameOf(&published[i]), *number)
				}
			}
		}
	}
	return numbers
}
