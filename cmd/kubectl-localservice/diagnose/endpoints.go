package diagnose

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// endpoint holds an endpoint that an EndpointSlice publishes.
type endpoint struct {
	*discoveryv1.Endpoint

	slice *discoveryv1.EndpointSlice
}

// addHostnames compares what is published in mode Hostnames with what Kubernetes publishes of the pods.
func addHostnames(f *facts) {
	f.sources, f.outdated = sets.Set[string]{}, sets.Set[string]{}
	nodes := slices.Collect(maps.Keys(f.nodes))
	h := plan.NamesOf(f.LocalService, f.nodeLabelKey, nodes, f.label, func(name string) *corev1.Service {
		return f.services[name]
	})
	f.hostnames, f.rivals, h.Slices = h, h.Rivals, map[string]*discoveryv1.EndpointSlice{}
	for _, slice := range f.EndpointSlices {
		h.Slices[slice.Name] = slice
		if h.Source == nil || !h.IsSource(slice) {
			continue
		}
		for i := range slice.Endpoints {
			if e := &slice.Endpoints[i]; plan.IsReady(e) {
				f.sources.Insert(e.Addresses...)
			}
		}
	}
	copies := h.Copies()
	f.isPublished = copies.Sources > 0
	for i := range copies.Changes {
		have, want, change := map[string][]any{}, map[string][]any{}, &copies.Changes[i]
		if change.Current != nil {
			have = byHostname(change.Current)
		}
		if change.Source != nil {
			want = byHostname(h.Copy(change))
		}
		for name := range sets.KeySet(have).Union(sets.KeySet(want)) {
			if !apiequality.Semantic.DeepEqual(have[name], want[name]) {
				f.outdated.Insert(name)
			}
		}
	}
}

// byHostname returns what an EndpointSlice says about each name.
func byHostname(slice *discoveryv1.EndpointSlice) map[string][]any {
	out := map[string][]any{}
	for _, e := range slice.Endpoints {
		if e.Hostname != nil {
			out[*e.Hostname] = append(out[*e.Hostname], e, slice.Ports, slice.Labels)
		}
	}
	return out
}

// addEndpoints adds what the EndpointSlices publish under each name, whoever manages them: kube-proxy and DNS use them
// all.
func addEndpoints(f *facts) {
	f.endpoints, f.portNumbers = map[string][]endpoint{}, plan.PortNumbers{}
	for _, slice := range f.EndpointSlices {
		for i := range slice.Endpoints {
			id := slice.Labels[discoveryv1.LabelServiceName]
			if f.hostnames != nil {
				id = nameIn(id, ptr.Deref(slice.Endpoints[i].Hostname, ""))
			}
			f.endpoints[id] = append(f.endpoints[id], endpoint{&slice.Endpoints[i], slice})
		}
		if len(slice.Endpoints) > 0 {
			f.portNumbers.Add(slice.Ports)
		}
	}
}

// addPublished adds to a name what is published under it. A named port that is not published for the ready pods is
// missing: no container of theirs has a port of the name that targetPort gives, so nothing can connect to it.
func addPublished(n *name) {
	if !n.result.HasService {
		return
	}
	all, ready := sets.New[string](), sets.New[string]() // of pods, or addresses where there is none
	addresses, ports := sets.New[string](), sets.New[string]()
	for _, e := range n.facts.endpoints[n.result.Name()] {
		// A copy may be out of date.
		isReady := plan.IsReady(e.Endpoint) && (!n.facts.isPublished || n.facts.sources.Has(e.Addresses[0]))
		if !isReady && (ptr.Deref(e.Conditions.Terminating, false) || hasEnded(n, e)) {
			continue
		}
		id := e.Addresses[0]
		if e.TargetRef != nil {
			id = e.TargetRef.Kind + "/" + e.TargetRef.Name
		}
		all.Insert(id)
		if isReady && plan.Answers(e.Endpoint) {
			ready.Insert(id)
		}
		if isReady {
			addresses.Insert(e.Addresses...)
			for _, port := range e.slice.Ports {
				ports.Insert(ptr.Deref(port.Name, ""))
			}
		}
	}
	n.result.Endpoints = Endpoints{Ready: len(ready), Total: len(all)}
	n.result.Addresses = sets.List(addresses)
	n.missingPorts = only(n.facts.LocalService.Spec.Ports, func(port v1alpha1.ServicePort) bool {
		return len(ready) > 0 && port.TargetPort.StrVal != "" && !ports.Has(port.Name)
	})
	n.unpublished = only(n.pods, func(p *pod) bool {
		return p.Ready && p.isLabelled && !slices.ContainsFunc(p.object.Status.PodIPs, func(ip corev1.PodIP) bool {
			return addresses.Has(ip.IP)
		})
	})
}

// hasEnded reports whether an endpoint is that of a pod that has ended. Kubernetes publishes some of these as not
// ready.
func hasEnded(n *name, e endpoint) bool {
	return e.TargetRef != nil && slices.ContainsFunc(n.pods, func(p *pod) bool {
		return p.ended && p.Name == e.TargetRef.Name
	})
}
