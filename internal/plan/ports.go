package plan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// HasClusterIPs reports whether the Services of a LocalService have cluster IPs. Otherwise they are headless.
func HasClusterIPs(ls *v1alpha1.LocalService) bool {
	return ls.Spec.ClusterIP != corev1.ClusterIPNone && ls.Spec.Mode != v1alpha1.ModeHostnames
}

// NamedPorts returns the names of the ports on which a Service of a LocalService may not answer although pods are
// ready: perhaps no container has a port with the name in targetPort. Headless names resolve all the same, and a
// numeric port is published in any case.
func NamedPorts(ls *v1alpha1.LocalService) (names []string) {
	for _, port := range ls.Spec.Ports {
		if HasClusterIPs(ls) && port.TargetPort.StrVal != "" {
			names = append(names, port.Name)
		}
	}
	return names
}

// ReadyServices returns the names of the Services of a LocalService that answer, from its EndpointSlices that have a
// ready endpoint: those that have one and, of their named ports, each at some endpoint.
func ReadyServices(ls *v1alpha1.LocalService, published []*discoveryv1.EndpointSlice) map[string]bool {
	ready := map[string]bool{}
	for _, slice := range published {
		ready[slice.Labels[discoveryv1.LabelServiceName]] = true
	}
	for _, name := range NamedPorts(ls) {
		at := map[string]bool{} // Pods with other ports are in other EndpointSlices.
		for _, slice := range published {
			if slices.ContainsFunc(slice.Ports, func(port discoveryv1.EndpointPort) bool {
				return ptr.Deref(port.Name, "") == name
			}) {
				at[slice.Labels[discoveryv1.LabelServiceName]] = true
			}
		}
		maps.DeleteFunc(ready, func(service string, _ bool) bool { return !at[service] })
	}
	return ready
}

// PortNumbers maps the name of each port whose targetPort is a name to the number that pods have for it; Differs if
// they do not have the same.
type PortNumbers map[string]int32

// PortNumbersOf returns the numbers that the pods of a LocalService have, from its EndpointSlices; nil if clients need
// not know them.
func PortNumbersOf(ls *v1alpha1.LocalService, published []*discoveryv1.EndpointSlice) PortNumbers {
	isNamed := func(port v1alpha1.ServicePort) bool { return port.TargetPort.StrVal != "" }
	if HasClusterIPs(ls) || !slices.ContainsFunc(ls.Spec.Ports, isNamed) {
		return nil
	}
	numbers := PortNumbers{}
	for _, slice := range published {
		numbers.Add(slice.Ports)
	}
	return numbers
}

// Differs stands for several port numbers. It is not a valid port number.
const Differs = -1

// Add adds the numbers that some pods have for their ports.
func (n PortNumbers) Add(ports []discoveryv1.EndpointPort) {
	for i := range ports {
		name, number := ptr.Deref(ports[i].Name, ""), ptr.Deref(ports[i].Port, 0)
		if known, isKnown := n[name]; isKnown && known != number {
			number = Differs
		}
		n[name] = number
	}
}
