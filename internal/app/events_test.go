package app

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestEventsAtAStop: an event that is being written when the program stops is finished, and not reported as an error.
func TestEventsAtAStop(t *testing.T) {
	begun, stopped, finished := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://example.com", Transport: roundTripper(
		func(r *http.Request) (*http.Response, error) {
			close(begun)
			<-stopped
			finished <- r.Context().Err()
			// An answer that cannot be decoded would be a reason to write the event again.
			return &http.Response{StatusCode: http.StatusCreated, Request: r,
				Header: http.Header{"Content-Type": {"application/json"}},
				Body:   io.NopCloser(strings.NewReader(`{"kind":"Event","apiVersion":"events.k8s.io/v1"}`))}, nil
		})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	recorder, stop, err := newRecorder(ctx, kube)
	if err != nil {
		t.Fatal(err)
	}
	RecordTo(recorder)(objects.LocalService(), corev1.EventTypeNormal, "Reason", "note")
	<-begun
	cancel()
	stop()
	close(stopped)
	if err := <-finished; err != nil {
		t.Errorf("the request was cut off: %v", err)
	}
}
