// Package fanout decides what the Services of a LocalService should be, and what to write so that they are. It has no
// client in it: everything is a function of API objects, and none of them changes its arguments.
package fanout

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

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
	// Wait leaves a Service alone that is being deleted, or soon will be: the plan is computed again once it is gone.
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
	// Live is the Service as the cache has it, or nil for Create.
	Live *Service
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
	Owned map[string]*Service
	// Lookup returns the Service of a name that is not in Owned, or nil if the name is free.
	Lookup func(name string) *Service
}

// Compute compares the Services that should be with those that are.
func Compute(in Input) Plan {
	var plan Plan
	wanted := 0 // Services in Owned that a node wants
	verdicts := map[shape]verdict{}
	var name []byte
	for _, node := range in.Nodes {
		name = naming.AppendServiceName(name[:0], in.Template.owner.Name, node)
		live, owned := in.Owned[string(name)]
		if owned {
			wanted++
		} else {
			live = in.Lookup(string(name))
		}
		if action := in.Template.action(live, node, verdicts); action == "" {
			plan.InPlace++
		} else {
			plan.Changes = append(plan.Changes, Change{Action: action, Name: string(name), Node: node, Live: live})
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
		case live.terminating: // It goes by itself, and nobody waits for its name.
		default:
			changes = append(changes, Change{Action: Delete, Name: name, Live: live})
		}
	}
	return changes
}

// verdict is what a template makes of all Services of a shape that are for the node that they should be for. As most
// Services of a LocalService have the same, few need to be looked at.
type verdict struct {
	mustReplace bool
	matches     bool
}

// action is what to do about the Service that a node has now, "" if it is as it should be.
func (t *Template) action(live *Service, node string, verdicts map[shape]verdict) Action {
	switch {
	case live == nil:
		return Create
	case live.controller.Value().precedes(t.owner):
		return Wait
	case !live.ControlledBy(t.owner) && !t.mayAdopt(live, node):
		return Conflict
	case live.terminating:
		return Wait
	}
	v, known := verdicts[live.shape]
	if !known || live.node != node {
		full := live.Full(t.nodeLabelKey)
		v = verdict{mustReplace: t.mustReplace(full), matches: t.matches(full, node)}
		if live.node == node {
			verdicts[live.shape] = v
		}
	}
	switch {
	case v.mustReplace:
		return Replace
	case !live.ControlledBy(t.owner):
		return Adopt
	case !v.matches:
		return Update
	}
	return ""
}

// mayAdopt says whether a Service was generated for this LocalService and node, and has been left without a
// controller since, as by `kubectl delete localservice --cascade=orphan`.
func (t *Template) mayAdopt(live *Service, node string) bool {
	if live.controller.Value().exists {
		return false
	}
	full := live.Full(t.nodeLabelKey)
	return full.Labels[v1alpha1.OwnerLabelKey] == t.owner.Name &&
		full.Spec.Selector[t.nodeLabelKey] == naming.NodeLabelValue(node)
}

// Selects says whether a LocalService gives a node a Service, by the node's labels.
func Selects[L labels.Labels](ls *v1alpha1.LocalService, node L) bool {
	return subset(ls.Spec.NodeSelector, node)
}

// SelectsPod says whether a pod with these labels is one of the pods that a LocalService's Services select, if it is
// on the right node.
func SelectsPod[L labels.Labels](ls *v1alpha1.LocalService, pod L) bool {
	return len(ls.Spec.Selector) > 0 && subset(ls.Spec.Selector, pod)
}

func subset[L labels.Labels](want map[string]string, have L) bool {
	for key, value := range want {
		if got, ok := have.Lookup(key); !ok || got != value {
			return false
		}
	}
	return true
}
