package cache

import (
	"context"
	"sync"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Pods is the cache of Pods. Pods are by far the most numerous objects, so it is empty, and watches nothing, until a
// LocalService needs labels on them. From then on it watches until the process ends.
type Pods struct {
	*Store[*Pod]
	begun chan struct{}
	begin func() // closes begun, once
}

func newPods(store *Store[*Pod]) *Pods {
	begun := make(chan struct{})
	return &Pods{store, begun, sync.OnceFunc(func() { close(begun) })}
}

// localServiceChanged begins to watch pods if a LocalService needs labels on them.
func (p *Pods) localServiceChanged(_, after *v1alpha1.LocalService) {
	if after == nil {
		return
	}
	if keys, _ := indexBySelector(after); len(keys) > 0 {
		p.begin()
	}
}

// run fills the cache from the moment it is needed, until ctx is done.
func (p *Pods) run(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-p.begun:
		p.Store.run(ctx)
	}
}

// HasSynced reports whether the handlers have seen all pods of a namespace that existed when the watch began, if it has
// begun. Whether it has is known once the cache of LocalServices has synced.
func (p *Pods) HasSynced(namespace string) bool {
	select {
	case <-p.begun:
		return p.Store.HasSynced(namespace)
	default:
		return true
	}
}

// Unlabelled returns the pods of a namespace whose node label is not right.
func (p *Pods) Unlabelled(namespace string) []*Pod {
	return p.byIndex(namespace, unlabelledByNamespace, namespace)
}
