package main

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"
)

// list reads the objects of type T that have some labels, in chunks.
func list[T any](ctx context.Context, resource schema.GroupVersionResource, namespace string, with labels.Set,
	chunkSize int64, page pager.ListPageFunc) ([]*T, error) {
	selector, err := labels.ValidatedSelectorFromSet(with)
	if err != nil {
		return nil, nil // No object has a label that no object can have.
	}
	p := pager.New(page)
	p.PageSize = chunkSize
	var items []*T
	err = p.EachListItem(ctx, metav1.ListOptions{LabelSelector: selector.String()}, func(item runtime.Object) error {
		if object, ok := item.(metav1.Object); ok && resource != podsResource {
			object.SetManagedFields(nil) // Half of the memory, and looked at only of pods: who labelled them.
		}
		items = append(items, any(item).(*T))
		return nil
	})
	if err != nil {
		return nil, request{"list", resource, namespace, ""}.failed(err)
	}
	return items, nil
}
