package cache

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// maxWritten is how many LocalServices are remembered as they were written: what is lost is written again, which
// changes nothing.
const maxWritten = 1000

// LocalServices is the cache of LocalServices, ahead of its watch by what was written last.
type LocalServices struct {
	*Store[v1alpha1.LocalService]
	written   byNamespace[cache.MutationCache]
	writtenAt *utilcache.LRUExpireCache // time.Time, by key
}

// NewLocalServiceInformer makes informers of LocalServices as they are stored: a typed client could read none of them
// any more if one did not fit the type, as when the CustomResourceDefinition is an older one, or edited. Every resync,
// 0 for never, they are told as changed although they are not.
func NewLocalServiceInformer(client dynamic.Interface,
	resync time.Duration) func(namespace string) cache.SharedIndexInformer {
	return func(namespace string) cache.SharedIndexInformer {
		return dynamicinformer.NewFilteredDynamicInformer(client,
			v1alpha1.SchemeGroupVersion.WithResource("localservices"), namespace, resync, cache.Indexers{}, nil).Informer()
	}
}

// readLocalService makes a LocalService of a stored object. What does not fit is left out, and marked.
func readLocalService(object runtime.Object) (*v1alpha1.LocalService, error) {
	ls, isRead := object.(*v1alpha1.LocalService)
	if !isRead {
		stored, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		if ls, err = decodeLocalService(stored); err != nil {
			return nil, err
		}
	}
	ls.ManagedFields = nil
	return ls, nil
}

func decodeLocalService(stored map[string]any) (*v1alpha1.LocalService, error) {
	var problem error
	for _, without := range [][]string{nil, {"status"}, {"spec"}, {"spec", "status"}} {
		fields := maps.Clone(stored)
		for _, name := range without {
			delete(fields, name)
		}
		ls, err := decode(fields)
		if err == nil {
			if slices.Contains(without, "spec") {
				plan.MarkUnreadable(ls, problem)
			}
			return ls, nil
		}
		problem = cmp.Or(problem, err)
	}
	return nil, problem
}

// decode decodes as a typed client would: the converter cuts off numbers that do not fit, and names no field.
func decode(fields map[string]any) (*v1alpha1.LocalService, error) {
	encoded, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	ls := &v1alpha1.LocalService{}
	return ls, json.Unmarshal(encoded, ls)
}

func newLocalServices(store *Store[v1alpha1.LocalService]) *LocalServices {
	written := byNamespace[cache.MutationCache]{}
	for namespace, informer := range store.informers {
		written[namespace] = cache.NewIntegerResourceVersionMutationCacheWithOptions(klog.Background(),
			informer.GetStore(), cache.MutationCacheOptions{TTL: EchoTimeout, MaxCacheSize: maxWritten})
	}
	return &LocalServices{Store: store, written: written, writtenAt: utilcache.NewLRUExpireCache(maxWritten)}
}

// Get returns a LocalService, as the watch told it or as it was written, whichever is newer; nil if there is none.
func (s *LocalServices) Get(namespace, name string) *v1alpha1.LocalService {
	written := s.written.of(namespace)
	if written == nil {
		return nil
	}
	if obj, exists, _ := written.GetByKey(namespace + "/" + name); exists {
		return obj.(*v1alpha1.LocalService)
	}
	return nil
}

// Wrote takes in what the API server answered to a write.
func (s *LocalServices) Wrote(ls *v1alpha1.LocalService) {
	ls.ManagedFields = nil
	s.written.of(ls.Namespace).Mutation(ls)
	s.Store.Wrote(ls)
	s.writtenAt.Add(ls.Namespace+"/"+ls.Name, time.Now(), EchoTimeout)
}

// IsEcho reports whether a change of a LocalService is what was written last. A watch that was broken tells a change of
// somebody else together with our own, if that came later: this is none.
func (s *LocalServices) IsEcho(before, after *v1alpha1.LocalService) bool {
	return s.Store.IsEcho(after) && SameSpec(before, after)
}

// SameSpec reports whether two states of a LocalService ask for the same. before is nil if it is new.
func SameSpec(before, after *v1alpha1.LocalService) bool {
	return before != nil && before.UID == after.UID && before.Generation == after.Generation &&
		before.DeletionTimestamp.Equal(after.DeletionTimestamp) && maps.Equal(before.Annotations, after.Annotations)
}

// SinceWrite returns how long ago a LocalService was written, a long time if that is not known.
func (s *LocalServices) SinceWrite(ls *v1alpha1.LocalService) time.Duration {
	at, _ := s.writtenAt.Get(ls.Namespace + "/" + ls.Name)
	written, _ := at.(time.Time)
	return time.Since(written)
}
