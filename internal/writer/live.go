package writer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// confirm checks that the API server has a LocalService with the same UID and generation as the cache. It returns a
// stale error if the LocalService was changed or deleted. It reads only metadata, so that it works even if the spec
// cannot be decoded.
func (w *Writer) confirm(ctx context.Context, ls *v1alpha1.LocalService) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	live, err := w.Metadata.Resource(cache.LocalServiceResource).Namespace(ls.Namespace).
		Get(ctx, ls.Name, metav1.GetOptions{})
	switch {
	case err == nil && isSameSpec(live, ls):
		return nil
	case err == nil, isAbsent(err):
		err = staleError("it was changed or deleted")
	}
	return fmt.Errorf("check whether LocalService %s/%s is as the cache has it: %w", ls.Namespace, ls.Name, err)
}

// nodeLabels returns the labels of a node from the API server, because the cache may lag; nil if the node does not
// exist.
func (w *Writer) nodeLabels(ctx context.Context, name string) (labels.Set, error) {
	if name == "" || len(content.IsPathSegmentName(name)) > 0 {
		return nil, nil // The annotation was edited: no node has such a name.
	}
	nodes := w.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
	node, err := nodes.Get(ctx, name, metav1.GetOptions{})
	switch {
	case isAbsent(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("check whether node %q is gone: %w", name, err)
	}
	return labels.Merge(node.Labels, nil), nil // Not nil, even if there are none.
}

// checkCurrent returns an error if the cache no longer has the spec for which a LocalService was planned.
func (w *Writer) checkCurrent(ls *v1alpha1.LocalService) error {
	current := w.Caches.LocalServices.Get(ls.Namespace, ls.Name)
	if current == nil || !isSameSpec(current, ls) {
		return staleError("the LocalService has changed")
	}
	return nil
}

// isSameSpec reports whether a LocalService is the one that was planned for, with the same spec, and is not being
// deleted.
func isSameSpec(current, planned metav1.Object) bool {
	return current.GetUID() == planned.GetUID() && current.GetGeneration() == planned.GetGeneration() &&
		current.GetDeletionTimestamp() == nil
}
