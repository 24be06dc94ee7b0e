package diagnose

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/internal/plan"
)

// hostnames holds the facts about the names of mode Hostnames as a whole.
type hostnames struct {
	*plan.Names

	// isPublished is true if Kubernetes has published the pods, and ready has the addresses that it publishes as ready.
	isPublished bool
	ready       sets.Set[string]
	// outdated has the names that are not published as the pods are, and anyName if any copy is to change.
	outdated sets.Set[string]
}

// anyName stands for the names while none is known. No node has it.
const anyName = "*"

func hostnamesOf(f *facts) *hostnames {
	ls := f.LocalService
	h := &hostnames{outdated: sets.Set[string]{}, ready: sets.Set[string]{}}
	h.Names = plan.NamesOf(ls, f.nodeLabelKey, func(node string) bool {
		return f.nodes[node] != nil && f.rivals[node] == ""
	}, func(node, key string) (value string, exists bool) {
		if known := f.nodes[node]; known != nil {
			value, exists = known.labels[key]
		}
		return value, exists
	}, func(name string) plan.Service {
		if service := f.services[name]; service != nil {
			return plan.FromAPI(service, f.nodeLabelKey)
		}
		return nil
	})
	h.Slices = map[string]plan.EndpointSlice{}
	for _, slice := range f.EndpointSlices {
		h.Slices[slice.Name] = plan.SliceFromAPI(slice)
	}
	copies := h.Copies()
	h.isPublished = copies.Sources > 0
	for _, slice := range f.EndpointSlices {
		if h.Source == nil || !h.IsSource(h.Slices[slice.Name]) {
			continue
		}
		for i := range slice.Endpoints {
			if e := &slice.Endpoints[i]; plan.IsReady(e) {
				h.ready.Insert(e.Addresses...)
			}
		}
	}
	for i := range copies.Changes {
		h.outdated = h.outdated.Union(outdatedBy(h, &copies.Changes[i])).Insert(anyName)
	}
	return h
}

// outdatedBy returns the names that a change is about.
func outdatedBy(h *hostnames, change *plan.CopyChange) sets.Set[string] {
	have, want := map[string][]any{}, map[string][]any{}
	if change.Current != nil {
		have = byHostname(change.Current.Get())
	}
	if change.Source != nil {
		want = byHostname(h.Copy(change))
	}
	outdated := sets.Set[string]{}
	for name := range sets.KeySet(have).Union(sets.KeySet(want)) {
		if !apiequality.Semantic.DeepEqual(have[name], want[name]) {
			outdated.Insert(name)
		}
	}
	return outdated
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
