package cache

import (
	"cmp"
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const podsResource = "pods"

// podsLinger is how long pods are watched after no LocalService needs them: a mode may be changed back.
const podsLinger = time.Minute

// Pods is the cache of Pods. Pods are by far the most numerous objects, so it is empty, and watches nothing, while no
// LocalService needs labels on them.
type Pods struct {
	newStore func() *Store[*Pod]
	needed   func() bool // reports whether labels on pods are needed
	look     chan struct{}
	changed  []func(before, after *Pod)
	store    atomic.Pointer[Store[*Pod]] // nil while pods are not watched
}

func newPods(needed func() bool, newStore func() *Store[*Pod]) *Pods {
	p := &Pods{newStore: newStore, needed: needed, look: make(chan struct{}, 1)}
	p.look <- struct{}{}
	return p
}

// OnChange calls changed after each change of a pod.
func (p *Pods) OnChange(changed func(before, after *Pod)) { p.changed = append(p.changed, changed) }

// localServiceChanged makes run check again whether pods are needed.
func (p *Pods) localServiceChanged(_, _ *v1alpha1.LocalService) {
	select {
	case p.look <- struct{}{}:
	default: // A check is pending.
	}
}

// run fills the cache while it is needed, until ctx is done.
func (p *Pods) run(ctx context.Context) {
	stop := func() {}
	defer func() { stop() }()
	var unneeded <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.look:
			switch isNeeded := p.needed(); {
			case !isNeeded && unneeded == nil:
				unneeded = time.After(podsLinger)
			case isNeeded:
				unneeded = nil
				if p.current().watched == nil {
					stop = p.start(ctx)
				}
			}
		case <-unneeded:
			stop()
			stop, unneeded = func() {}, nil
		}
	}
}

// start starts to fill a new store. The returned function empties the cache again.
func (p *Pods) start(ctx context.Context) (stop func()) {
	store := p.newStore()
	for _, changed := range p.changed {
		utilruntime.Must(store.OnChange(changed)) // It can fail only after the store has begun to run.
	}
	p.store.Store(store)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { store.run(ctx) })
	return func() {
		p.store.Store(nil)
		cancel()
		running.Wait()
	}
}

// current returns the store, an empty one while pods are not watched.
func (p *Pods) current() *Store[*Pod] {
	return cmp.Or(p.store.Load(), &Store[*Pod]{resource: podsResource})
}

// HasSynced reports whether the handlers have seen all pods of a namespace that existed when the watch began, if pods
// are needed.
func (p *Pods) HasSynced(namespace string) bool {
	if store := p.current(); store.watched != nil {
		return store.HasSynced(namespace)
	}
	return !p.needed() // That takes longer, the more LocalServices there are.
}

func (p *Pods) lastReceived() (resource string, at time.Time) { return p.current().lastReceived() }

func (p *Pods) lastSyncedVersion(namespace string) string {
	return p.current().lastSyncedVersion(namespace)
}

// Get returns a pod, nil if there is none.
func (p *Pods) Get(namespace, name string) *Pod { return p.current().Get(namespace, name) }

// All returns all pods, in no order.
func (p *Pods) All() iter.Seq[*Pod] { return p.current().All() }

// Unlabelled returns the pods of a namespace whose node label is not right.
func (p *Pods) Unlabelled(namespace string) []*Pod {
	return p.current().byIndex(namespace, unlabelledByNamespace, namespace)
}
