package cache

import (
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Node is what the cache keeps of a Node: its name and labels, by which a LocalService selects it.
type Node struct {
	Identity
	Labels Labels
	shared unique.Handle[string] // keeps the name the same string as in its Services, with which it is compared often
}

func trimNode(full *metav1.PartialObjectMetadata) (*Node, error) {
	node := &Node{Identity: identityOf(full), Labels: labelsOf(full.Labels), shared: unique.Make(full.Name)}
	node.name = node.shared.Value()
	return node, nil
}

// Lookup returns the value of a label, and whether there is one. It makes the node a plan.Labels.
func (n *Node) Lookup(key string) (value string, exists bool) { return n.Labels.Lookup(key) }

// DeepCopyObject makes it a runtime.Object, so that the cache mutation detector watches over it.
func (n *Node) DeepCopyObject() runtime.Object { return new(*n) }
