package cache

import (
	"slices"
	"sync"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// Node keeps the name of a Node, its labels, by which LocalServices select it, and when it was created.
type Node struct {
	Identity
	Labels  Labels
	shared  unique.Handle[string] // shares the string of the name with its Services, with which it is often compared
	created int64                 // in Unix seconds
}

func trimNode(full *metav1.PartialObjectMetadata) (*Node, error) {
	node := &Node{Identity: identityOf(full), Labels: labelsOf(full.Labels), shared: unique.Make(full.Name),
		created: full.CreationTimestamp.Unix()}
	node.name = node.shared.Value()
	return node, nil
}

// Created returns when the node was created.
func (n *Node) Created() time.Time { return time.Unix(n.created, 0) }

// same reports whether two states of a Node have the same labels. Heartbeats change other fields.
func (n *Node) same(other *Node) bool { return n.Labels == other.Labels }

// DeepCopyObject makes it a runtime.Object, which the cache mutation detector can check.
func (n *Node) DeepCopyObject() runtime.Object { return new(*n) }

// byHostname is the index of Nodes by the hostname that they want in mode Hostnames, unless that is their name.
const byHostname = "hostname"

func indexHostname(node *Node) ([]string, error) {
	if hostname := naming.Hostname(node.name); hostname != node.name {
		return []string{hostname}, nil
	}
	return nil, nil
}

// Nodes is the cache of Nodes.
type Nodes struct{ *Store[*Node] }

// Selected returns the names of the nodes that a LocalService selects, in no order.
func (n *Nodes) Selected(ls *v1alpha1.LocalService) []string {
	all := n.watched.of(metav1.NamespaceAll).GetStore().List() // Its length saves most allocations of a plan.
	names := make([]string, 0, len(all))
	for _, obj := range all {
		if node := obj.(*Node); plan.Selects(ls, node.name, node.Labels) {
			names = append(names, node.GetName())
		}
	}
	return names
}

// Labels returns the labels of nodes, each as it is when it is first asked for.
func (n *Nodes) Labels() plan.NodeLabels {
	known := map[string]*Node{}
	return func(name, key string) (value string, exists bool) {
		node, isKnown := known[name]
		if !isKnown {
			node = n.Get("", name)
			known[name] = node
		}
		if node == nil {
			return "", false
		}
		return node.Labels.Lookup(key)
	}
}

// Named returns the labels of the nodes that have names in mode Hostnames: those that a LocalService selects. While it
// selects none, these are all nodes, so that published names stay and follow the pods. Of two nodes that want one name,
// only one has it.
func (n *Nodes) Named(ls *v1alpha1.LocalService) plan.LabelOfNamed {
	selectsNone := sync.OnceValue(func() bool { // In mode Services, nobody asks.
		for node := range n.All() {
			if plan.Selects(ls, node.name, node.Labels) {
				return false
			}
		}
		return true
	})
	isNamed := func(node *Node) bool {
		return node != nil && (plan.Selects(ls, node.name, node.Labels) || selectsNone())
	}
	isTaken := func(hostname string) bool { return len(n.byIndex(metav1.NamespaceAll, byHostname, hostname)) > 0 }
	return func(name, key string) (value string, _ bool) {
		node := n.Get("", name)
		if node == nil {
			return "", plan.IsNamedUnknown(ls, name, isTaken)
		}
		if !isNamed(node) || key == "" && n.hasRival(name, isNamed) {
			return "", false
		}
		value, _ = node.Labels.Lookup(key)
		return value, true
	}
}

// hasRival reports whether another one of some nodes has the hostname that a node wants.
func (n *Nodes) hasRival(name string, among func(*Node) bool) bool {
	hostname := naming.Hostname(name)
	others := n.byIndex(metav1.NamespaceAll, byHostname, hostname)
	if hostname != name {
		others = append(others, n.Get("", hostname))
	}
	return slices.ContainsFunc(others, func(other *Node) bool {
		return other != nil && other.name < name && among(other)
	})
}
