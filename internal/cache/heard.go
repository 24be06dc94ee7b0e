package cache

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// heard records when the API server last sent anything for one cache: an event, a bookmark, a part of a list. Only the
// transport sees all of them. The resource version of a store does not show this: bookmarks arrive every minute, but at
// rest their version stays the same until etcd reports progress, by default every 10 minutes.
type heard struct{ nanoseconds atomic.Int64 }

// at returns the zero time until something has arrived.
func (h *heard) at() time.Time {
	if n := h.nanoseconds.Load(); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

type heardKey struct{}

// in returns a context whose requests record when something arrives.
func (h *heard) in(ctx context.Context) context.Context { return context.WithValue(ctx, heardKey{}, h) }

// Hear records when parts of a response arrive, if the request is that of a cache. The clients' transport calls it for
// each response. Refusals do not count, because they say nothing about the cluster.
func Hear(request *http.Request, response *http.Response) {
	if h, ok := request.Context().Value(heardKey{}).(*heard); ok && response.StatusCode < http.StatusBadRequest {
		response.Body = &hearing{response.Body, h}
	}
}

// hearing is the body of a response.
type hearing struct {
	io.ReadCloser
	heard *heard
}

func (h *hearing) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	if n > 0 {
		h.heard.nanoseconds.Store(time.Now().UnixNano())
	}
	return n, err
}

// LastHeard returns when the API server last sent anything for the cache of each resource. Of the two watches of
// EndpointSlices, the earlier time counts. A resource for which nothing has arrived yet, or that is not watched, is
// left out.
func (c *Caches) LastHeard() map[string]time.Time {
	last := map[string]time.Time{}
	for _, store := range c.all() {
		resource, at := store.lastHeard()
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
