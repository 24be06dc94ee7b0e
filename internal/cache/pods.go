package cache

import (
	"context"
	"sync"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Pods is the cache of Pods. Pods are by far the most numerous objects, so it is empty, and watches nothing, until a
// LocalService needs labels on them. From then on it watches until the process ends. With -label-pods=false it stays
// empty.
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
	if after != nil && needsLabels(after) {
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

// HasSynced reports whether the handlers have seen all pods of a namespace that existed when the watch began. It is
// true if pods are not watched. Ask after LocalServices have synced.
func (p *Pods) HasSynced(namespace string) bool {
	select {
	case <-p.begun:
		return p.Store.HasSynced(namespace)
	default:
		return true
	}
}

// Unlabelled returns the pods of a namespace that need the node label.
func (p *Pods) Unlabelled(namespace string) []*Pod { return p.indexed(namespace, "") }

// Labelling returns the LocalServices of a namespace that need labels on their pods.
func (c *Caches) Labelling(namespace string) []*v1alpha1.LocalService {
	return c.LocalServices.indexed(namespace, "")
}

// needsLabels reports whether a LocalService needs labels on pods. An invalid one selects none.
func needsLabels(ls *v1alpha1.LocalService) bool {
	return plan.LabelsPods(ls) && len(ls.Spec.Selector) > 0
}
