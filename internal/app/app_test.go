package app

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestClientsAreNotThrottled: no client limits its own rate, however many requests it makes.
func TestClientsAreNotThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		server := roundTripper(func(r *http.Request) (*http.Response, error) {
			requests++
			return &http.Response{StatusCode: http.StatusNotFound, Request: r, Body: http.NoBody}, nil
		})
		deps, err := NewDependencies(&rest.Config{Host: "http://example.com", Transport: server}, &Options{},
			nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, get, nodes := t.Context(), metav1.GetOptions{}, corev1.SchemeGroupVersion.WithResource("nodes")
		began := time.Now() // of the bubble
		for range 1000 {
			_, _ = deps.Kube.CoreV1().Services("default").Get(ctx, "x", get)
			_, _ = deps.Metadata.Resource(nodes).Get(ctx, "x", get)
			_, _ = deps.Dynamic.Resource(nodes).Get(ctx, "x", get)
		}
		if waited := time.Since(began); waited > 0 || requests != 3000 {
			t.Errorf("%d requests, after %s of waiting", requests, waited)
		}
	})
}

// TestResponsesAreNotCompressed: the API server is not asked to compress what it sends, as Go's client does by itself.
func TestResponsesAreNotCompressed(t *testing.T) {
	accepted := make(chan string, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		accepted <- r.Header.Get("Accept-Encoding")
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	deps, err := NewDependencies(config, &Options{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = deps.Kube.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{})
	if encoding := <-accepted; strings.Contains(encoding, "gzip") {
		t.Errorf("the client accepts the encoding %q", encoding)
	}
}
