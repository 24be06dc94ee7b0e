package plan

import (
	"cmp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// LabelsPods reports whether a LocalService needs the node label on its pods.
func LabelsPods(ls *v1alpha1.LocalService) bool { return ls.Spec.Mode != v1alpha1.ModeHostnames }

// Names says which hostname the pods on a node have, and what is published of them.
type Names struct {
	localService *v1alpha1.LocalService
	label        LabelOfNamed
	// Source and Published are the Services for those purposes, nil unless the LocalService controls them. Without
	// both, nothing is published.
	Source, Published Service
	// Slices are the LocalService's EndpointSlices, according to their labels, by name.
	Slices map[string]EndpointSlice
}

// LabelOfNamed returns the value of a label of a node, "" if it has none or key is "", and whether the node has a name:
// the LocalService selects it and, unless the name is that of a group, no other node has the name. The pods on a node
// may be known before it is, and longer: see IsNamedUnknown.
type LabelOfNamed func(node, key string) (value string, isNamed bool)

// IsNamedUnknown reports whether a node that is not known has a name all the same: if all nodes have names, it has its
// own, unless a known node has that.
func IsNamedUnknown(ls *v1alpha1.LocalService, node string, isTaken func(hostname string) bool) bool {
	return ls.Spec.GroupBy == "" && !HasNodeSelector(ls) && naming.Hostname(node) == node && !isTaken(node)
}

// NewNames returns the Names of a LocalService, without the Services that publish them.
func NewNames(ls *v1alpha1.LocalService, label LabelOfNamed) *Names {
	return &Names{localService: ls, label: label}
}

// NamesOf returns the Names of a LocalService, even if none is published. lookup returns the Service with a name.
func NamesOf(ls *v1alpha1.LocalService, nodeLabelKey string, label LabelOfNamed,
	lookup func(name string) Service) *Names {
	ours := func(purpose Purpose) Service {
		service := lookup(ServiceName(ls.Name, purpose, ""))
		if HolderOf(ls, purpose, "", nodeLabelKey, service) != Ours {
			return nil
		}
		// Also one that is being deleted: until it is gone, Kubernetes keeps its EndpointSlices up to date.
		return service
	}
	return &Names{localService: ls, label: label, Source: ours(Source), Published: ours(Published)}
}

// Of returns the hostname of a node, "" if it has none.
func (n *Names) Of(node string) string {
	groupBy := n.localService.Spec.GroupBy
	if node == "" {
		return ""
	}
	group, isNamed := n.label(node, groupBy)
	switch {
	case !isNamed, groupBy != "" && group == "":
		return ""
	case groupBy != "":
		return naming.GroupHostname(group)
	}
	return naming.Hostname(node)
}

// Count returns how many names some nodes have.
func (n *Names) Count(nodes []string) int {
	if n.localService.Spec.GroupBy == "" {
		return len(nodes)
	}
	names := sets.Set[string]{}
	for _, node := range nodes {
		names.Insert(n.Of(node))
	}
	return len(names.Delete(""))
}

// CopyChange is what a plan does about one EndpointSlice of the Published Service: Create, Update, Delete or Wait.
type CopyChange struct {
	Action Action
	Name   string
	// Source is the EndpointSlice to copy, nil for Delete.
	Source EndpointSlice
	// Current is the copy as the cache has it, nil for Create.
	Current EndpointSlice
}

// Copies says how far the published names match what Kubernetes has published for the pods.
type Copies struct {
	// Changes are the changes that the copies still need.
	Changes []CopyChange
	// Sources is the number of EndpointSlices to copy.
	Sources int
	// IsNew is true until the status of the LocalService says that nothing is being written for its spec.
	IsNew bool
	// ready has the nodes with a name and a ready endpoint that is copied. Of a new spec, only copies that are up to
	// date count; later, one that a pod has just outdated does, too.
	ready sets.Set[string]
}

const (
	// CopyStays is how long a copy outlives its source: if somebody deletes EndpointSlices of the Source, Kubernetes
	// publishes the pods again, and resolvers must not learn meanwhile that a name does not exist.
	CopyStays = 5 * time.Second
	// sourceSettles is how long after the creation of the Source no copy is deleted: Kubernetes publishes the pods one
	// EndpointSlice after the other.
	sourceSettles = 30 * time.Second
)

// Copies compares the desired copies with the current ones. It copies only what Kubernetes has published for the
// Source, and changes only what the Published Service controls: anybody may write labels.
func (n *Names) Copies() Copies {
	out := Copies{ready: sets.Set[string]{}}
	if n.Source == nil || n.Published == nil {
		return out // The garbage collector deletes the copies with their Service.
	}
	writing := meta.FindStatusCondition(n.localService.Status.Conditions, v1alpha1.ConditionProgressing)
	out.IsNew = writing == nil || writing.ObservedGeneration != n.localService.Generation ||
		writing.Status == metav1.ConditionTrue
	var unwanted []CopyChange
	for name, slice := range n.Slices {
		change, isSource := n.Change(name), n.IsSource(slice)
		switch {
		case change.Action == Delete:
			unwanted = append(unwanted, change)
		case change.Action != "":
			out.Changes = append(out.Changes, change)
		}
		if isSource {
			out.Sources++
		}
		if isSource && (change.Action == "" || change.Action == Update && !out.IsNew) {
			n.addReady(out.ready, slice)
		}
	}
	if out.Sources > 0 {
		out.Changes = append(out.Changes, unwanted...)
	}
	return out
}

// addReady adds the nodes with a name and a ready endpoint in a source.
func (n *Names) addReady(nodes sets.Set[string], source EndpointSlice) {
	for _, endpoint := range source.Sum().Endpoints {
		if node := endpoint.Node.Value(); endpoint.isReady() && n.Of(node) != "" {
			nodes.Insert(node)
		}
	}
}

// Change returns what to do about the copy of an EndpointSlice of the Source, or to delete another EndpointSlice, by
// name: its Action is "" for nothing.
func (n *Names) Change(name string) (change CopyChange) {
	if n.Source == nil || n.Published == nil {
		return change
	}
	if slice := n.Slices[name]; slice != nil && n.IsSource(slice) {
		return n.copyOf(name, slice)
	}
	if slice := n.Slices[name]; slice != nil && n.isUnwanted(name, slice) {
		return CopyChange{Action: Delete, Name: name, Current: slice}
	}
	return change
}

// DeletesAfter returns how long the deletion of an EndpointSlice has to wait, 0 if not at all: all copies must be in
// place.
func (n *Names) DeletesAfter(now time.Time) time.Duration {
	if left := n.Source.Created().Add(sourceSettles).Sub(now); left > 0 {
		return min(left, sourceSettles)
	}
	if copies := n.Copies(); copies.Sources == 0 || copies.Count(Delete) < len(copies.Changes) {
		return CopyStays
	}
	return 0
}

// IsSource reports whether an EndpointSlice is one in which Kubernetes has published the pods of the Source.
func (n *Names) IsSource(slice EndpointSlice) bool {
	return slice.Manager() == KubernetesSliceManager && slice.Controller().UID == n.Source.GetUID()
}

// copyOf returns what to do about the copy of a source.
func (n *Names) copyOf(name string, source EndpointSlice) (change CopyChange) {
	sum := source.Sum()
	want := SliceSum{Rest: sum.Rest, Hostnames: n.sum(sum.Endpoints)}
	change = CopyChange{Name: CopyName(name), Source: source, Current: n.Slices[CopyName(name)]}
	switch {
	case change.Current == nil:
		change.Action = Create
	case !IsCopy(change.Current, n.Published.GetUID()):
		change.Action = Wait // It belongs to a Service that is gone, and is deleted with it.
	case change.Current.Sum().Same(want) && change.Current.Manager() == v1alpha1.EndpointSliceManager:
	default:
		change.Action = Update
	}
	return change
}

// isUnwanted reports whether a published EndpointSlice is not the copy of a source. If somebody gave the Published
// Service a selector, what Kubernetes publishes for that stays as long as the selector does.
func (n *Names) isUnwanted(name string, slice EndpointSlice) bool {
	if !IsCopy(slice, n.Published.GetUID()) {
		return false
	}
	if source := n.Slices[SourceName(name)]; source != nil && n.IsSource(source) {
		return false
	}
	selects := len(n.Published.Content().Get().Spec.Selector) > 0
	return !(selects && slice.Manager() == KubernetesSliceManager)
}

// sum returns the sum of a copy of endpoints. It includes which are ready.
func (n *Names) sum(endpoints []EndpointSum) (sum uint64) {
	for _, endpoint := range endpoints {
		if hostname := n.Of(endpoint.Node.Value()); hostname != "" {
			sum = addHostname(sum, endpoint.Sum, hostname)
		}
	}
	return sum
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

// BeingPublished reports whether the names of a new spec are still to be published. Later, copies only follow the pods:
// to wait until none is outdated could take forever.
func (c *Copies) BeingPublished() bool {
	return c.IsNew && (c.Count(Create) > 0 || 2*c.Count(Update) > c.Sources)
}

// copySuffix ends the name of a copy. The name follows from that of its source, so that no copy is made twice.
const copySuffix = "-named"

// CopyName returns the name of the copy of an EndpointSlice.
func CopyName(source string) string { return source + copySuffix }

// SourceName returns the name of the source of a copy, by the copy's name; the same name if it is no copy.
func SourceName(name string) string { return strings.TrimSuffix(name, copySuffix) }

// IsCopy reports whether an EndpointSlice belongs to a Published Service, by the UID of that: the Service controls it,
// or it is a copy that nothing controls, as after `kubectl delete service --cascade=orphan`.
func IsCopy(slice EndpointSlice, published types.UID) bool {
	controller := slice.Controller()
	return controller.UID == published || controller == (Controller{}) &&
		strings.HasSuffix(slice.GetName(), copySuffix) && slice.Manager() == v1alpha1.EndpointSliceManager
}

// LocalServiceOfCopy returns the name of the LocalService of a copy. Its Service has the same name, even if the labels
// are lost.
func LocalServiceOfCopy(slice *discoveryv1.EndpointSlice) string {
	return cmp.Or(ControllerOf(slice).Name, slice.Labels[v1alpha1.OwnerLabelKey])
}

// Copy returns the copy of an EndpointSlice of the Source for the Published Service, with hostnames. Endpoints on nodes
// without a hostname are left out.
func (n *Names) Copy(change *CopyChange) *discoveryv1.EndpointSlice {
	out := change.Source.Get()
	ls := n.localService
	out.ObjectMeta = metav1.ObjectMeta{
		Name: change.Name, Namespace: ls.Namespace, Labels: copyLabels(ls.Name),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(
			&metav1.ObjectMeta{Name: n.Published.GetName(), UID: n.Published.GetUID()},
			corev1.SchemeGroupVersion.WithKind("Service"))},
	}
	if change.Current != nil {
		out.UID, out.ResourceVersion = change.Current.GetUID(), change.Current.GetResourceVersion()
	}
	var kept []discoveryv1.Endpoint
	for _, endpoint := range out.Endpoints {
		if hostname := n.Of(ptr.Deref(endpoint.NodeName, "")); hostname != "" {
			endpoint.Hostname = &hostname
			kept = append(kept, endpoint)
		}
	}
	out.Endpoints = kept
	return out
}

// copyLabels returns the labels of a copy, whose Service has the name of the LocalService. The label of headless
// Services keeps kube-proxy from watching it.
func copyLabels(localService string) map[string]string {
	return map[string]string{
		discoveryv1.LabelServiceName: localService,
		discoveryv1.LabelManagedBy:   v1alpha1.EndpointSliceManager,
		corev1.IsHeadlessService:     "",
		v1alpha1.OwnerLabelKey:       localService,
		v1alpha1.HostnamesLabelKey:   v1alpha1.HostnamesPublished,
	}
}
