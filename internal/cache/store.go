package cache

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Store gives access to the cache of one resource, whose objects are of type *T. They must not be changed.
type Store[T any] struct {
	resource  string
	informers informers
	heard     byNamespace[*heard]
	notified  byNamespace[[]cache.InformerSynced] // the handlers that have seen all objects from the start
}

// newStore makes a store of informers. trim keeps only the fields of an object that are read.
func newStore[T, Full any](resource string, informers informers, trim func(Full) (*T, error), indexers cache.Indexers,
	onWatchError OnWatchError) (*Store[T], error) {
	s := &Store[T]{resource: resource, informers: informers, heard: byNamespace[*heard]{},
		notified: byNamespace[[]cache.InformerSynced]{}}
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
		s.heard[namespace], s.notified[namespace] = &heard{}, []cache.InformerSynced{informer.HasSynced}
	}
	return s, nil
}

// Get returns an object, nil if there is none. The namespace is empty for cluster-wide objects.
func (s *Store[T]) Get(namespace, name string) *T {
	informer := s.informers.of(namespace)
	if informer == nil {
		return nil
	}
	// GetByKey fails for no key.
	obj, exists, _ := informer.GetStore().GetByKey(cache.NewObjectName(namespace, name).String())
	if !exists {
		return nil
	}
	return obj.(*T)
}

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

// countByIndex counts the objects of a namespace with a value in an index.
func (s *Store[T]) countByIndex(namespace, index, value string) int {
	informer := s.informers.of(namespace)
	if informer == nil {
		return 0
	}
	keys, _ := informer.GetIndexer().IndexKeys(index, value)
	return len(keys)
}

// count counts all objects.
func (s *Store[T]) count() (n int) {
	for _, informer := range s.informers {
		n += len(informer.GetStore().ListKeys())
	}
	return n
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

// lastSyncedVersion returns the resource version up to which the cache has observed a namespace.
func (s *Store[T]) lastSyncedVersion(namespace string) string {
	if informer := s.informers.of(namespace); informer != nil {
		return informer.GetStore().LastStoreSyncResourceVersion()
	}
	return ""
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
		s.notified[namespace] = append(s.notified[namespace], registration.HasSynced)
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

// lastHeard is about the watch that is behind the others, of those on which something has come.
func (s *Store[T]) lastHeard() (resource string, at time.Time) {
	for _, h := range s.heard {
		if last := h.at(); !last.IsZero() && (at.IsZero() || last.Before(at)) {
			at = last
		}
	}
	return s.resource, at
}

// synced returns the functions that report whether everything in a namespace is known.
func (s *Store[T]) synced(namespace string) []cache.InformerSynced { return s.notified.of(namespace) }
