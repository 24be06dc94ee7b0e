package diagnose

import (
	"fmt"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// anyName stands for the names while none is known. No node has it.
const anyName = "*"

// hostnames is what is known about the names of mode Hostnames as a whole.
type hostnames struct {
	*plan.Names
	// isPublished is whether Kubernetes has published the pods.
	isPublished bool
	// outdated has the names that are not published as the pods are, and anyName if any copy is to be changed.
	outdated map[string]bool
	// stale has, by Node.Name, the addresses that are published as ready although Kubernetes has no ready pod there:
	// while no controller runs, names do not follow the pods.
	stale map[string][]string
}

func (v *view) newHostnames() *hostnames {
	h := &hostnames{outdated: map[string]bool{}, stale: map[string][]string{}}
	h.Names = plan.NamesOf(v.LocalService, v.nodeLabelKey, func(node, key string) (string, bool) {
		set, found := v.Nodes[node]
		if !found {
			return "", plan.IsNamedUnknown(v.LocalService, node, v.isWanted)
		}
		return set[key], v.rivals[node] == ""
	}, func(name string) plan.Service {
		if service := v.services[name]; service != nil {
			return plan.FromAPI(service, v.nodeLabelKey)
		}
		return nil
	})
	h.Slices = map[string]plan.EndpointSlice{}
	for _, slice := range v.EndpointSlices {
		h.Slices[slice.Name] = plan.SliceFromAPI(slice)
	}
	copies := h.Copies()
	h.isPublished = copies.Sources > 0
	if h.isPublished {
		v.markUnpublished(h)
	}
	for i := range copies.Changes {
		h.addOutdated(&copies.Changes[i])
	}
	return h
}

// isWanted reports whether a node wants a hostname.
func (v *view) isWanted(hostname string) bool {
	for node := range v.Nodes {
		if naming.Hostname(node) == hostname {
			return true
		}
	}
	return false
}

// markUnpublished marks endpoints as not ready that are not ready in what Kubernetes publishes.
func (v *view) markUnpublished(h *hostnames) {
	alive := map[string]bool{}
	for _, slice := range v.EndpointSlices {
		for _, e := range slice.Endpoints {
			if h.IsSource(h.Slices[slice.Name]) && plan.IsReady(&e) {
				for _, address := range e.Addresses {
					alive[address] = true
				}
			}
		}
	}
	for name, endpoints := range v.endpoints {
		for i := range endpoints {
			e := &endpoints[i]
			if e.Hostname == nil || !plan.IsReady(e) || len(e.Addresses) == 0 || alive[e.Addresses[0]] {
				continue
			}
			e.Conditions.Ready = new(false) // of the view's copy
			h.stale[name] = append(h.stale[name], e.Addresses...)
		}
		slices.Sort(h.stale[name])
	}
}

// addOutdated adds the names that a change is about.
func (h *hostnames) addOutdated(change *plan.CopyChange) {
	have, want := map[string][]any{}, map[string][]any{}
	if change.Current != nil {
		have = byHostname(change.Current.Get())
	}
	if change.Source != nil {
		want = byHostname(h.Copy(change))
	}
	h.outdated[anyName] = true
	for _, names := range []map[string][]any{have, want} {
		for name := range names {
			h.outdated[name] = h.outdated[name] || !apiequality.Semantic.DeepEqual(have[name], want[name])
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

// hostnameProblem finds why a name is not published as Kubernetes has published the pods, apart from its own Service.
func (v *view) hostnameProblem(n *Node) (Reason, string) {
	reason, message := v.serviceProblem(plan.Source, "")
	if reason == ServiceMissing || reason == NameConflict {
		reason = SourceMissing // The Service that has the name is there.
	}
	switch {
	case reason != "":
		return reason, message
	case !v.hostnames.isPublished:
		return EndpointsNotPublished, "kube-controller-manager has not published the pods in EndpointSlices yet"
	case v.hostnames.outdated[n.Hostname]:
		message = "the name is not published"
		if n.Endpoints.Total > 0 {
			message = "the endpoints of the name are out of date"
		}
		if stale := v.hostnames.stale[n.Name()]; len(stale) > 0 {
			message = fmt.Sprintf("leads to %s, where no pod is ready any more", firstOf(stale))
		}
		return NameOutdated, v.whyUnwritten(message, "updated it")
	}
	return "", ""
}

// nodesWithHostname returns the nodes that have a published name, and the pods' nodes, if their names are known without
// labels. With groupBy, the hostname stands for the value of the label.
func nodesWithHostname(in Input) map[string]labels.Set {
	ls, nodes := in.LocalService, map[string]labels.Set{}
	for _, slice := range in.EndpointSlices {
		if slice.Labels[discoveryv1.LabelServiceName] != plan.ServiceName(ls.Name, plan.Published, "") {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.NodeName != nil && e.Hostname != nil {
				nodes[*e.NodeName] = labels.Set{ls.Spec.GroupBy: *e.Hostname}
			}
		}
	}
	isKnown := !plan.HasNodeSelector(ls) && ls.Spec.GroupBy == ""
	hostnames := plan.NewNames(ls, func(string, string) (string, bool) { return "", isKnown })
	for _, pod := range in.Pods {
		if node := pod.Spec.NodeName; hostnames.Of(node) != "" {
			nodes[node] = nil
		}
	}
	return nodes
}
