package app

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// observe makes the clients of a configuration log once when the API server becomes unreachable, and once when it is
// reachable again: a watch that cannot be restarted reports nothing by itself. They also log each warning of the API
// server once in a while, rather than for each write of a fan-out.
func observe(config *rest.Config) {
	var state atomic.Int32
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &observer{next: next, host: config.Host, state: &state}
	})
	config.WarningHandlerWithContext = warnings{newComplaints()}
}

// The states of an API server. Before it is reached for the first time, preflight logs what is wrong.
const (
	notReachedYet int32 = iota
	reachable
	unreachable
)

type observer struct {
	next  http.RoundTripper
	host  string
	state *atomic.Int32
}

func (o *observer) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := o.next.RoundTrip(r)
	logger := klog.FromContext(r.Context())
	switch {
	case errors.Is(err, context.Canceled), r.Context().Err() != nil:
		// It says nothing about the API server.
	case err == nil && o.state.CompareAndSwap(notReachedYet, reachable):
	case err != nil && o.state.CompareAndSwap(reachable, unreachable):
		logger.Error(err, "The API server cannot be reached: the caches are stale until it can",
			"apiServer", o.host)
	case err == nil && o.state.CompareAndSwap(unreachable, reachable):
		logger.Info("The API server can be reached again", "apiServer", o.host)
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the transport inside.
func (o *observer) WrappedRoundTripper() http.RoundTripper { return o.next }

type warnings struct{ complaints }

// HandleWarningHeaderWithContext logs a warning that came with a response.
func (w warnings) HandleWarningHeaderWithContext(ctx context.Context, code int, _, text string) {
	const miscellaneous = 299 // the only code that Kubernetes uses
	if code == miscellaneous && text != "" && w.isNews(text, text) {
		klog.FromContext(ctx).Info("The API server warns: " + text)
	}
}
