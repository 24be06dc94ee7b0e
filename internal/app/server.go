package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

// electionTolerance is how long after the Lease's end a leader that still thinks it leads counts as unhealthy.
const electionTolerance = 20 * time.Second

// server answers /healthz (the program is alive, and holds the Lease if it thinks it does), /readyz (its caches are
// filled) and /metrics.
type server struct {
	address        string
	electionHealth *leaderelection.HealthzAdaptor
	ready          atomic.Bool
	http           http.Server
}

// startServer serves on an address, "" for none; with profiling also /debug/pprof.
func startServer(ctx context.Context, address string, profiling bool) (*server, error) {
	s := &server{electionHealth: leaderelection.NewLeaderHealthzAdaptor(electionTolerance)}
	if address == "" {
		return s, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve /healthz, /readyz and /metrics: %w; choose another address with "+
			"-http-address, or none with -http-address=", err)
	}
	s.address = listener.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		answer(w, s.electionHealth.Check(r))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if s.ready.Load() {
			answer(w, nil)
		} else {
			answer(w, errors.New("the caches are not filled yet: see the log for what is waited for"))
		}
	})
	mux.Handle("GET /metrics", legacyregistry.HandlerWithReset())
	if profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	s.http = http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Cannot serve any more", "address", s.address)
		}
	}()
	return s, nil
}

func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (s *server) setReady() { s.ready.Store(true) }

func (s *server) stop() {
	// Nobody waits for an answer of a program that ends.
	_ = s.http.Close()
}
