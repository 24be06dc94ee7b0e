package plan

import (
	"bytes"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// EventNodeLabelRefused is the reason of the event about pods that do not get the node label.
const EventNodeLabelRefused = "NodeLabelRefused"

// Names holds the hostnames of nodes, and compares them with what is published.
type Names struct {
	localService *v1alpha1.LocalService
	hostnames    map[string]string // by node
	// Rivals maps the nodes or values without a name to the one that has it: see Hostnames.
	Rivals map[string]string
	// Source and Published hold the two Services of mode Hostnames; nil if the LocalService does not control the
	// Service. Unless both exist, nothing is published.
	Source, Published *corev1.Service
	// Slices holds the EndpointSlices that name the LocalService in their labels, by name.
	Slices map[string]*discoveryv1.EndpointSlice
}

// NamesOf returns the Names of a LocalService, even if nothing is published. In mode Hostnames, it gives names to
// nodes, each listed once. lookup returns the Service with a name.
func NamesOf(ls *v1alpha1.LocalService, nodeLabelKey string, nodes []string, labels NodeLabels,
	lookup func(name string) *corev1.Service) *Names {
	ours := func(purpose Purpose) *corev1.Service {
		service := lookup(ServiceName(ls.Name, purpose, ""))
		if HolderOf(ls, purpose, "", nodeLabelKey, service) != Ours {
			return nil
		}
		// A Service that is being deleted counts, too: Kubernetes updates its EndpointSlices until it is gone.
		return service
	}
	names := &Names{localService: ls, Source: ours(Source), Published: ours(Published)}
	if ls.Spec.Mode == v1alpha1.ModeHostnames {
		names.hostnames, names.Rivals = Hostnames(ls, nodes, labels)
	}
	return names
}

// Of returns the hostname of a node; "" if it has none.
func (n *Names) Of(node string) string { return n.hostnames[node] }

// count returns how many names some nodes have, how many of these names are published with a ready endpoint, and how
// many of the nodes have no part in a name.
func (n *Names) count(nodes []string, published sets.Set[string]) (all, ready, without int) {
	names := sets.New[string]()
	for _, node := range nodes {
		if name := n.Of(node); name != "" {
			names.Insert(name)
		} else {
			without++
		}
	}
	return len(names), len(names.Intersection(published)), without
}

// CopyChange describes what a plan does about one EndpointSlice of the Published Service: Create, Update, Delete or
// Wait.
type CopyChange struct {
	Action Action
	Name   string
	// Source holds the EndpointSlice to copy; nil for Delete.
	Source *discoveryv1.EndpointSlice
	// Current holds the copy as the cache has it; nil for Create.
	Current *discoveryv1.EndpointSlice
	// Fields lists what an Update sets. Sum differs if it or a Create sets something else.
	Fields []string
	Sum    uint64
}

// Copies records how far the published names match what Kubernetes has published for the pods.
type Copies struct {
	// Changes lists the changes that the copies still need.
	Changes []CopyChange
	// Sources counts the EndpointSlices to copy.
	Sources int
	// IsNew is true until the status of the LocalService reports that its spec was written, or that a write was
	// refused.
	IsNew bool
	// ready holds the hostnames that are published with a ready endpoint.
	ready sets.Set[string]
}

// CopyStays is the time by which a copy outlives its source. If somebody deletes EndpointSlices of the Source, Kubernetes
// recreates them half a second later, and resolvers must not learn meanwhile that a name does not exist.
const CopyStays = 5 * time.Second

// Copies compares the desired copies with the current ones. It copies only what Kubernetes has published for the
// Source, and changes only what the Published Service controls, because anybody can write labels.
func (n *Names) Copies() Copies {
	out := Copies{ready: sets.Set[string]{}}
	if n.Source == nil || n.Published == nil {
		return out // The garbage collector deletes the copies with their Service.
	}
	writing := meta.FindStatusCondition(n.localService.Status.Conditions, v1alpha1.ConditionProgressing)
	out.IsNew = writing == nil || writing.ObservedGeneration != n.localService.Generation ||
		writing.Status == metav1.ConditionTrue && writing.Reason == v1alpha1.ReasonWritingServices
	var unwanted []CopyChange
	for name, slice := range n.Slices {
		change := n.Change(name)
		switch {
		case change.Action == Delete:
			unwanted = append(unwanted, change)
		case change.Action != "":
			out.Changes = append(out.Changes, change)
		}
		switch {
		case n.IsSource(slice):
			out.Sources++
		case IsCopy(slice, n.Published.UID):
			for i := range slice.Endpoints {
				if e := &slice.Endpoints[i]; e.Hostname != nil && Answers(e) {
					out.ready.Insert(*e.Hostname)
				}
			}
		}
	}
	if out.Sources > 0 {
		out.Changes = append(out.Changes, unwanted...)
	}
	return out
}

// Change returns what to do about the copy of an EndpointSlice of the Source, or about another EndpointSlice, which
// may be deleted. Its Action is "" if there is nothing to do.
func (n *Names) Change(name string) (change CopyChange) {
	slice, source := n.Slices[name], n.Slices[SourceName(name)]
	switch {
	case n.Source == nil || n.Published == nil || slice == nil:
	case n.IsSource(slice):
		return n.copyOf(name, slice)
	case n.mayDelete(slice) && (source == nil || !n.IsSource(source)):
		return CopyChange{Action: Delete, Name: name, Current: slice}
	}
	return change
}

// IsReplaced reports whether an EndpointSlice may be deleted: Kubernetes has published the pods, and no copy is to be
// updated to which it has moved an endpoint from there. Updates of others may be refused for ever, and new copies may
// wait for room in a quota.
func (n *Names) IsReplaced(slice *discoveryv1.EndpointSlice) bool {
	copies, addresses := n.Copies(), addressesOf(slice)
	isMoving := func(change CopyChange) bool {
		return change.Action == Update && slices.Contains(change.Fields, endpointsField) &&
			addressesOf(change.Source).Intersection(addresses).Len() > 0
	}
	return copies.Sources > 0 && !slices.ContainsFunc(copies.Changes, isMoving)
}

func addressesOf(slice *discoveryv1.EndpointSlice) sets.Set[string] {
	addresses := sets.Set[string]{}
	for i := range slice.Endpoints {
		addresses.Insert(slice.Endpoints[i].Addresses...)
	}
	return addresses
}

// IsSource reports whether Kubernetes has published pods of the Source in an EndpointSlice.
func (n *Names) IsSource(slice *discoveryv1.EndpointSlice) bool {
	return ManagerOf(slice) == KubernetesSliceManager && ControllerOf(slice).UID == n.Source.UID
}

// copyOf returns what to do about the copy of a source.
func (n *Names) copyOf(name string, source *discoveryv1.EndpointSlice) (change CopyChange) {
	change = CopyChange{Name: CopyName(name), Source: source, Current: n.Slices[CopyName(name)]}
	if change.Current != nil && !IsCopy(change.Current, n.Published.UID) {
		change.Action = Wait // It belongs to a deleted Service, and is deleted with that, or to somebody else.
		return change
	}
	want := encode(source, n.endpoints(source))
	if change.Current == nil {
		change.Action = Create
	} else if change.Fields = n.mismatches(change.Current, want); len(change.Fields) > 0 {
		change.Action = Update
	}
	if change.Action != "" {
		change.Sum = maphash.Bytes(seed, want)
	}
	return change
}

// mayDelete reports whether an EndpointSlice may be deleted. That is a copy, or what Kubernetes has published for a
// selector that somebody set on the Published Service, once the selector is gone. An EndpointSlice of another manager
// is never changed or deleted, even if our Service controls it.
func (n *Names) mayDelete(slice *discoveryv1.EndpointSlice) bool {
	return IsCopy(slice, n.Published.UID) || ManagerOf(slice) == KubernetesSliceManager &&
		ControllerOf(slice).UID == n.Published.UID && len(n.Published.Spec.Selector) == 0
}

// endpoints returns the endpoints of a source with hostnames, without those on nodes that have none.
func (n *Names) endpoints(source *discoveryv1.EndpointSlice) (named []discoveryv1.Endpoint) {
	for _, endpoint := range source.Endpoints {
		if hostname := n.Of(ptr.Deref(endpoint.NodeName, "")); hostname != "" {
			endpoint.Hostname = &hostname
			named = append(named, endpoint)
		}
	}
	return named
}

// Count returns the number of changes with an action.
func (c *Copies) Count(action Action) (n int) {
	for i := range c.Changes {
		if c.Changes[i].Action == action {
			n++
		}
	}
	return n
}

// BeingPublished reports whether names of a new spec are still pending. Later, copies only follow the pods: waiting
// until none is outdated could take forever.
func (c *Copies) BeingPublished() bool {
	return c.IsNew && (c.Count(Create) > 0 || 2*c.Count(Update) > c.Sources)
}

// endpointsField is what an Update of a copy sets that follows the pods.
const endpointsField = "endpoints"

// copySuffix ends the name of a copy. The name follows from that of its source, so that no source is copied twice.
const copySuffix = "-named"

// CopyName returns the name of the copy of an EndpointSlice.
func CopyName(source string) string { return source + copySuffix }

// SourceName returns the name of a copy's source. It returns the same name if that is not the name of a copy.
func SourceName(name string) string { return strings.TrimSuffix(name, copySuffix) }

// IsCopy reports whether this controller manages an EndpointSlice for the Published Service with a UID: the Service
// controls it, or nothing does, as after `kubectl delete service --cascade=orphan`.
func IsCopy(slice *discoveryv1.EndpointSlice, published types.UID) bool {
	controller := ControllerOf(slice)
	return ManagerOf(slice) == v1alpha1.EndpointSliceManager && (controller.UID == published ||
		controller == (Controller{}) && strings.HasSuffix(slice.GetName(), copySuffix))
}

// Copy returns the copy of an EndpointSlice of the Source for the Published Service, with hostnames. It omits
// endpoints on nodes without a hostname.
func (n *Names) Copy(change *CopyChange) *discoveryv1.EndpointSlice {
	out, ls := new(*change.Source), n.localService
	out.Endpoints = n.endpoints(change.Source)
	out.ObjectMeta = metav1.ObjectMeta{
		Name: change.Name, Namespace: ls.Namespace, Labels: copyLabels(ls), Annotations: copyAnnotations(ls),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(
			&metav1.ObjectMeta{Name: n.Published.Name, UID: n.Published.UID},
			corev1.SchemeGroupVersion.WithKind("Service"))},
	}
	if change.Current != nil {
		out.UID, out.ResourceVersion = change.Current.UID, change.Current.GetResourceVersion()
	}
	return out
}

// copyLabels returns the labels of a copy. They include those of its Service, as on the EndpointSlices of Kubernetes.
// The label of headless Services keeps kube-proxy from watching the copy.
func copyLabels(ls *v1alpha1.LocalService) map[string]string {
	given := ptr.Deref(ls.Spec.ServiceMetadata, v1alpha1.ServiceMetadata{}).Labels
	return labels.Merge(given, labels.Set{
		discoveryv1.LabelServiceName: ls.Name,
		discoveryv1.LabelManagedBy:   v1alpha1.EndpointSliceManager,
		corev1.IsHeadlessService:     "",
		v1alpha1.OwnerLabelKey:       ls.Name,
		v1alpha1.HostnamesLabelKey:   v1alpha1.HostnamesPublished,
	})
}

// copyAnnotations returns the annotations of a copy: a record of the labels that come from spec.serviceMetadata, so
// that a label that is removed there is removed from the copy, too.
func copyAnnotations(ls *v1alpha1.LocalService) map[string]string {
	if m := ls.Spec.ServiceMetadata; m != nil && len(m.Labels) > 0 {
		record := recordOf(&v1alpha1.ServiceMetadata{Labels: m.Labels})
		return map[string]string{v1alpha1.AppliedMetadataAnnotationKey: record}
	}
	return nil
}

// hasMetadata reports whether a copy has the right controller, labels and annotations.
func (n *Names) hasMetadata(slice *discoveryv1.EndpointSlice) bool {
	const applied = v1alpha1.AppliedMetadataAnnotationKey
	return ControllerOf(slice).UID == n.Published.UID &&
		slice.Annotations[applied] == copyAnnotations(n.localService)[applied] &&
		subset(copyLabels(n.localService), labels.Set(slice.Labels))
}

// Mismatches returns in what a copy was stored otherwise than it was written. Additional labels and annotations do not
// matter.
func (n *Names) Mismatches(written, stored *discoveryv1.EndpointSlice) []string {
	return n.mismatches(stored, encode(written, written.Endpoints))
}

func (n *Names) mismatches(slice *discoveryv1.EndpointSlice, want []byte) (fields []string) {
	if !bytes.Equal(encode(slice, slice.Endpoints), want) {
		fields = append(fields, endpointsField)
	}
	if !n.hasMetadata(slice) {
		fields = append(fields, "metadata")
	}
	return fields
}
