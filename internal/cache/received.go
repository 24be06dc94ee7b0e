package cache

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// received records when the API server last sent anything for one cache: an event, a bookmark, a part of a list. Only
// the transport sees all of them. The resource version of a store does not show this: bookmarks arrive every minute,
// but at rest their version stays the same until etcd reports progress, by default every 10 minutes.
type received struct{ nanoseconds atomic.Int64 }

// at returns the zero time until something has arrived.
func (r *received) at() time.Time {
	if n := r.nanoseconds.Load(); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

type receivedKey struct{}

// in returns a context whose requests record when something arrives.
func (r *received) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, receivedKey{}, r)
}

// RecordResponse records when parts of a response arrive, if the request is that of a cache. The clients' transport
// calls it for each response. Refusals do not count, because they say nothing about the cluster.
func RecordResponse(request *http.Request, response *http.Response) {
	if r, ok := request.Context().Value(receivedKey{}).(*received); ok && response.StatusCode < http.StatusBadRequest {
		response.Body = &recordingBody{response.Body, r}
	}
}

// recordingBody is the body of a response that records when parts of it are read.
type recordingBody struct {
	io.ReadCloser
	received *received
}

func (b *recordingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.received.nanoseconds.Store(time.Now().UnixNano())
	}
	return n, err
}

// LastReceived returns when the API server last sent anything for the cache of each resource. Of the two watches of
// EndpointSlices, the earlier time counts. The result lacks a resource for which nothing has arrived yet,
// or that is not watched.
func (c *Caches) LastReceived() map[string]time.Time {
	last := map[string]time.Time{}
	for _, store := range c.all() {
		resource, at := store.lastReceived()
		if before, known := last[resource]; !known || at.Before(before) {
			last[resource] = at
		}
	}
	for resource, at := range last {
		if at.IsZero() {
			delete(last, resource)
		}
	}
	return last
}
