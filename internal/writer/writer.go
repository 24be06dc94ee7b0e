// Package writer carries out plans. It makes many writes at a time, within one limit for all LocalServices, and
// reports the outcome of each.
package writer

import (
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/localservice-dev/local-service-controller/internal/cache"
)

// Timeout limits one change, which may take several requests. A shutdown does not cancel a request that was sent.
const Timeout = 30 * time.Second

// Shared holds what the writers of an instance share.
type Shared struct {
	Kube     kubernetes.Interface
	Dynamic  dynamic.Interface // for LocalServices, which may not fit their type
	Metadata metadata.Interface
	Caches   *cache.Caches
	Pool     *Pool // of the writes of Services
	// Record records an event.
	Record func(regarding runtime.Object, eventType, reason, note string)
	// Shuffle randomizes the order of writes. It is rand.Shuffle, or a reproducible one in simulations.
	Shuffle func(n int, swap func(i, j int))
}

// Writer makes the writes of one controller.
type Writer struct {
	*Shared
	Observed *cache.Observed
	Refusals *Refusals
}

// New makes the Writer of a controller. Controllers whose refusals one status reports share these.
func New(shared *Shared, refusals *Refusals) *Writer {
	return &Writer{shared, cache.NewObserved(), refusals}
}

// Pool limits the writes under way. Each batch may always run one write. Every further write takes a token from the Pool
// for as long as it runs. So a batch whose writes hang slows others down, but never stops them.
type Pool struct {
	tokens *semaphore.Weighted
	size   int
}

// NewPool makes a Pool with a number of tokens.
func NewPool(size int) *Pool { return &Pool{semaphore.NewWeighted(int64(size)), size} }
