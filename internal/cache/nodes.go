package cache

import (
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/lru"

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
	selected *lru.Cache // func() *Selection, by nodeSelector
}

func newNodes(store *Store[Node]) (*Nodes, error) {
	n := &Nodes{Store: store, selected: lru.New(maxSelections)}
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
	n.selected.Clear()
}

// Selection is the nodes that a nodeSelector selects. It must not be changed.
type Selection struct {
	Names []string // in no order
	set   func() sets.Set[string]
	nodes *Nodes
}

// Label returns the value of a label of a node that is selected: see plan.LabelOfSelected. For each change of a pod it
// is asked about all nodes.
func (s *Selection) Label(node, key string) (value string, isSelected bool) {
	if !s.set().Has(node) {
		return "", false
	}
	if key == "" {
		return "", true
	}
	if n := s.nodes.Get("", node); n != nil {
		value, _ = n.Lookup(key)
	}
	return value, true
}

// IsOf reports whether these are the names of the nodes, each given once.
func (s *Selection) IsOf(names []string) bool {
	return len(names) == len(s.Names) && s.set().HasAll(names...)
}

// Selected returns the nodes that a LocalService selects.
func (n *Nodes) Selected(ls *v1alpha1.LocalService) *Selection {
	return n.selection(ls)()
}

// Named returns the nodes that mode Hostnames names: those that a LocalService selects. While it selects none, they are
// all nodes, so that the names which are published stay and follow the pods.
func (n *Nodes) Named(ls *v1alpha1.LocalService) *Selection {
	selected := n.Selected(ls)
	if plan.SelectsNothing(ls, len(selected.Names)) {
		return n.Selected(&v1alpha1.LocalService{})
	}
	return selected
}

// selection returns what finds out which nodes a LocalService selects: once for all who ask, of whom those with another
// nodeSelector do not wait.
func (n *Nodes) selection(ls *v1alpha1.LocalService) func() *Selection {
	n.mu.Lock()
	defer n.mu.Unlock()
	selector := labels.Set(ls.Spec.NodeSelector).String()
	if known, isKnown := n.selected.Get(selector); isKnown {
		return known.(func() *Selection)
	}
	find := sync.OnceValue(func() *Selection { return n.find(ls) })
	n.selected.Add(selector, find)
	return find
}

func (n *Nodes) find(ls *v1alpha1.LocalService) *Selection {
	s := &Selection{nodes: n}
	for node := range n.All() {
		if plan.Selects(ls, node.Labels) {
			s.Names = append(s.Names, node.GetName())
		}
	}
	s.set = sync.OnceValue(func() sets.Set[string] { return sets.New(s.Names...) }) // Few ask for it.
	return s
}
