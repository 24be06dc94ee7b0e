package plan

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// LabelsPods reports whether a LocalService needs the node label on its pods: not with mode Hostnames, once the
// Services of nodes that it had before are gone.
func LabelsPods(ls *v1alpha1.LocalService) bool {
	return ls.Spec.Mode != v1alpha1.ModeHostnames ||
		meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionRetiring) != nil
}

// Hostnames says which hostname the pods on a node have.
type Hostnames struct {
	localService *v1alpha1.LocalService
	groupBy      string
	label        LabelOfSelected
}

// LabelOfSelected returns the value of a label of a node, "" if it has none or key is "", and whether there is such a
// node and the LocalService selects it.
type LabelOfSelected func(node, key string) (value string, isSelected bool)

// NewHostnames makes the Hostnames of a LocalService. published is the Service that has the names: while the
// LocalService has another mode already, it tells how the names go. It is nil if there is none.
func NewHostnames(ls *v1alpha1.LocalService, published Service, label LabelOfSelected) *Hostnames {
	h := &Hostnames{localService: ls, groupBy: ls.Spec.GroupBy, label: label}
	if ls.Spec.Mode != v1alpha1.ModeHostnames && published != nil {
		h.groupBy = published.Content().Get().Annotations[v1alpha1.GroupByAnnotationKey]
	}
	return h
}

// Of returns the hostname of a node, "" if it has none.
func (h *Hostnames) Of(node string) string {
	if node == "" {
		return ""
	}
	named := node
	if h.groupBy != "" || len(h.localService.Spec.NodeSelector) > 0 {
		group, isSelected := h.label(node, h.groupBy)
		if !isSelected {
			return ""
		}
		if h.groupBy != "" {
			named = group
		}
	}
	if named == "" {
		return ""
	}
	return naming.Hostname(named)
}

// Count is how many names some nodes have.
func (h *Hostnames) Count(nodes []string) int {
	if h.groupBy == "" {
		return len(nodes)
	}
	names := map[string]bool{}
	for _, node := range nodes {
		if name := h.Of(node); name != "" {
			names[name] = true
		}
	}
	return len(names)
}

// CopyInput is what a plan of copies is computed from.
type CopyInput struct {
	Hostnames *Hostnames
	// Source and Published are the Services for those purposes, nil unless the LocalService controls them. Without both,
	// nothing is published.
	Source, Published Service
	// Slices are EndpointSlices of the LocalService, as their labels say, by name.
	Slices map[string]EndpointSlice
	// IsContested reports whether a copy was stored in another way than it was written: it is left as it is then. nil is
	// for none.
	IsContested func(current EndpointSlice, want SliceSum) bool
	// Nodes is how many nodes are selected, so that nothing has to grow: there is a plan for each change of a pod.
	Nodes int
}

// CopyChange is what a plan does about one EndpointSlice of the Published Service: Create, Update, Delete or Wait.
type CopyChange struct {
	Action Action
	Name   string
	// Source is what it is a copy of, nil for Delete.
	Source EndpointSlice
	// Current is the copy as the cache has it, nil for Create.
	Current EndpointSlice
}

// Copies is what to do so that the names are published as Kubernetes has published the pods.
type Copies struct {
	Changes []CopyChange
	// Sources is the number of EndpointSlices to copy, and Contested that of copies that are left as they are.
	Sources, Contested int
	// Ready has the names with a ready endpoint.
	Ready map[string]bool

	sources, inPlace []EndpointSlice // all, and those whose copy is in place
}

// ComputeCopies compares the copies that should be with those that are. Only what Kubernetes has published for the
// Source is copied, and only what the Published Service controls is changed: labels anybody may write.
func ComputeCopies(in CopyInput) Copies {
	if in.Source == nil || in.Published == nil {
		return Copies{} // The garbage collector deletes the copies with their Service.
	}
	out := Copies{Ready: make(map[string]bool, in.Nodes)}
	copied := map[string]bool{}
	for name, source := range in.Slices {
		if source.Manager() != KubernetesSliceManager || source.Controller().UID != in.Source.GetUID() {
			continue
		}
		out.Sources++
		out.sources = append(out.sources, source)
		copied[copyName(name)] = true
		sum := source.Sum()
		want := SliceSum{Rest: sum.Rest, Hostnames: out.hostnames(in.Hostnames, sum.Endpoints)}
		change := CopyChange{Name: copyName(name), Source: source, Current: in.Slices[copyName(name)]}
		switch {
		case change.Current == nil:
			change.Action = Create
		case !IsCopy(change.Current, in.Published.GetUID()):
			change.Action = Wait // It is of a Service that is gone, and will go with that.
		case change.Current.Sum().Same(want) && change.Current.Manager() == v1alpha1.EndpointSliceManager &&
			change.Current.Controller() != (Controller{}):
			out.inPlace = append(out.inPlace, source)
			continue
		case in.IsContested != nil && in.IsContested(change.Current, want):
			out.Contested++
			out.inPlace = append(out.inPlace, source)
			continue
		default:
			change.Action = Update
		}
		out.Changes = append(out.Changes, change)
	}
	// What Kubernetes has published there, because somebody has given the Published Service a selector, is left while it
	// has that.
	selects := len(in.Published.Content().Get().Spec.Selector) > 0
	for name, current := range in.Slices {
		// While there is nothing to copy, Kubernetes has not published the pods yet: it does so also where there are none.
		if out.Sources > 0 && IsCopy(current, in.Published.GetUID()) && !copied[name] &&
			!(selects && current.Manager() == KubernetesSliceManager) {
			out.Changes = append(out.Changes, CopyChange{Action: Delete, Name: name, Current: current})
		}
	}
	return out
}

// hostnames is the sum that a copy of endpoints has. It takes in who is ready.
func (c *Copies) hostnames(hostnames *Hostnames, endpoints []EndpointSum) uint64 {
	var sum hostnamesSum
	for _, endpoint := range endpoints {
		node := endpoint.Node.Value()
		hostname := hostnames.Of(node)
		if hostname == "" {
			continue
		}
		sum.add(endpoint.Sum, hostname)
		if endpoint.isReady() {
			c.Ready[hostname] = true
		}
	}
	return sum.sum
}

// ReadyInPlace is how many names have a ready endpoint in copies that are in place, as when no other one was written.
func (c *Copies) ReadyInPlace(hostnames *Hostnames) int {
	placed := Copies{Ready: map[string]bool{}}
	for _, source := range c.inPlace {
		placed.hostnames(hostnames, source.Sum().Endpoints)
	}
	return len(placed.Ready)
}

// ReadyNodes are the nodes that are reached by a name.
func (c *Copies) ReadyNodes(hostnames *Hostnames) map[string]bool {
	nodes := map[string]bool{}
	for _, source := range c.sources {
		for _, endpoint := range source.Sum().Endpoints {
			if node := endpoint.Node.Value(); endpoint.isReady() && hostnames.Of(node) != "" {
				nodes[node] = true
			}
		}
	}
	return nodes
}

// IsComplete reports whether everything that Kubernetes has published has a copy, be it one to update.
func (c *Copies) IsComplete() bool {
	return c.Sources > 0 && c.Contested == 0 && !slices.ContainsFunc(c.Changes,
		func(change CopyChange) bool { return change.Action == Create || change.Action == Wait })
}

// copySuffix ends the name of a copy, which follows from that of its source, so that it is never made twice.
const copySuffix = "-named"

func copyName(source string) string { return source + copySuffix }

// SourceName is the name of the EndpointSlice of which one is the copy, by the name of that.
func SourceName(copied string) (source string, isCopy bool) {
	return strings.CutSuffix(copied, copySuffix)
}

// IsCopy reports whether an EndpointSlice is one of a Published Service, by the UID of that: one that the Service
// controls, or a copy that nothing does, as after `kubectl delete service --cascade=orphan`.
func IsCopy(slice EndpointSlice, published types.UID) bool {
	controller := slice.Controller()
	_, isNamed := SourceName(slice.GetName())
	return controller.UID == published ||
		controller == (Controller{}) && isNamed && slice.Manager() == v1alpha1.EndpointSliceManager
}

// CopyOf returns the name of the LocalService of a copy. Its Service has that name, whatever has become of the labels.
func CopyOf(slice *discoveryv1.EndpointSlice) string {
	return cmp.Or(ControllerOf(slice).Name, slice.Labels[v1alpha1.OwnerLabelKey])
}

// Copy returns the copy of an EndpointSlice of the Source for the Published Service, with hostnames. Endpoints on nodes
// without one are left out.
func Copy(change *CopyChange, published Service, hostnames *Hostnames) *discoveryv1.EndpointSlice {
	out := change.Source.Get()
	ls := hostnames.localService
	out.ObjectMeta = metav1.ObjectMeta{
		Name: change.Name, Namespace: ls.Namespace, Labels: copyLabels(ls.Name),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(
			&metav1.ObjectMeta{Name: published.GetName(), UID: published.GetUID()},
			corev1.SchemeGroupVersion.WithKind("Service"))},
	}
	if change.Current != nil {
		out.UID, out.ResourceVersion = change.Current.GetUID(), change.Current.GetResourceVersion()
	}
	var kept []discoveryv1.Endpoint
	for _, endpoint := range out.Endpoints {
		if hostname := hostnames.Of(value(endpoint.NodeName)); hostname != "" {
			endpoint.Hostname = &hostname
			kept = append(kept, endpoint)
		}
	}
	out.Endpoints = kept
	return out
}

// copyLabels are the labels of a copy, whose Service has the name of the LocalService. That of headless Services keeps
// kube-proxy from watching it.
func copyLabels(localService string) map[string]string {
	return map[string]string{
		discoveryv1.LabelServiceName: localService,
		discoveryv1.LabelManagedBy:   v1alpha1.EndpointSliceManager,
		corev1.IsHeadlessService:     "",
		v1alpha1.OwnerLabelKey:       localService,
		v1alpha1.HostnamesLabelKey:   v1alpha1.HostnamesPublished,
	}
}
