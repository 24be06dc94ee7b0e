package cache

import (
	"maps"
	"time"

	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// maxWritten is how many LocalServices are remembered as they were written: what is lost is written again, which
// changes nothing.
const maxWritten = 1000

// LocalServices is the cache of LocalServices, ahead of its watch by what was written last.
type LocalServices struct {
	*Store[v1alpha1.LocalService]
	written   cache.MutationCache
	writtenAt *utilcache.LRUExpireCache // time.Time, by key
}

func newLocalServices(store *Store[v1alpha1.LocalService]) *LocalServices {
	return &LocalServices{
		Store: store,
		written: cache.NewIntegerResourceVersionMutationCacheWithOptions(klog.Background(), store.informer.GetStore(),
			cache.MutationCacheOptions{TTL: EchoTimeout, MaxCacheSize: maxWritten}),
		writtenAt: utilcache.NewLRUExpireCache(maxWritten),
	}
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
	s.writtenAt.Add(ls.Namespace+"/"+ls.Name, time.Now(), EchoTimeout)
}

// IsEcho reports whether a change of a LocalService is what was written last. A watch that was broken tells a change of
// somebody else together with our own, if that came later: this is none.
func (s *LocalServices) IsEcho(before, after *v1alpha1.LocalService) bool {
	return s.Store.IsEcho(after) && before != nil && before.UID == after.UID &&
		before.Generation == after.Generation && maps.Equal(before.Annotations, after.Annotations)
}

// SinceWrite returns how long ago a LocalService was written, a long time if that is not known.
func (s *LocalServices) SinceWrite(ls *v1alpha1.LocalService) time.Duration {
	at, _ := s.writtenAt.Get(ls.Namespace + "/" + ls.Name)
	written, _ := at.(time.Time)
	return time.Since(written)
}
