package cache

import (
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// maxSelections is how many nodeSelectors are remembered with the nodes that they select.
const maxSelections = 16

// Nodes is the cache of Nodes. It remembers which of them a nodeSelector selects until a node changes: when one joins,
// all LocalServices ask at once, and most of them the same.
type Nodes struct {
	*Store[Node]
	changed []func(before, after *Node)

	mu       sync.Mutex
	selected map[string][]string // by nodeSelector
}

func newNodes(store *Store[Node]) (*Nodes, error) {
	n := &Nodes{Store: store, selected: map[string][]string{}}
	return n, store.OnChange(n.change)
}

// OnChange has changed called after each change of a node's labels, when Selected knows it.
func (n *Nodes) OnChange(changed func(before, after *Node)) { n.changed = append(n.changed, changed) }

func (n *Nodes) change(before, after *Node) {
	if before != nil && after != nil && before.Labels == after.Labels {
		return // Heartbeats must not cause work.
	}
	n.forget()
	for _, changed := range n.changed {
		changed(before, after)
	}
}

func (n *Nodes) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.selected)
}

// Selected returns the names of the nodes that a LocalService selects, in no order. They must not be changed.
func (n *Nodes) Selected(ls *v1alpha1.LocalService) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	selector := labels.Set(ls.Spec.NodeSelector).String()
	names, known := n.selected[selector]
	if known {
		return names
	}
	for node := range n.All() {
		if plan.Selects(ls, node.Labels) {
			names = append(names, node.GetName())
		}
	}
	if len(n.selected) >= maxSelections {
		clear(n.selected)
	}
	n.selected[selector] = names
	return names
}
