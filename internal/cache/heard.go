package cache

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// heard is when the API server has sent something last for one cache: an event, a bookmark, a part of a list. Only the
// transport knows: informers do not report bookmarks, which are all that comes at rest.
type heard struct{ nanoseconds atomic.Int64 }

// at is the zero time until something has come.
func (h *heard) at() time.Time {
	if n := h.nanoseconds.Load(); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

type heardKey struct{}

// in returns a context whose requests record when something comes.
func (h *heard) in(ctx context.Context) context.Context { return context.WithValue(ctx, heardKey{}, h) }

// Hear records, for the cache that a request is made for, if it is for one, when something of the answer comes. The
// transport of clients calls it for each answer. A refusal says nothing about the cluster.
func Hear(request *http.Request, response *http.Response) {
	if h, ok := request.Context().Value(heardKey{}).(*heard); ok && response.StatusCode < http.StatusBadRequest {
		response.Body = &hearing{response.Body, h}
	}
}

// hearing is the body of an answer.
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

// LastHeard is when the API server has sent something for the cache of each resource. Of the two watches of
// EndpointSlices it is the one that is behind. A resource of which nothing has come yet, or that is not watched, is not
// there.
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
