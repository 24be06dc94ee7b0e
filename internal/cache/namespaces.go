package cache

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// byNamespace is what there is of one resource for each namespace that is watched. What is of all namespaces, or of a
// cluster-wide resource, is under metav1.NamespaceAll, and alone.
type byNamespace[T any] map[string]T

// of returns what is of a namespace, the zero value if that is not watched.
func (m byNamespace[T]) of(namespace string) T {
	if all, exists := m[metav1.NamespaceAll]; exists {
		return all
	}
	return m[namespace]
}

type informers = byNamespace[cache.SharedIndexInformer]

// clusterWide is the informer of all namespaces, or of a cluster-wide resource.
func clusterWide(informer cache.SharedIndexInformer) informers {
	return informers{metav1.NamespaceAll: informer}
}

// gate lets the informers of one namespace run when that may be watched.
type gate struct {
	opened chan struct{} // closed by Open
	filled chan struct{} // closed when all is known of the namespace but its LocalServices
}

func (g *gate) isOpen() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}

// newGates makes the gates of some namespaces: none if all are watched, which begins at once.
func newGates(namespaces []string) map[string]*gate {
	gates := map[string]*gate{}
	for _, namespace := range namespaces {
		gates[namespace] = &gate{opened: make(chan struct{}), filled: make(chan struct{})}
	}
	return gates
}

// gated is an informer that begins when a channel is closed.
type gated struct {
	cache.SharedIndexInformer
	begin <-chan struct{}
}

func (g *gated) RunWithContext(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-g.begin:
		g.SharedIndexInformer.RunWithContext(ctx)
	}
}

// namespaced makes the informers of a resource: one for all namespaces, or for each of those that have a gate.
func (c *Caches) namespaced(newInformer func(namespace string) cache.SharedIndexInformer) informers {
	return c.namespacedFrom(newInformer, func(g *gate) <-chan struct{} { return g.opened })
}

// namespacedFrom is namespaced for informers that begin at another time than when their namespace is opened.
func (c *Caches) namespacedFrom(newInformer func(namespace string) cache.SharedIndexInformer,
	begin func(*gate) <-chan struct{}) informers {
	if len(c.gates) == 0 {
		return clusterWide(newInformer(metav1.NamespaceAll))
	}
	all := informers{}
	for namespace, g := range c.gates {
		all[namespace] = &gated{newInformer(namespace), begin(g)}
	}
	return all
}

// Open begins to watch one of the namespaces that the caches were made for. It must not be opened twice.
func (c *Caches) Open(namespace string) { close(c.gates[namespace].opened) }

// fill lets the LocalServices of a namespace come when all else is known there: what there is to do follows from them.
func (c *Caches) fill(ctx context.Context, namespace string) {
	g := c.gates[namespace]
	select {
	case <-ctx.Done():
		return
	case <-g.opened:
	}
	var synced []cache.InformerSynced
	for _, store := range c.stores() {
		if store != runner(c.LocalServices) {
			synced = append(synced, store.synced(namespace)...)
		}
	}
	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		close(g.filled)
	}
}

// place names a resource in a namespace, for messages.
func place(resource, namespace string) string {
	if namespace == metav1.NamespaceAll {
		return resource
	}
	return fmt.Sprintf("%s in namespace %s", resource, namespace)
}
