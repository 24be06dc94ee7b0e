package diagnose

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// addService adds to a name how it is reached, and what is wrong with the first Service of those that it needs.
func addService(n *name) {
	if n.result.Service == "" {
		return
	}
	n.result.DNSName = n.result.Name() + "." + n.facts.LocalService.Namespace + ".svc." + n.facts.ClusterDomain
	n.service = compareService(n, n.facts.purpose)
	n.result.HasService = n.service.Reason != ServiceMissing && n.service.Reason != NameConflict
	if n.facts.hostnames != nil && n.service.Reason == "" {
		n.service = compareService(n, plan.Source)
	}
}

// compareService says what is wrong with a Service of a name, and adds to the name in what else the Service differs.
func compareService(n *name, purpose plan.Purpose) Finding {
	f, ls, service, node, position := n.facts, n.facts.LocalService, "Service", "", 0
	name := plan.ServiceName(ls.Name, purpose, n.result.Node)
	switch purpose {
	case plan.ForNode:
		node = n.result.Node
	case plan.Source:
		service = "Service " + name + " for the pods"
	case plan.Published:
		service, position = "Service "+name+" for the names", 1
	}
	object := f.services[name]
	if object == nil {
		return untilWritten(f, ServiceMissing, "no "+service)
	}
	switch holder := plan.HolderOf(ls, purpose, node, f.nodeLabelKey, object); {
	case holder == plan.Foreign:
		conflict := Finding{Reason: NameConflict, About: name, Cause: "the name is taken by a Service without an owner",
			Act: "if nothing uses it, delete it; otherwise create this LocalService under another name"}
		if purpose == plan.ForNode {
			conflict.Act = "if it is for the pods on node " + node + ", have it adopted: " +
				words.AdoptionCommand(f.Kubectl, ls, node, f.nodeLabelKey) + "; " + conflict.Act
		}
		if owner := plan.ControllerOf(object); owner != (plan.Controller{}) {
			conflict.Cause = "the name is taken by a Service of " + quoteForeign(words.Controller(owner))
			conflict.Act = "create this LocalService under another name: deleting the Service does not help, as its " +
				"owner would create it again"
		}
		return conflict
	case holder == plan.Predecessor, object.DeletionTimestamp != nil:
		return Finding{Reason: ServiceOutdated, Cause: "the " + service + " is being deleted"}
	case len(f.templates) == 0:
		return Finding{}
	case !labels.Equals(object.Spec.Selector, f.templates[position].Service(node).Spec.Selector):
		other := untilWritten(f, ServiceOutdated, "the "+service+" has another selector than the LocalService says")
		other.About = quoteForeign(labels.FormatLabels(object.Spec.Selector))
		return other
	}
	fields := f.templates[position].Mismatches(object, node)
	n.differs = append(n.differs, only(fields, func(field string) bool { // Labels of nodes may be needed for two of them.
		return f.AllNodes || field != "labels" && field != "annotations"
	})...)
	return Finding{}
}

// untilWritten says of a problem why the controller has not written what it needs, as far as the status shows.
func untilWritten(f *facts, reason Reason, problem string) Finding {
	why := "the controller has not written it yet"
	switch {
	case f.LocalService.DeletionTimestamp != nil:
		why = "the LocalService is being deleted"
	case f.refusal != "":
		why = words.Printable(f.refusal)
	}
	return Finding{Reason: reason, Cause: problem + "; " + why, Waits: true}
}

// nodeLabelKey returns the key of the node label, from the selector of a Service of the LocalService if there is one.
func nodeLabelKey(ls *v1alpha1.LocalService, services []*corev1.Service) string {
	for _, service := range services {
		node := service.Annotations[v1alpha1.NodeAnnotationKey]
		if node == "" || !metav1.IsControlledBy(service, ls) {
			continue
		}
		for key, value := range service.Spec.Selector {
			if _, selects := ls.Spec.Selector[key]; !selects && value == naming.NodeLabelValue(node) {
				return key
			}
		}
	}
	return v1alpha1.DefaultNodeLabelKey
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

// addEndpoints adds what any EndpointSlice publishes under each name: kube-proxy and DNS use them all.
func addEndpoints(f *facts) {
	f.endpoints, f.portNumbers = map[string][]endpoint{}, plan.PortNumbers{}
	for _, slice := range f.EndpointSlices {
		for i := range slice.Endpoints {
			id := slice.Labels[discoveryv1.LabelServiceName]
			if f.hostnames != nil {
				id = strings.TrimPrefix(ptr.Deref(slice.Endpoints[i].Hostname, "")+"."+id, ".")
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
		// Kubernetes publishes some pods that have ended as not ready.
		hasEnded := func(p *pod) bool { return p.ended && e.TargetRef != nil && p.Name == e.TargetRef.Name }
		if !isReady && (ptr.Deref(e.Conditions.Terminating, false) || slices.ContainsFunc(n.pods, hasEnded)) {
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
