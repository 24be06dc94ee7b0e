package cache

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

const (
	// ObservedTimeout limits how long a sync waits for the cache to observe a write, which it may never do: the watch
	// of another API server may lag, or break.
	ObservedTimeout = time.Minute
	// StatusTimeout limits how long the next status waits for the last one, on which nothing else depends. Writes are
	// remembered as long.
	StatusTimeout = 5 * time.Minute
	// A sync that waits looks again after minWait, and later after half of the time that it has waited, up to maxWait.
	minWait, maxWait = 5 * time.Millisecond, time.Second
	// Beyond maxWrites keys, some are forgotten. Their next sync may repeat a write, which then ends in a conflict.
	maxWrites = 10000
)

// Observed remembers the last write of each key, so that a sync can wait until the caches have observed it. It follows
// the model of Kubernetes' pkg/controller/util/consistency. Deletions need no record: repeating one costs a 404. The
// time of the last write of a status also limits how often its numbers are written.
type Observed struct {
	mu     sync.Mutex
	writes *utilcache.LRUExpireCache // map[lastSynced]write, by key; the maps are never changed
}

// lastSynced reports for a store up to which resource version it has observed its resource.
type lastSynced interface {
	lastSyncedVersion(namespace string) string
}

// write records the last write of a key to one resource.
type write struct {
	resourceVersion string
	at              time.Time
}

// NewObserved makes an Observed without writes.
func NewObserved() *Observed { return &Observed{writes: utilcache.NewLRUExpireCache(maxWrites)} }

// Wrote records that the sync of a key wrote an object of a store's resource.
func (o *Observed) Wrote(key types.NamespacedName, store lastSynced, resourceVersion string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	writes := map[lastSynced]write{store: {resourceVersion, time.Now()}}
	for other, last := range o.of(key) {
		if other != store || isLater(last.resourceVersion, resourceVersion) {
			writes[other] = last
		}
	}
	o.writes.Add(key, writes, StatusTimeout)
}

// Wait returns 0 if a cache has observed what the syncs of a key wrote of its resource, or if that was too long ago, or
// else after how long to look again. That follows from the time of the write alone: however often events call the sync
// meanwhile, it does not wait longer.
func (o *Observed) Wait(key types.NamespacedName, store lastSynced, timeout time.Duration) time.Duration {
	last, isKnown := o.of(key)[store]
	waited := time.Since(last.at)
	if !isKnown || waited > timeout || !isLater(last.resourceVersion, store.lastSyncedVersion(key.Namespace)) {
		return 0
	}
	return min(max(waited/2, minWait), maxWait)
}

// SinceWrite returns how long ago the sync of a key wrote an object of a store's resource, a long time if that is not
// known.
func (o *Observed) SinceWrite(key types.NamespacedName, store lastSynced) time.Duration {
	return time.Since(o.of(key)[store].at)
}

// Forget forgets the writes of a key whose object is gone.
func (o *Observed) Forget(key types.NamespacedName) { o.writes.Remove(key) }

func (o *Observed) of(key types.NamespacedName) map[lastSynced]write {
	known, _ := o.writes.Get(key)
	writes, _ := known.(map[lastSynced]write)
	return writes
}

// isLater reports whether a resource version is later than another one. If they cannot be compared, it is not.
func isLater(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order > 0
}
