package cache

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Node keeps the name of a Node, its labels, by which LocalServices select it, and when it was created.
type Node struct {
	identity
	Labels  plan.LabelString
	created int64 // in Unix seconds
}

func trimNode(full *metav1.PartialObjectMetadata) (*Node, error) {
	return &Node{identity: identityOf(full), Labels: plan.LabelStringOf(full.Labels),
		created: full.CreationTimestamp.Unix()}, nil
}

// Created returns when the node was created.
func (n *Node) Created() time.Time { return time.Unix(n.created, 0) }

// Same reports whether two states of a Node have the same labels. Heartbeats change other fields.
func (n *Node) Same(other *Node) bool { return n.Labels == other.Labels }

// Nodes is the cache of Nodes.
type Nodes struct{ *Store[*Node] }

// Selected returns the names of the nodes that a LocalService selects, in no order.
func (n *Nodes) Selected(ls *v1alpha1.LocalService) []string {
	all := n.in(metav1.NamespaceAll).GetStore().List() // Its length saves most allocations of a plan.
	names := make([]string, 0, len(all))
	for _, obj := range all {
		if node := obj.(*Node); plan.Selects(ls, node.GetName(), node.Labels) {
			names = append(names, node.GetName())
		}
	}
	return names
}

// Labels returns the labels of nodes, each as it is when it is first asked for. Many writes may ask at a time.
func (n *Nodes) Labels() plan.NodeLabels {
	var known sync.Map // *Node, by name
	return func(name, key string) (value string, exists bool) {
		found, _ := known.LoadOrStore(name, n.Get("", name))
		if node := found.(*Node); node != nil {
			return node.Labels.Lookup(key)
		}
		return "", false
	}
}
