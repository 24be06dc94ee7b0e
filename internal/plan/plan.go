// Package plan decides which Services a LocalService should have, and what to write to get there. It has no client and
// no state: everything is a function of API objects, and none of them is changed.
package plan

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Change describes what a plan does about one Service.
type Change struct {
	Action Action
	// Template determines the desired Service; nil for Delete.
	Template *Template
	// Name is the name of the Service.
	Name string
	// Node is the name of the Service's node, past or present; "" in mode Hostnames. With a Rival, it is the node or,
	// with groupBy, the value of the label that has no name.
	Node string
	// Current is the Service as the cache has it; nil for Create, and for a Conflict with a Rival.
	Current *corev1.Service
	// Fields lists the fields that an Update or an Adopt sets. Immutable is one that Kubernetes does not let change, for
	// Blocked; else it is "".
	Fields    []string
	Immutable string
	// Sum differs if the Service should become something else, for the same spec.
	Sum uint64
	// Rival is the node or value that has the name, for a Conflict between two of them; "" for a Conflict with somebody
	// else's Service.
	Rival string
	// IfNodeGone limits Delete to Services whose node no longer exists on the API server.
	IfNodeGone bool
}

// Plan lists the changes that bring the Services of a LocalService in line with its spec.
type Plan struct {
	// Changes holds the changes and the conflicts by action. Services that are held for now have no change. Creations
	// are in no order, because they are most of the changes; the others are sorted by name.
	Changes map[Action][]Change
	// InPlace counts the Services that the LocalService controls and that are up to date.
	InPlace int
	// Nodes counts the selected nodes, or the names in mode Hostnames, and Ready those of them with a ready endpoint.
	Nodes, Ready int
	// IsHostnames is true in mode Hostnames. Copies then records how far its names are published; else it is empty.
	IsHostnames bool
	Copies      Copies
	// Nameless counts the selected nodes that have no part in a name: rivals or, with groupBy, those on which its label
	// is missing or empty.
	Nameless int
	// PortNumbers holds the numbers that pods have for ports whose targetPort is a name, if clients must know them.
	PortNumbers PortNumbers
	// SelectsNothing is true if the LocalService chooses among the nodes, and selects none. Most likely that is a
	// mistake, so Held Services of existing nodes stay, although no node wants them.
	SelectsNothing bool
	Held           int
}

// Input holds what a plan is computed from.
type Input struct {
	Templates Templates
	// Nodes lists the names of the selected nodes, each once.
	Nodes []string
	// Owned holds the Services that the LocalService controls, by name. Those that are not wanted are deleted.
	Owned map[string]*corev1.Service
	// Lookup returns the Service with a name that is not in Owned; nil if the name is free.
	Lookup func(name string) *corev1.Service
	// NodeExists reports whether a node exists. It is called only if no node is selected.
	NodeExists func(node string) bool
	// Ready holds the names of the Services with a ready endpoint.
	Ready map[string]bool
	// Names holds the names of mode Hostnames, and what is published of them.
	Names *Names
	// PortNumbers is that of the Plan.
	PortNumbers PortNumbers
}

// Compute compares the desired Services with the current ones.
func Compute(in Input) Plan {
	if in.Templates[0].purpose == ForNode {
		return computeServices(&in)
	}
	return computeHostnames(&in)
}

// computeServices plans a Service for each node.
func computeServices(in *Input) Plan {
	template := in.Templates[0]
	plan := newPlan(in, template.owner)
	plan.Nodes = len(in.Nodes)
	rivals, wanted := Rivals(template.owner, in.Nodes), make(map[string]bool, len(in.Nodes))
	want := template.wantFor("")
	for _, node := range in.Nodes {
		if rivals[node] != "" {
			continue
		}
		if template.setNode(want, node); template.hasVariables {
			want = template.wantFor(node)
		}
		name := template.name(node)
		wanted[name] = true
		plan.compare(in, template, node, want)
		if in.Owned[name] != nil && in.Ready[name] {
			plan.Ready++
		}
	}
	plan.finish(in, wanted, rivals)
	return plan
}

// computeHostnames plans the two Services of mode Hostnames. Both are created when a node is first selected, and then
// stay.
func computeHostnames(in *Input) Plan {
	plan := newPlan(in, in.Templates[0].owner)
	plan.IsHostnames, plan.Copies = true, in.Names.Copies()
	rivals, wanted := in.Names.Rivals, map[string]bool{}
	if plan.SelectsNothing {
		rivals = nil // No node wants a name: those that have one keep it.
	}
	for _, template := range in.Templates {
		wanted[template.name("")] = true
		if !plan.SelectsNothing || in.Names.Source != nil || in.Names.Published != nil {
			plan.compare(in, template, "", template.wantFor(""))
		}
	}
	plan.finish(in, wanted, rivals)
	plan.Nodes, plan.Ready, plan.Nameless = in.Names.count(in.Nodes, plan.Copies.ready)
	plan.Nodes += len(rivals)
	return plan
}

func newPlan(in *Input, ls *v1alpha1.LocalService) Plan {
	return Plan{Changes: map[Action][]Change{}, PortNumbers: in.PortNumbers,
		SelectsNothing: len(in.Nodes) == 0 && HasNodeSelector(ls)}
}

// compare adds what to do about the Service of a node, which should be as want.
func (p *Plan) compare(in *Input, template *Template, node string, want *corev1.Service) {
	name := template.name(node)
	current := in.Owned[name]
	if current == nil {
		current = in.Lookup(name)
	}
	action, found := template.actionOn(current, node, want)
	if action == "" {
		p.InPlace++
		return
	}
	p.Changes[action] = append(p.Changes[action], Change{Action: action, Template: template, Name: name, Node: node,
		Current: current, Fields: found.fields, Immutable: found.immutable, Sum: template.sum(node)})
}

// finish adds the deletions of the owned Services that are not wanted and the conflicts of rivals, and sorts all changes
// except creations. If no node is selected, only the Services of nodes that are gone, on the API server, too, are
// deleted.
func (p *Plan) finish(in *Input, wanted map[string]bool, rivals map[string]string) {
	for name, current := range in.Owned {
		node := NodeOf(current)
		switch {
		case wanted[name] || current.DeletionTimestamp != nil:
		case p.SelectsNothing && (node == "" || in.NodeExists(node)):
			p.Held++
		default:
			p.Changes[Delete] = append(p.Changes[Delete], Change{Action: Delete, Name: name, Node: node,
				Current: current, IfNodeGone: p.SelectsNothing})
		}
	}
	for rival, holder := range rivals {
		p.Changes[Conflict] = append(p.Changes[Conflict], Change{Action: Conflict, Template: in.Templates[0],
			Name: nameOf(in.Templates[0].owner, rival), Node: rival, Rival: holder})
	}
	for action, changes := range p.Changes {
		if action != Create {
			slices.SortFunc(changes, func(a, b Change) int {
				return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node))
			})
		}
	}
}

// actionOn returns what to do about the current Service of a node, and what differs; "" if there is nothing to do.
func (t *Template) actionOn(current *corev1.Service, node string, want *corev1.Service) (Action, difference) {
	holder := HolderOf(t.owner, t.purpose, node, t.nodeLabelKey, current)
	switch {
	case holder == Nobody:
		return Create, difference{}
	case holder == Foreign:
		return Conflict, difference{}
	case holder == Predecessor, current.DeletionTimestamp != nil:
		return Wait, difference{}
	}
	found := compare(want, current)
	switch {
	case len(found.fields) == 0:
		return "", found
	case found.immutable != "":
		return Blocked, found
	case holder == Orphan:
		return Adopt, found
	}
	return Update, found
}
