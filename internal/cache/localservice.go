package cache

import (
	"maps"
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
	echoes  *utilcache.LRUExpireCache // what was written last, by key
}

// echo is a write of which the watch will tell.
type echo struct {
	resourceVersion string
	written         time.Time
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
	s.echoes.Add(ls.Namespace+"/"+ls.Name, echo{ls.ResourceVersion, time.Now()}, echoTimeout)
}

// IsEcho reports whether a change of a LocalService is what was written last. A watch that was broken tells a change of
// somebody else together with our own, if that came later: this is none.
func (s *LocalServices) IsEcho(before, after *v1alpha1.LocalService) bool {
	last, found := s.lastWrite(after)
	return found && last.resourceVersion == after.ResourceVersion && before != nil && before.UID == after.UID &&
		before.Generation == after.Generation && maps.Equal(before.Annotations, after.Annotations)
}

// SinceWrite is how long ago a LocalService was written, a long time if that is not known.
func (s *LocalServices) SinceWrite(ls *v1alpha1.LocalService) time.Duration {
	last, _ := s.lastWrite(ls)
	return time.Since(last.written)
}

func (s *LocalServices) lastWrite(ls *v1alpha1.LocalService) (last echo, found bool) {
	value, found := s.echoes.Get(ls.Namespace + "/" + ls.Name)
	if found {
		last = value.(echo)
	}
	return last, found
}
