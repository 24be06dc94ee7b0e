package cache

import (
	"context"
	"iter"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const podsResource = "pods"

// podsLinger is how long pods are watched that no LocalService needs any more: it may change its mode again.
const podsLinger = time.Minute

// Pods is the cache of Pods. They are by far the most objects, so it is empty, and watches nothing, while no
// LocalService needs labels on them.
type Pods struct {
	newStore func() (*Store[Pod], error)
	changed  []func(before, after *Pod)
	wanted   chan bool

	needed int // LocalServices that need labels on pods; only the events of LocalServices use it

	mu       sync.Mutex
	isWanted bool
	store    *Store[Pod] // nil while it is not filled
}

// newPods makes the cache of Pods. With all it is wanted at all times.
func newPods(all bool, newStore func() (*Store[Pod], error)) *Pods {
	p := &Pods{newStore: newStore, wanted: make(chan bool, 1)}
	if all {
		p.needed++
		p.want(true)
	}
	return p
}

// OnChange has changed called after each change of a pod.
func (p *Pods) OnChange(changed func(before, after *Pod)) { p.changed = append(p.changed, changed) }

func (p *Pods) localServiceChanged(before, after *v1alpha1.LocalService) {
	if before != nil && plan.LabelsPods(before) {
		p.needed--
	}
	if after != nil && plan.LabelsPods(after) {
		p.needed++
	}
	p.want(p.needed > 0)
}

func (p *Pods) want(wanted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isWanted == wanted {
		return
	}
	p.isWanted = wanted
	select {
	case <-p.wanted: // What was asked for before, and not noticed yet.
	default:
	}
	p.wanted <- wanted
}

// run fills the cache while it is wanted, until ctx is done.
func (p *Pods) run(ctx context.Context) {
	var stop func() // not nil while it is filled
	var unwanted <-chan time.Time
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case wanted := <-p.wanted:
			if unwanted = nil; !wanted {
				unwanted = time.After(podsLinger)
			} else if stop == nil {
				stop = p.start(ctx)
			}
		case <-unwanted:
			if stop != nil {
				stop()
			}
			stop, unwanted = nil, nil
		}
	}
}

// start begins to fill a new store. What it returns empties the cache again.
func (p *Pods) start(ctx context.Context) (stop func()) {
	store, err := p.newStore()
	if err == nil {
		err = store.OnChange(func(before, after *Pod) {
			for _, changed := range p.changed {
				changed(before, after)
			}
		})
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Pods cannot be watched, so none is labelled") // It was set up wrongly.
		return func() {}
	}
	p.setStore(store)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { store.run(ctx) })
	return func() {
		p.setStore(nil)
		cancel()
		running.Wait()
	}
}

func (p *Pods) setStore(store *Store[Pod]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.store = store
}

func (p *Pods) current() *Store[Pod] {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.store
}

func (p *Pods) synced(namespace string) []cache.InformerSynced {
	return []cache.InformerSynced{func() bool { return p.HasSynced(namespace) }}
}

// lastHeard is about the watch that there is now.
func (p *Pods) lastHeard() (resource string, at time.Time) {
	if store := p.current(); store != nil {
		return store.lastHeard()
	}
	return podsResource, time.Time{}
}

// HasSynced reports whether the handlers have seen all pods of a namespace that existed when the watch began, if pods
// are wanted.
func (p *Pods) HasSynced(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isWanted {
		return true
	}
	if p.store == nil {
		return false
	}
	for _, synced := range p.store.synced(namespace) {
		if !synced() {
			return false
		}
	}
	return true
}

func (p *Pods) lastSyncedVersion(namespace string) string {
	if store := p.current(); store != nil {
		return store.lastSyncedVersion(namespace)
	}
	return ""
}

// Get returns a pod, nil if there is none.
func (p *Pods) Get(namespace, name string) *Pod {
	if store := p.current(); store != nil {
		return store.Get(namespace, name)
	}
	return nil
}

// All returns all pods, in no order.
func (p *Pods) All() iter.Seq[*Pod] {
	if store := p.current(); store != nil {
		return store.All()
	}
	return func(func(*Pod) bool) {}
}

// Unlabelled returns the pods of a namespace whose node label is not right.
func (p *Pods) Unlabelled(namespace string) iter.Seq[*Pod] {
	if store := p.current(); store != nil {
		return typed[Pod](store.byIndex(namespace, unlabelledByNamespace, namespace))
	}
	return func(func(*Pod) bool) {}
}
