package cache

import (
	"time"

	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// A status that was written is remembered for at most echoTimeout, of at most maxEchoes LocalServices: what is
	// lost is written again, which changes nothing.
	echoTimeout = time.Minute
	maxEchoes   = 1000
)

// LocalServices is the cache of LocalServices, ahead of its watch by what was written last.
type LocalServices struct {
	*Store[v1alpha1.LocalService]
	written cache.MutationCache
	echoes  *utilcache.LRUExpireCache // resource versions of what was written last, by key
}

func newLocalServices(store *Store[v1alpha1.LocalService]) *LocalServices {
	return &LocalServices{store, cache.NewIntegerResourceVersionMutationCacheWithOptions(klog.Background(),
		store.informer.GetStore(),
		cache.MutationCacheOptions{TTL: echoTimeout, MaxCacheSize: maxEchoes}), utilcache.NewLRUExpireCache(maxEchoes)}
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
	s.echoes.Add(ls.Namespace+"/"+ls.Name, ls.ResourceVersion, echoTimeout)
}

// IsEcho reports whether a LocalService that the watch has told is what was written last.
func (s *LocalServices) IsEcho(ls *v1alpha1.LocalService) bool {
	version, found := s.echoes.Get(ls.Namespace + "/" + ls.Name)
	return found && version == ls.ResourceVersion
}
