package reconcile

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// fairQueue holds the waiting keys of each tenant, which is a namespace, in the order of their arrival. The tenants
// take turns: behind a tenant with thousands of keys, the others wait for only one of these at a time. No tenant gets
// all workers, however long its keys take: once it has its share, its other keys wait until one is done. fairQueue
// implements workqueue.Queue.
type fairQueue struct {
	share   int // How many keys of a tenant may be under way. It is set before a key is added.
	mu      sync.Mutex
	running map[string]int                    // By tenant; never 0.
	waiting map[string][]types.NamespacedName // By tenant; never empty.
	turns   []string                          // The tenants of which a key may be taken out.
	ready   int                               // How many keys may be taken out, of all tenants.
}

func newFairQueue() *fairQueue {
	return &fairQueue{running: map[string]int{}, waiting: map[string][]types.NamespacedName{}}
}

// isAwaited reports whether other keys wait for a worker, or for a key of the tenant to be done.
func (q *fairQueue) isAwaited(tenant string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ready > 0 || len(q.waiting[tenant]) > 0
}

// free returns how many keys of a tenant may be taken out.
func (q *fairQueue) free(tenant string) int {
	return min(len(q.waiting[tenant]), q.share-q.running[tenant])
}

// update makes a change that affects one tenant. Its cost does not depend on the number of tenants.
func (q *fairQueue) update(tenant string, change func()) {
	before := q.free(tenant)
	change()
	after := q.free(tenant)
	q.ready += after - before
	if before == 0 && after > 0 {
		q.turns = append(q.turns, tenant)
	}
}

// Touch does nothing: a key that is added again keeps its place.
func (q *fairQueue) Touch(types.NamespacedName) {}

// Push adds a key.
func (q *fairQueue) Push(key types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.update(key.Namespace, func() { q.waiting[key.Namespace] = append(q.waiting[key.Namespace], key) })
}

// Len returns the number of keys that wait for a worker, and not for other keys of their tenant.
func (q *fairQueue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ready
}

// Pop takes out the first key of the tenant whose turn it is. Len must not be 0. The key is under way until done is
// called.
func (q *fairQueue) Pop() types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	tenant := q.turns[0]
	q.turns = q.turns[1:]
	keys := q.waiting[tenant]
	q.update(tenant, func() {
		q.running[tenant]++
		if q.waiting[tenant] = keys[1:]; len(keys) == 1 {
			delete(q.waiting, tenant)
		}
	})
	if q.free(tenant) > 0 {
		q.turns = append(q.turns, tenant)
	}
	return keys[0]
}

// done makes room for another key of the same tenant. It wakes no worker, because its caller can take that key.
func (q *fairQueue) done(key types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.update(key.Namespace, func() {
		if q.running[key.Namespace]--; q.running[key.Namespace] == 0 {
			delete(q.running, key.Namespace)
		}
	})
}
