package cache

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// byNamespace holds a value for each namespace that is watched. If all are watched, or the resource is cluster-wide, it
// has only one, under metav1.NamespaceAll.
type byNamespace[T any] map[string]T

// of returns the value of a namespace, the zero value if that is not watched.
func (m byNamespace[T]) of(namespace string) T {
	if all, exists := m[metav1.NamespaceAll]; exists {
		return all
	}
	return m[namespace]
}

// place returns the name of a resource in a namespace, for messages.
func place(resource, namespace string) string {
	if namespace == metav1.NamespaceAll {
		return resource
	}
	return fmt.Sprintf("%s in namespace %s", resource, namespace)
}
