// Package reconcile is the one worker loop of the controllers: a queue of keys, workers, retries with backoff, panics,
// and a clean stop.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// A key that fails is tried again after minBackoff, and after twice as long each time, up to maxBackoff. That is
	// short, because no event says that an outage of the API server is over.
	minBackoff, maxBackoff = 5 * time.Millisecond, 5 * time.Second
	// MaxBackoff is the longest time until anything is tried again that was refused, or panicked.
	MaxBackoff = 2 * time.Minute
)

// Func reconciles the object of a key. Two workers never call it for one key at the same time. Its error says what was
// attempted on which object: the loop logs it and calls again later; see Stale and Wait for when.
type Func func(ctx context.Context, key types.NamespacedName) error

// Loop calls a Func for every key that is added.
type Loop struct {
	name      string
	reconcile Func
	fair      *fairQueue
	queue     workqueue.TypedRateLimitingInterface[types.NamespacedName]
	running   atomic.Bool
}

// New makes a loop. Its name is that of the queue in metrics and logs. The keys of different namespaces take turns, and
// no namespace gets all workers.
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

// AllIn returns the key that stands for all objects of a namespace, or of all namespaces. A handler adds it rather than
// thousands of keys: handlers see the events of all tenants one after the other, so that they must do no work that grows
// with the objects of one.
func AllIn(namespace string) types.NamespacedName { return types.NamespacedName{Namespace: namespace} }

// IsAll reports whether a key stands for all objects of a namespace. No object has such a key.
func IsAll(key types.NamespacedName) bool { return key.Name == "" }

// Add enqueues a key. A key that is already waiting is not added twice. Before Run it does nothing, because Run begins
// with all keys: the queue of an instance that does not lead must not fill up.
func (l *Loop) Add(key types.NamespacedName) { l.AddAfter(key, 0) }

// AddAfter enqueues a key after a delay. Of several delays, the shortest counts. Before Run it does nothing.
func (l *Loop) AddAfter(key types.NamespacedName, delay time.Duration) {
	if l.running.Load() {
		l.queue.AddAfter(key, delay)
	}
}

// IsAwaited reports whether other keys wait until this one, which is being reconciled, is done.
func (l *Loop) IsAwaited(key types.NamespacedName) bool { return l.fair.isAwaited(key.Namespace) }

// Run reconciles all keys, and then those that are added, until ctx is done. A number of workers is what one namespace
// may have; there are a third more for the others. It returns when all workers have stopped: they finish keys under
// way, and do not begin waiting ones.
func (l *Loop) Run(ctx context.Context, workers int, all iter.Seq[types.NamespacedName]) {
	l.fair.setShare(max(workers, 1))
	workers += (workers + 2) / 3
	l.running.Store(true) // Before the keys are listed, so that none added meanwhile is lost.
	for key := range all {
		l.queue.Add(key)
	}
	logger := klog.FromContext(ctx).WithValues("queue", l.name)
	ctx = klog.NewContext(ctx, logger)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for l.processNext(ctx) {
			}
		})
	}
	logger.V(2).Info("Workers started", "workers", workers)
	<-ctx.Done()
	l.queue.ShutDown()
	running.Wait()
	logger.V(2).Info("Workers stopped")
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
	l.handle(ctx, key, l.reconcile(ctx, key))
	return true
}

func (l *Loop) handle(ctx context.Context, key types.NamespacedName, err error) {
	logger := klog.FromContext(ctx)
	var wait *waitError
	switch {
	case err == nil:
		l.queue.Forget(key)
	case errors.As(err, &wait):
		l.queue.AddAfter(key, wait.after)
		logger.V(5).Info("Waiting", "key", key, "reason", err.Error(), "after", wait.after)
	case IsStale(err):
		l.queue.AddRateLimited(key)
		logger.V(4).Info("Trying again with a newer cache", "key", key, "reason", err.Error())
	case ctx.Err() != nil:
		logger.V(2).Info("Left undone on shutdown", "key", key, "reason", err.Error())
	default:
		l.queue.AddRateLimited(key)
		failures := l.queue.NumRequeues(key)
		if bits.OnesCount(uint(failures)) > 1 { // An error of the 1st, 2nd, 4th, 8th ... failure in a row is enough.
			logger.V(4).Info("Trying again", "key", key, "failures", failures, "reason", err.Error())
			return
		}
		logger.Error(err, "Trying again", "key", key, "failures", failures)
	}
}

type waitError struct{ after time.Duration }

func (e *waitError) Error() string { return "the caches have not observed what was written last" }

// Wait is the error of a Func that did nothing, because a cache has not observed what the Func last wrote. The key is
// tried again after a time. That is no failure: however often events call the Func meanwhile, it does not lengthen the
// backoff, and neither does it end one.
func Wait(after time.Duration) error { return &waitError{after} }

type staleError struct{ error }

func (e *staleError) Unwrap() error { return e.error }

// IsStale reports whether an error is, or wraps, one that is Stale. Of several errors, all must be.
func IsStale(err error) bool {
	switch err := err.(type) { //nolint:errorlint // It unwraps the error itself.
	case *staleError:
		return true
	case interface{ Unwrap() error }:
		return IsStale(err.Unwrap())
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(err.Unwrap(), func(err error) bool { return !IsStale(err) })
	}
	return false
}

// Stale marks an error that comes from a cache that lags behind the API server. The key is tried again with the backoff
// of errors, which begins with a few milliseconds, but the error is not worth an operator's attention.
func Stale(err error) error { return &staleError{err} }
