// Package reconcile runs the worker loop of the controllers: a queue of keys, workers, retries with backoff, recovery
// from panics, and a clean stop.
package reconcile

import (
	"context"
	"fmt"
	"iter"
	"math/bits"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// minBackoff delays the first retry of a failed key. The delay doubles with each failure, up to maxBackoff. That
	// is short, because no event reports that an outage of the API server is over.
	minBackoff, maxBackoff = 5 * time.Millisecond, 5 * time.Second
	// lasting is the number of failures in a row from which on they are errors in the log: after one to two seconds. Until
	// then, a cache may lag behind the API server, or an API server may be restarting.
	lasting = 8
	// BatchPeriod is the time for which events are batched before a sync.
	BatchPeriod = 100 * time.Millisecond
	// MaxBackoff is the longest delay before anything that was refused, or panicked, is retried.
	MaxBackoff = 2 * time.Minute
)

// Func reconciles the object of a key. Two workers never call it for one key at the same time. The loop calls it again
// after the time that it returns, and else when the key is added. After an error, which explains what was attempted on
// which object, it calls the Func again with a backoff. A Func that asks to be called again neither lengthens nor ends
// that backoff, however often events call it meanwhile.
type Func func(ctx context.Context, key types.NamespacedName) (again time.Duration, err error)

// AtOnce is the time after which a key is reconciled again that only gives way to others.
const AtOnce = time.Nanosecond

// Loop calls a Func for every key that is added.
type Loop struct {
	name      string
	reconcile Func
	fair      *fairQueue
	queue     workqueue.TypedRateLimitingInterface[types.NamespacedName]
	running   atomic.Bool
}

// New returns a Loop whose queue has a name in metrics and logs. The keys of different namespaces take turns, and no
// namespace gets all workers.
func New(name string, clk clock.WithTicker, reconcile Func) *Loop {
	fair := newFairQueue()
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{Name: name, Clock: clk,
		Queue: fair})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.NamespacedName]{
		Name: name, Clock: clk, Queue: queue})
	return &Loop{
		name:      name,
		reconcile: reconcile,
		fair:      fair,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](minBackoff, maxBackoff),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{DelayingQueue: delaying}),
	}
}

// AllIn returns the key that stands for all objects of a namespace, or of all namespaces. Handlers add it instead of
// thousands of keys: they process the events of all tenants one after the other, so the work of a handler must not
// grow with the objects of one tenant.
func AllIn(namespace string) types.NamespacedName { return types.NamespacedName{Namespace: namespace} }

// IsAll reports whether a key stands for all objects of a namespace. No object has such a key.
func IsAll(key types.NamespacedName) bool { return key.Name == "" }

// Add enqueues a key. A key that is already waiting is not added twice. Add does nothing before Run, because Run
// begins with all keys: the queue of an instance that does not lead must not fill up.
func (l *Loop) Add(key types.NamespacedName) { l.AddAfter(key, 0) }

// AddAfter enqueues a key after a delay. Of several delays, the shortest counts. AddAfter does nothing before Run.
func (l *Loop) AddAfter(key types.NamespacedName, delay time.Duration) {
	if l.running.Load() {
		l.queue.AddAfter(key, delay)
	}
}

// IsAwaited reports whether other keys wait until this one, which is being reconciled, is done.
func (l *Loop) IsAwaited(key types.NamespacedName) bool { return l.fair.isAwaited(key.Namespace) }

// Run reconciles all keys, and then those that are added, until ctx is done. A namespace gets up to the given number
// of workers; there are a third more for the others. Run returns when all workers have stopped: they finish the keys
// under way, and do not begin waiting ones.
func (l *Loop) Run(ctx context.Context, workers int, all iter.Seq[types.NamespacedName]) {
	l.fair.share = workers
	workers += (workers + 2) / 3
	l.running.Store(true) // Set it before listing the keys, so that no key added meanwhile is lost.
	for key := range all {
		l.queue.Add(key)
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("queue", l.name))
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for l.processNext(ctx) {
			}
		})
	}
	<-ctx.Done()
	l.queue.ShutDown()
	running.Wait()
}

func (l *Loop) processNext(ctx context.Context) (more bool) {
	key, shutdown := l.queue.Get()
	if shutdown {
		return false
	}
	defer l.queue.Done(key)
	defer l.fair.done(key)
	if ctx.Err() != nil {
		return true // Shutting down: let the queue drain.
	}
	defer func() {
		// One unforeseen object must not stop the work on all others.
		if r := recover(); r != nil {
			more = true
			err := fmt.Errorf("panic: %v\n%s", r, debug.Stack())
			klog.FromContext(ctx).Error(err, "Trying again", "key", key, "after", MaxBackoff)
			l.queue.AddAfter(key, MaxBackoff)
		}
	}()
	again, err := l.reconcile(ctx, key)
	l.requeue(ctx, key, again, err)
	return true
}

// requeue decides when a key that was reconciled is next.
func (l *Loop) requeue(ctx context.Context, key types.NamespacedName, again time.Duration, err error) {
	logger := klog.FromContext(ctx)
	switch {
	case err == nil && again > 0:
		l.queue.AddAfter(key, again)
	case err == nil:
		l.queue.Forget(key)
	case ctx.Err() != nil:
		logger.V(2).Info("Left undone on shutdown", "key", key, "reason", err.Error())
	default:
		l.queue.AddRateLimited(key)
		failures := l.queue.NumRequeues(key)
		if failures < lasting || bits.OnesCount(uint(failures)) > 1 { // After the 8th, log the 16th, 32nd ... in a row.
			logger.V(4).Info("Trying again", "key", key, "failures", failures, "reason", err.Error())
			return
		}
		logger.Error(err, "Trying again", "key", key, "failures", failures)
	}
}
