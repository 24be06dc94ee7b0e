package cache

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// byNamespace has a value for each namespace that is watched. If all are watched, or the resource is cluster-wide, it
// has only one, under metav1.NamespaceAll.
type byNamespace[T any] map[string]T

// of returns the value of a namespace, the zero value if that is not watched.
func (m byNamespace[T]) of(namespace string) T {
	if all, exists := m[metav1.NamespaceAll]; exists {
		return all
	}
	return m[namespace]
}

// gates are channels that are closed once their namespace may be watched.
type gates = byNamespace[chan struct{}]

// newGates makes the gates of some namespaces. If there are none, all may be watched immediately.
func newGates(namespaces []string) gates {
	made := gates{}
	for _, namespace := range namespaces {
		made[namespace] = make(chan struct{})
	}
	if len(namespaces) == 0 {
		made[metav1.NamespaceAll] = make(chan struct{})
		close(made[metav1.NamespaceAll])
	}
	return made
}

// Open begins to watch one of the namespaces that the caches were made for. It must not be opened twice.
func (c *Caches) Open(namespace string) { close(c.gates[namespace]) }

func (c *Caches) isOpen(namespace string) bool {
	select {
	case <-c.gates[namespace]:
		return true
	default:
		return false
	}
}

// runLocalServices fills the cache of the LocalServices of a namespace. A namespace may be opened while workers run, so
// it first waits until the other caches have synced there: a sync of a LocalService decides from those.
func (c *Caches) runLocalServices(ctx context.Context, namespace string) {
	select {
	case <-ctx.Done():
		return
	case <-c.gates[namespace]:
	}
	known := func() bool { return hasSynced(c.others(), namespace) }
	if namespace == metav1.NamespaceAll || cache.WaitForCacheSync(ctx.Done(), known) {
		c.LocalServices.watched[namespace].run(ctx)
	}
}

// place returns the name of a resource in a namespace, for messages.
func place(resource, namespace string) string {
	if namespace == metav1.NamespaceAll {
		return resource
	}
	return fmt.Sprintf("%s in namespace %s", resource, namespace)
}
