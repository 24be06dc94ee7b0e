package cache

import (
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// trimEndpointSlice keeps what is read of the EndpointSlice of a generated Service: its Service, its LocalService, its
// ports, and whether its endpoints answer.
func trimEndpointSlice(s *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	s.ObjectMeta = metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, ResourceVersion: s.ResourceVersion,
		Labels: map[string]string{discoveryv1.LabelServiceName: s.Labels[discoveryv1.LabelServiceName],
			v1alpha1.OwnerLabelKey: s.Labels[v1alpha1.OwnerLabelKey]}}
	for i := range s.Endpoints {
		s.Endpoints[i] = discoveryv1.Endpoint{Conditions: s.Endpoints[i].Conditions}
	}
	return s, nil
}

// IsReady reports whether at least one endpoint of an EndpointSlice is ready, as its pod is.
func IsReady(slice *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return plan.Answers(&e) })
}

// ReadyServices returns the names of the Services of a LocalService that answer: they have a ready endpoint, and of
// their named ports, each at some endpoint.
func (c *Caches) ReadyServices(ls *v1alpha1.LocalService) map[string]bool {
	ready := map[string]bool{}
	published := c.EndpointSlices.indexed(ls.Namespace, ls.Name)
	for _, slice := range published {
		ready[slice.Labels[discoveryv1.LabelServiceName]] = true
	}
	for _, name := range plan.NamedPorts(ls) {
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

// PortNumbers returns the numbers that the pods of a headless LocalService have for ports whose targetPort is a name.
func (c *Caches) PortNumbers(ls *v1alpha1.LocalService) plan.PortNumbers {
	if plan.HasClusterIPs(ls) || !slices.ContainsFunc(ls.Spec.Ports, func(port v1alpha1.ServicePort) bool {
		return port.TargetPort.StrVal != ""
	}) {
		return nil
	}
	numbers := plan.PortNumbers{}
	for _, slice := range c.EndpointSlices.indexed(ls.Namespace, ls.Name) {
		numbers.Add(slice.Ports)
	}
	for _, slice := range c.HostnameSlices.indexed(ls.Namespace, ls.Name) {
		numbers.Add(slice.Ports)
	}
	return numbers
}

// trimHostnameSlice drops what is not read of an EndpointSlice of mode Hostnames. Kubernetes changes an annotation with
// every change of a pod.
func trimHostnameSlice(s *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	s.ManagedFields = nil
	maps.DeleteFunc(s.Annotations, func(key, _ string) bool { return key != v1alpha1.AppliedMetadataAnnotationKey })
	return s, nil
}
