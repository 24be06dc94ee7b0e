package cache

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	// A list or watch that fails is tried again after minRetry, and later after up to maxRetry. A reflector would wait
	// up to a minute: after an outage, names would be wrong that long.
	minRetry, maxRetry = 500 * time.Millisecond, 4 * time.Second
	retryJitter        = 0.25
	// reportAfter is how long a list or watch fails before that is reported. For about a second after an API server has
	// started, its RBAC knows no roles and refuses every request.
	reportAfter = 10 * time.Second
	// streamTimeout is how long a streamed list may take. Some proxies drop the bookmark that ends it.
	streamTimeout = 30 * time.Second
)

// Reader lists and watches one resource for the reflector of its cache, and tries again what fails.
type Reader struct {
	list           func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch          func(context.Context, metav1.ListOptions) (watch.Interface, error)
	client         any // which may say that it cannot stream lists
	labels, fields string
	resync         time.Duration // after which all objects are reported as changed, 0 for never

	resource  string // for messages
	onError   func(ctx context.Context, resource string, err error)
	onRestore func(error)
}

// NewReader makes a Reader from the methods of a client.
func NewReader[L runtime.Object](client any, list func(context.Context, metav1.ListOptions) (L, error),
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)) Reader {
	return Reader{client: client, watch: watch,
		list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return list(ctx, options)
		}}
}

// selecting returns a Reader of only some objects.
func (r Reader) selecting(labels, fields string) Reader {
	r.labels, r.fields = labels, fields
	return r
}

func (r *Reader) listerWatcher() cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (list runtime.Object, err error) {
			options.LabelSelector, options.FieldSelector = r.labels, r.fields
			err = r.persist(ctx, func() (err error) {
				list, err = r.list(ctx, options)
				return err
			})
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (w watch.Interface, err error) {
			options.LabelSelector, options.FieldSelector = r.labels, r.fields
			err = r.persist(ctx, func() (err error) {
				if err = r.checkRevision(ctx, options.ResourceVersion); err == nil {
					w, err = r.watch(ctx, options)
				}
				return err
			})
			if err == nil && ptr.Deref(options.SendInitialEvents, false) {
				w = r.streamed(ctx, w)
			}
			return w, err
		},
	}, r.client)
}

// streamed returns the events of a watch that begins with a list. If the list does not end, an error follows: then the
// reflector lists.
func (r *Reader) streamed(ctx context.Context, w watch.Interface) watch.Interface {
	events := make(chan watch.Event)
	streamed := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer w.Stop()
		timeout := time.After(streamTimeout)
		for isOpen := true; isOpen; {
			var event watch.Event
			select {
			case event, isOpen = <-w.ResultChan():
			case <-timeout:
				isOpen = false
			case <-streamed.StopChan():
				return
			}
			switch {
			case !isOpen && (timeout == nil || ctx.Err() != nil):
				return
			case !isOpen:
				klog.FromContext(ctx).Info("A streamed list broke off, so that the resource is listed. If this recurs, a proxy "+
					"drops bookmarks: set KUBE_FEATURE_WatchListClient=false", "resource", r.resource)
				brokeOff := apierrors.NewTimeoutError("the streamed list broke off", 0).ErrStatus
				event = watch.Event{Type: watch.Error, Object: &brokeOff}
			case isListEnd(event):
				timeout = nil
			}
			select {
			case events <- event:
			case <-streamed.StopChan():
				return
			}
		}
	}()
	return streamed
}

// isListEnd reports whether an event ends a streamed list.
func isListEnd(event watch.Event) bool {
	if event.Type != watch.Bookmark {
		return false
	}
	bookmark, err := meta.Accessor(event.Object)
	return err == nil && bookmark.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// persist calls try until it succeeds, ctx is done, or the reflector has to do something else than to try again.
func (r *Reader) persist(ctx context.Context, try func() error) error {
	var since time.Time // when it began to fail for the last reason
	last, reported := metav1.StatusReason("none"), false
	backoff := wait.Backoff{Duration: minRetry, Factor: 2, Jitter: retryJitter, Cap: maxRetry, Steps: 10}
	for {
		err := try()
		if err == nil && reported {
			r.onError(ctx, r.resource, nil)
		}
		if err == nil || ctx.Err() != nil || !isTransient(err) {
			return err
		}
		// An outage ends with RBAC that knows no roles yet.
		if reason := apierrors.ReasonForError(err); reason != last {
			last, since = reason, time.Now()
		}
		if time.Since(since) >= reportAfter {
			r.onError(ctx, r.resource, err)
			reported = true
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(backoff.Step()):
		}
	}
}

// isTransient reports whether the same request may succeed later. A reflector handles the other errors: it lists anew if
// the resource version has expired or is too new, and does not stream if the API server cannot. A status code has no
// meaning without a Status: a load balancer may answer anything during an outage.
func isTransient(err error) bool {
	isHandled := apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) ||
		apierrors.IsBadRequest(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
	return !isHandled || apierrors.IsUnexpectedServerError(err)
}

// isRestart reports whether an error ends a watch that the reflector begins anew.
func isRestart(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || utilnet.IsProbableEOF(err) ||
		errors.Is(err, context.Canceled)
}

// checkRevision compares the revision that a watch begins at, which was read before, with the one that etcd has now. If
// that is lower, etcd was restored from a backup: the API server would send no event until it has caught up, and none
// of what the backup lacks. Then checkRevision calls onRestore, and keeps the watch from beginning.
func (r *Reader) checkRevision(ctx context.Context, read string) error {
	if read == "" || read == "0" {
		return nil // The watch begins with what there is now.
	}
	// Without selectors: with them, etcd may have to look through all objects to find one.
	list, err := r.list(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	now, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("read the revision of %s: %w", r.resource, err)
	}
	if isLater(read, now.GetResourceVersion()) {
		r.onRestore(fmt.Errorf("the cluster's data is older than what was read before: etcd was restored from a "+
			"backup (%s: revision %s now, %s before); this instance stops, so that it is restarted and reads "+
			"everything anew", r.resource, now.GetResourceVersion(), read))
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}
