package reconcile

// fairQueue holds the keys that wait, for each tenant in the order in which they came. The tenants take turns: one with
// thousands of keys has the others wait for one of them at a time. It is a workqueue.Queue, which needs no locks.
type fairQueue[K comparable] struct {
	tenant  func(K) string
	waiting map[string][]K // by tenant; never empty
	turns   []string       // the tenants that have keys waiting
	count   int
}

func newFairQueue[K comparable](tenant func(K) string) *fairQueue[K] {
	return &fairQueue[K]{tenant: tenant, waiting: map[string][]K{}}
}

// Touch leaves a key that is added again where it is.
func (q *fairQueue[K]) Touch(K) {}

// Push adds a key.
func (q *fairQueue[K]) Push(key K) {
	tenant := q.tenant(key)
	if len(q.waiting[tenant]) == 0 {
		q.turns = append(q.turns, tenant)
	}
	q.waiting[tenant] = append(q.waiting[tenant], key)
	q.count++
}

// Len is the number of keys.
func (q *fairQueue[K]) Len() int { return q.count }

// Pop takes out the first key of the tenant whose turn it is. There must be one.
func (q *fairQueue[K]) Pop() K {
	tenant := q.turns[0]
	keys := q.waiting[tenant]
	q.turns = q.turns[1:]
	q.count--
	if len(keys) > 1 {
		q.waiting[tenant] = keys[1:]
		q.turns = append(q.turns, tenant)
	} else {
		delete(q.waiting, tenant)
	}
	return keys[0]
}
