package cache

import (
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// LocalServices is the cache of LocalServices, ahead of its watch by what was written last.
type LocalServices struct {
	*Store[v1alpha1.LocalService]
	written cache.MutationCache
}

func newLocalServices(store *Store[v1alpha1.LocalService]) *LocalServices {
	return &LocalServices{store, cache.NewIntegerResourceVersionMutationCacheWithOptions(klog.Background(),
		store.informer.GetStore(),
		cache.MutationCacheOptions{TTL: echoTimeout, MaxCacheSize: maxEchoes})}
}

// Get returns a LocalService, as the watch told it or as it was written, whichever is newer; nil if there is none.
func (s *LocalServices) Get(namespace, name string) *v1alpha1.LocalService {
	if obj, exists, _ := s.written.GetByKey(namespace + "/" + name); exists {
		return obj.(*v1alpha1.LocalService)
	}
	return nil
}

// Wrote takes in what the API server answered to a write.
func (s *LocalServices) Wrote(ls *v1alpha1.LocalService) {
	ls.ManagedFields = nil
	s.written.Mutation(ls)
	s.Store.Wrote(ls)
}
