package cache

import (
	"context"
	"iter"
	"slices"
	"sync"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Store gives access to the cache of one resource, whose objects are of type T, a pointer. They must not be changed.
type Store[T cache.Object] struct {
	// watched holds the informer of each namespace that is watched. If all are, or the resource is cluster-wide, there
	// is only one, under metav1.NamespaceAll.
	watched map[string]*watched[T]
	isSame  func(before, after T) bool
}

// watched caches a resource in one namespace, or in all.
type watched[T cache.Object] struct {
	cache.TypedSharedIndexInformer[T]
	synced []cache.InformerSynced // of the informer and of its handlers
}

// keyIndex names the index of a store: each has one.
const keyIndex = "key"

// newStore makes a store with an informer for each namespace. trim keeps only the fields of an object that are read.
// index returns the key under which an object is found in its namespace, and whether it is; it is nil if none is.
// isSame reports whether a change of an object affects no kept field; nil to report all. The setters of an informer can
// fail only after it has started.
func newStore[T cache.Object, Full any](o *Options, resource string, namespaces []string,
	readerOf func(namespace string) Reader, trim func(Full) (T, error),
	index func(T) (key string, isIndexed bool), isSame func(before, after T) bool) *Store[T] {
	s := &Store[T]{watched: map[string]*watched[T]{}, isSame: isSame}
	for _, namespace := range namespaces {
		reader := readerOf(namespace)
		reader.resource, reader.onError, reader.onRestore = resource, o.OnReadError, o.OnRestore
		if namespace != metav1.NamespaceAll {
			reader.resource += " in namespace " + namespace
		}
		informer := cache.NewTypedSharedIndexInformer[T](cache.NewSharedIndexInformerWithOptions(
			reader.listerWatcher(), nil, cache.SharedIndexInformerOptions{ObjectDescription: reader.resource,
				ResyncPeriod: reader.resync, Indexers: cache.Indexers{}}))
		s.watched[namespace] = &watched[T]{informer, []cache.InformerSynced{informer.HasSynced}}
		utilruntime.Must(informer.SetTransform(func(obj any) (any, error) {
			if full, ok := obj.(Full); ok {
				return trim(full)
			}
			return obj, nil // Trimmed before, or a tombstone.
		}))
		utilruntime.Must(informer.AddTypedIndexers(cache.TypedIndexers[T]{keyIndex: func(obj T) ([]string, error) {
			if index != nil {
				if key, isIndexed := index(obj); isIndexed {
					return []string{obj.GetNamespace() + "/" + key}, nil
				}
			}
			return nil, nil
		}}))
		utilruntime.Must(informer.SetWatchErrorHandlerWithContext(
			func(ctx context.Context, _ *cache.Reflector, err error) {
				if !isRestart(err) {
					o.OnReadError(ctx, reader.resource, err)
				}
			}))
	}
	return s
}

// KeyOf returns the key of an object, be it whole or trimmed by a cache.
func KeyOf(object klog.KMetadata) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// in returns the informer of a namespace, nil if that is not watched.
func (s *Store[T]) in(namespace string) *watched[T] {
	if all := s.watched[metav1.NamespaceAll]; all != nil {
		return all
	}
	return s.watched[namespace]
}

// Get returns an object, nil if there is none. The namespace is empty for cluster-wide objects.
func (s *Store[T]) Get(namespace, name string) (obj T) {
	informer := s.in(namespace)
	if informer == nil {
		return obj
	}
	// GetByKey never fails.
	found, exists, _ := informer.GetStore().GetByKey(cache.NewObjectName(namespace, name).String())
	if exists {
		obj = found.(T)
	}
	return obj
}

// All returns all objects, in no order.
func (s *Store[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, informer := range s.watched {
			for _, obj := range informer.GetStore().List() {
				if !yield(obj.(T)) {
					return
				}
			}
		}
	}
}

// Keys returns the keys of all objects, in no order.
func (s *Store[T]) Keys() iter.Seq[types.NamespacedName] {
	return func(yield func(types.NamespacedName) bool) {
		for obj := range s.All() {
			if !yield(KeyOf(obj)) {
				return
			}
		}
	}
}

// indexed returns the objects of a namespace with a key in the index, in no order. The answer is exactly as new as the
// cache.
func (s *Store[T]) indexed(namespace, key string) (objs []T) {
	if informer := s.in(namespace); informer != nil {
		objs, _ = informer.GetTypedIndexer().ByTypedIndex(keyIndex, namespace+"/"+key) // It exists.
	}
	return objs
}

// byName returns the same objects by name.
func (s *Store[T]) byName(namespace, key string) map[string]T {
	objs := s.indexed(namespace, key)
	byName := make(map[string]T, len(objs))
	for _, obj := range objs {
		byName[obj.GetName()] = obj
	}
	return byName
}

// Indexer returns the cache of a namespace, for tests that fill it without an API server.
func (s *Store[T]) Indexer(namespace string) cache.Indexer {
	return s.in(namespace).GetIndexer()
}

// lastSyncedVersion returns the resource version up to which the cache has observed a namespace.
func (s *Store[T]) lastSyncedVersion(namespace string) string {
	if informer := s.in(namespace); informer != nil {
		return informer.GetStore().LastStoreSyncResourceVersion()
	}
	return ""
}

// isSame reports whether two states of an object differ only in the resource version.
func isSame[T any, Object interface {
	*T
	SetResourceVersion(version string)
	GetResourceVersion() string
}](before, after Object) bool {
	same := Object(new(*before))
	same.SetResourceVersion(after.GetResourceVersion())
	return apiequality.Semantic.DeepEqual(same, after)
}

// OnChange calls changed after each change of an object: before is nil if it is new, after is nil if it is gone. Changes
// that affect no kept field are left out: heartbeats must not cause work. changed must not block.
func (s *Store[T]) OnChange(changed func(before, after T)) {
	var none T
	handler := cache.TypedResourceEventHandlerFuncs[T]{
		AddFunc: func(obj T) { changed(none, obj) },
		UpdateFunc: func(before, after T) {
			if s.isSame == nil || !s.isSame(before, after) {
				changed(before, after)
			}
		},
		DeleteFunc: func(obj cache.DeletedObject[T]) { changed(obj.OptionalObj, none) },
	}
	for _, w := range s.watched {
		registration, err := w.AddTypedEventHandler(handler)
		utilruntime.Must(err) // An informer takes handlers until it has stopped.
		w.synced = append(w.synced, registration.HasSynced)
	}
}

func (s *Store[T]) run(ctx context.Context) {
	var running sync.WaitGroup
	for _, w := range s.watched {
		running.Go(func() { w.RunWithContext(ctx) })
	}
	running.Wait()
}

// HasSynced reports whether the handlers have seen all objects of a namespace that existed when the watch began.
func (s *Store[T]) HasSynced(namespace string) bool {
	w := s.in(namespace)
	return w == nil || !slices.ContainsFunc(w.synced, func(synced cache.InformerSynced) bool { return !synced() })
}
