package diagnose

import (
	"cmp"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// addEndpoints adds what the EndpointSlices publish under each name, whoever manages them: kube-proxy and DNS use them
// all. Only a copy of the controller gives a hostname.
func addEndpoints(f *facts) {
	for _, slice := range f.EndpointSlices {
		manager := slice.Labels[discoveryv1.LabelManagedBy]
		isOthers := manager != plan.KubernetesSliceManager && manager != v1alpha1.EndpointSliceManager
		if isOthers && f.hostnames != nil {
			continue
		}
		for i := range slice.Endpoints {
			e := endpoint{Endpoint: &slice.Endpoints[i], slice: slice}
			service, hostname := slice.Labels[discoveryv1.LabelServiceName], ""
			if f.hostnames != nil {
				hostname = ptr.Deref(e.Hostname, "")
			}
			e.stale = !isOthers && plan.IsReady(e.Endpoint) && len(e.Addresses) > 0 && isStale(f, &e, service, hostname)
			f.endpoints[nameIn(service, hostname)] = append(f.endpoints[nameIn(service, hostname)], e)
		}
	}
}

// isStale reports whether no pod has the address of an endpoint any more: a pod that is not known to the Service that
// the copy is of, or none at all.
func isStale(f *facts, e *endpoint, service, hostname string) bool {
	if hostname != "" && f.hostnames.isPublished && !f.hostnames.ready.Has(e.Addresses[0]) {
		return true
	}
	if f.hostnames != nil {
		service = plan.ServiceName(f.LocalService.Name, plan.Source, "")
	}
	isPod := e.TargetRef != nil && e.TargetRef.Kind == "Pod"
	if f.PodsUnknown || !isPod || selectsOthers(f, f.services[service]) {
		return false
	}
	return !f.alive.Has(e.Addresses[0])
}

// addPublished adds to a name what is published under it.
func addPublished(n *name) {
	all, ready := sets.New[string](), sets.New[string]() // of pods, or addresses where there is none
	addresses, stale := sets.New[string](), sets.New[string]()
	var ports [][]discoveryv1.EndpointPort
	for _, e := range n.endpoints[nameIn(n.serviceName, n.hostname)] {
		isReady := plan.IsReady(e.Endpoint)
		if isReady {
			ports = append(ports, e.slice.Ports)
		}
		if e.stale {
			stale.Insert(e.Addresses...)
			isReady = false
		}
		if len(e.Addresses) == 0 || !isReady && ptr.Deref(e.Conditions.Terminating, false) {
			continue
		}
		id := e.Addresses[0]
		if e.TargetRef != nil {
			id = e.TargetRef.Kind + "/" + e.TargetRef.Name
		}
		all.Insert(id)
		if isReady {
			ready.Insert(id)
			addresses.Insert(e.Addresses...)
		} else {
			n.manager = cmp.Or(n.manager, e.slice.Labels[discoveryv1.LabelManagedBy])
		}
	}
	n.published = Endpoints{Ready: len(ready), Total: len(all)}
	n.addresses, n.stale = sets.List(addresses), sets.List(stale)
	n.missingPorts = missingPorts(n.LocalService, ports)
	for _, p := range n.pods {
		if p.Ready && p.isLabelled && !addresses.HasAny(p.addresses...) {
			n.unpublished = append(n.unpublished, p)
		}
	}
}

// missingPorts returns the ports of a LocalService that Kubernetes does not publish for the ready pods of a name,
// because no container of theirs has a port of the name that targetPort gives. Nothing can connect to these. published
// are the ports of each EndpointSlice: pods with other ports are in other ones.
func missingPorts(ls *v1alpha1.LocalService, published [][]discoveryv1.EndpointPort) (missing []v1alpha1.ServicePort) {
	isPublished := func(name string) bool {
		return slices.ContainsFunc(slices.Concat(published...), func(p discoveryv1.EndpointPort) bool {
			return ptr.Deref(p.Name, "") == name
		})
	}
	for _, port := range ls.Spec.Ports {
		if len(published) > 0 && port.TargetPort.StrVal != "" && !isPublished(port.Name) {
			missing = append(missing, port)
		}
	}
	return missing
}

// portNumbers returns the numbers that the pods have for ports whose targetPort is a name, by the name of the port.
func portNumbers(f *facts) plan.PortNumbers {
	numbers := plan.PortNumbers{}
	for _, endpoints := range f.endpoints {
		for _, e := range endpoints {
			for _, port := range e.slice.Ports {
				if port.Port != nil {
					numbers.Add(ptr.Deref(port.Name, ""), *port.Port)
				}
			}
		}
	}
	return numbers
}
