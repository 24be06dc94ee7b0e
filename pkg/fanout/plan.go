// Package fanout decides what the Services of a LocalService should be, and what to write so that they are. It has no
// client in it: everything is a function of API objects, and none of them changes its arguments.
package fanout

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// Action is what a plan does about one Service.
type Action string

const (
	// Create makes a Service that is missing.
	Create Action = "Create"
	// Update changes a Service in place.
	Update Action = "Update"
	// Adopt makes a Service that nobody controls, and that was this LocalService's before, its own again, and up to date.
	Adopt Action = "Adopt"
	// Replace deletes a Service and creates it anew, because a field differs that the API does not let change.
	Replace Action = "Replace"
	// Delete removes a Service that no selected node wants.
	Delete Action = "Delete"
	// Wait leaves a Service alone that is being deleted: the plan is computed again once it is gone.
	Wait Action = "Wait"
	// Conflict leaves a Service alone that belongs to somebody else, although its name is wanted.
	Conflict Action = "Conflict"
)

// Change is what a plan does about one Service.
type Change struct {
	Action Action
	// Name of the Service.
	Name string
	// Node is the name of the node that the Service is for. It is empty for Delete.
	Node string
	// Live is the Service as the cache has it, or nil for Create. It must not be changed.
	Live *corev1.Service
}

// Plan is what to do to bring the Services of a LocalService to its spec.
type Plan struct {
	// Changes has a row for every Service that is not as it should be, by name.
	Changes []Change
	// InPlace is the number of Services that are in place and up to date.
	InPlace int
}

// Input is what a plan is computed from.
type Input struct {
	Template *Template
	// Nodes are the names of the selected nodes, each once.
	Nodes []string
	// Owned are the Services that the LocalService controls, by name. Those that no node in Nodes wants are orphans.
	Owned map[string]*corev1.Service
	// Lookup returns the Service of a name that is not in Owned, or nil if the name is free.
	Lookup func(name string) *corev1.Service
}

// Compute compares the Services that should be with those that are.
func Compute(in Input) Plan {
	var plan Plan
	wanted := 0 // Services in Owned that a node wants
	for _, node := range in.Nodes {
		name := naming.ServiceName(in.Template.owner.Name, node)
		live, owned := in.Owned[name]
		if owned {
			wanted++
		} else {
			live = in.Lookup(name)
		}
		if action := in.Template.action(live, node); action == "" {
			plan.InPlace++
		} else {
			plan.Changes = append(plan.Changes, Change{Action: action, Name: name, Node: node, Live: live})
		}
	}
	if wanted < len(in.Owned) {
		plan.Changes = append(plan.Changes, orphans(in)...)
	}
	slices.SortFunc(plan.Changes, func(a, b Change) int { return cmp.Compare(a.Name, b.Name) })
	return plan
}

// orphans are the owned Services that no node wants.
func orphans(in Input) []Change {
	wanted := make(map[string]bool, len(in.Nodes))
	for _, node := range in.Nodes {
		wanted[naming.ServiceName(in.Template.owner.Name, node)] = true
	}
	var changes []Change
	for name, live := range in.Owned {
		switch {
		case wanted[name]:
		case live.DeletionTimestamp != nil: // It goes by itself, and nobody waits for its name.
		default:
			changes = append(changes, Change{Action: Delete, Name: name, Live: live})
		}
	}
	return changes
}

// action is what to do about the Service that a node has now, "" if it is as it should be.
func (t *Template) action(live *corev1.Service, node string) Action {
	switch {
	case live == nil:
		return Create
	case !t.controls(live) && !t.mayAdopt(live, node):
		return Conflict
	case live.DeletionTimestamp != nil:
		return Wait
	case t.mustReplace(live):
		return Replace
	case !t.controls(live):
		return Adopt
	case !t.matches(live, node):
		return Update
	}
	return ""
}

// controls says whether the LocalService controls a Service: by the UID in its controller reference, never by a name
// or label, which anybody may write.
func (t *Template) controls(live *corev1.Service) bool {
	for i := range live.OwnerReferences {
		if ref := &live.OwnerReferences[i]; ref.Controller != nil && *ref.Controller {
			return ref.UID == t.owner.UID
		}
	}
	return false
}

// mayAdopt says whether a Service was generated for this LocalService and node, and has been left without a
// controller since, as by `kubectl delete localservice --cascade=orphan`.
func (t *Template) mayAdopt(live *corev1.Service, node string) bool {
	return metav1.GetControllerOfNoCopy(live) == nil &&
		live.Labels[v1alpha1.OwnerLabelKey] == t.owner.Name &&
		live.Spec.Selector[t.nodeLabelKey] == naming.NodeLabelValue(node)
}

// OwnedBy returns the LocalService that controls an object, or nil.
func OwnedBy(object metav1.Object) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || ref.Kind != v1alpha1.Kind || ref.APIVersion != v1alpha1.SchemeGroupVersion.String() {
		return nil
	}
	return ref
}

// Selects says whether a LocalService gives a node a Service, by the node's labels.
func Selects(ls *v1alpha1.LocalService, nodeLabels map[string]string) bool {
	return subset(ls.Spec.NodeSelector, nodeLabels)
}

// SelectsPod says whether a pod with these labels is one of the pods that a LocalService's Services select, if it is
// on the right node.
func SelectsPod(ls *v1alpha1.LocalService, podLabels map[string]string) bool {
	return len(ls.Spec.Selector) > 0 && subset(ls.Spec.Selector, podLabels)
}

func subset(want, have map[string]string) bool {
	if len(want) > len(have) {
		return false
	}
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}
