package cache

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// Store gives access to the cache of one resource, whose objects are of type *T. They must not be changed.
type Store[T any] struct {
	resource  string
	informers informers
	heard     byNamespace[*heard]
	told      byNamespace[[]cache.InformerSynced] // who has been told of all objects from the start
	echoes    *utilcache.LRUExpireCache
}

const (
	// EchoTimeout is within which the watch is expected to tell what was written.
	EchoTimeout = time.Minute
	// AwaitTimeout is how long a sync waits for the watch to tell what it wrote. What comes later may come after another
	// sync that knew nothing of it.
	AwaitTimeout = time.Second
	// Of more than maxEchoes objects at a time some are forgotten, and looked at once more than needed.
	maxEchoes = 10000
)

// newStore makes a store of informers. trim makes little of a whole object.
func newStore[T, Full any](resource string, informers informers, trim func(Full) (*T, error), indexers cache.Indexers,
	onWatchError OnWatchError) (*Store[T], error) {
	s := &Store[T]{resource: resource, informers: informers, heard: byNamespace[*heard]{},
		told: byNamespace[[]cache.InformerSynced]{}, echoes: utilcache.NewLRUExpireCache(maxEchoes)}
	for namespace, informer := range informers {
		err := informer.SetTransform(func(obj any) (any, error) {
			if full, ok := obj.(Full); ok {
				return trim(full)
			}
			return obj, nil // Trimmed before, or a tombstone.
		})
		if err == nil {
			err = informer.AddIndexers(indexers)
		}
		if err == nil {
			err = informer.SetWatchErrorHandlerWithContext(onWatchError(place(resource, namespace)))
		}
		if err != nil {
			return s, err
		}
		s.heard[namespace], s.told[namespace] = &heard{}, []cache.InformerSynced{informer.HasSynced}
	}
	return s, nil
}

// Get returns an object, nil if there is none. The namespace is empty for cluster-wide objects.
func (s *Store[T]) Get(namespace, name string) *T {
	if obj := s.get(namespace, name); obj != nil {
		return obj.(*T)
	}
	return nil
}

func (s *Store[T]) get(namespace, name string) any {
	informer := s.informers.of(namespace)
	if informer == nil {
		return nil
	}
	// GetByKey fails for no key.
	obj, _, _ := informer.GetStore().GetByKey(storeKey(namespace, name))
	return obj
}

func storeKey(namespace, name string) string { return cache.NewObjectName(namespace, name).String() }

// All returns all objects, in no order.
func (s *Store[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, informer := range s.informers {
			for obj := range typed[T](informer.GetStore().List()) {
				if !yield(obj) {
					return
				}
			}
		}
	}
}

// Keys returns the keys of all objects, in no order.
func (s *Store[T]) Keys() iter.Seq[types.NamespacedName] {
	return func(yield func(types.NamespacedName) bool) {
		for _, informer := range s.informers {
			for _, key := range informer.GetStore().ListKeys() {
				// The keys of a store are those of objects.
				if name, err := cache.ParseObjectName(key); err == nil && !yield(name.AsNamespacedName()) {
					return
				}
			}
		}
	}
}

// byIndex returns the objects of a namespace with a value in an index, in no order.
func (s *Store[T]) byIndex(namespace, index, value string) []any {
	informer := s.informers.of(namespace)
	if informer == nil {
		return nil
	}
	// Every index that is asked for exists, so this cannot fail.
	objs, _ := informer.GetIndexer().ByIndex(index, value)
	return objs
}

func typed[T any](objs []any) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, obj := range objs {
			if !yield(obj.(*T)) {
				return
			}
		}
	}
}

// echo is what the watch is expected to tell of a write of ours.
type echo struct {
	resourceVersion string
	controller      types.UID // "" for none
	generation      int64     // of the LocalService that it was written for, 0 where that is not asked for
	writtenAt       time.Time
}

// Wrote takes in what the API server answered to a write of ours, so that IsEcho knows it again.
func (s *Store[T]) Wrote(object metav1.Object) { s.expect(object, 0) }

func (s *Store[T]) expect(object metav1.Object, generation int64) {
	e := echo{resourceVersion: object.GetResourceVersion(), generation: generation, writtenAt: time.Now()}
	if controller := metav1.GetControllerOfNoCopy(object); controller != nil {
		e.controller = controller.UID
	}
	s.echoes.Add(storeKey(object.GetNamespace(), object.GetName()), e, EchoTimeout)
}

// expected returns what the watch is expected to tell of an object.
func (s *Store[T]) expected(namespace, name string) (e echo, found bool) {
	value, found := s.echoes.Get(storeKey(namespace, name))
	if found {
		e = value.(echo)
	}
	return e, found
}

// forget has nothing expected of an object any more.
func (s *Store[T]) forget(namespace, name string) { s.echoes.Remove(storeKey(namespace, name)) }

// hasPassed reports whether the watch has told all that there was until a resource version, so that what it has not told
// is gone.
func (s *Store[T]) hasPassed(namespace, version string) bool {
	informer := s.informers.of(namespace)
	if informer == nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(informer.GetStore().LastStoreSyncResourceVersion(), version)
	return err == nil && order >= 0
}

// HasReached reports whether the cache has an object, of this resource version or a later one.
func (s *Store[T]) HasReached(namespace, name, resourceVersion string) bool {
	obj := s.get(namespace, name)
	return obj != nil && hasReached(obj.(versioned), resourceVersion)
}

type versioned interface{ GetResourceVersion() string }

// hasReached reports whether an object has a resource version, or a later one. Those that cannot be compared count as
// later.
func hasReached(object versioned, version string) bool {
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), version)
	return err != nil || order >= 0
}

// IsEcho reports whether a state that the watch tells is one that we have written, and tells in time for the sync that
// wrote it. It is told once.
func (s *Store[T]) IsEcho(state interface {
	GetNamespace() string
	GetName() string
	GetResourceVersion() string
}) bool {
	e, found := s.expected(state.GetNamespace(), state.GetName())
	if !found || e.resourceVersion != state.GetResourceVersion() {
		return false
	}
	s.forget(state.GetNamespace(), state.GetName())
	return time.Since(e.writtenAt) < AwaitTimeout
}

// OnChange calls changed after each change of an object: before is nil if it is new, after is nil if it is gone. On a
// resync, both are the same. It must not block.
func (s *Store[T]) OnChange(changed func(before, after *T)) error {
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { changed(nil, obj.(*T)) },
		UpdateFunc: func(old, obj any) { changed(old.(*T), obj.(*T)) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj // The event was missed, and found out later.
			}
			changed(obj.(*T), nil)
		},
	}
	for namespace, informer := range s.informers {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("watch changes: %w", err)
		}
		s.told[namespace] = append(s.told[namespace], registration.HasSynced)
	}
	return nil
}

func (s *Store[T]) run(ctx context.Context) {
	var running sync.WaitGroup
	for namespace, informer := range s.informers {
		running.Go(func() { informer.RunWithContext(s.heard[namespace].in(ctx)) })
	}
	running.Wait()
}

// lastHeard is about the watch that is behind the others, of those that have told anything yet.
func (s *Store[T]) lastHeard() (resource string, at time.Time) {
	for _, h := range s.heard {
		if last := h.at(); !last.IsZero() && (at.IsZero() || last.Before(at)) {
			at = last
		}
	}
	return s.resource, at
}

// synced are what tells whether all is known of a namespace.
func (s *Store[T]) synced(namespace string) []cache.InformerSynced { return s.told.of(namespace) }
