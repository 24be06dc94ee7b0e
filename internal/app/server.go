package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

// electionTolerance passes after a Lease expires, before a leader that still thinks it leads counts as unhealthy.
const electionTolerance = 20 * time.Second

const (
	// maxConnections bounds the connections to the address that anybody may reach: each takes memory.
	maxConnections = 100
	// maxPlainConnections bounds those to the address of probes. Each serves one request, which must arrive within
	// plainTimeout, and its response must be read within readTimeout.
	maxPlainConnections = 1000
	plainTimeout        = 2 * time.Second
	readTimeout         = 10 * time.Second
	writeTimeout        = time.Minute
)

// server serves /healthz (the program is alive, and holds the Lease if it thinks it does), /readyz (its caches are
// filled) and /metrics.
type server struct {
	address, metricsAddress string // "" for none; metricsAddress is of /metrics over TLS
	electionHealth          *leaderelection.HealthzAdaptor
	ready                   atomic.Bool
	running                 []*http.Server
}

// startServer serves at the addresses that the options name: with profiling also /debug/pprof.
func startServer(ctx context.Context, opts *Options, kube kubernetes.Interface) (*server, error) {
	s := &server{electionHealth: leaderelection.NewLeaderHealthzAdaptor(electionTolerance)}
	metrics := http.NewServeMux()
	metrics.Handle("GET /metrics", legacyregistry.HandlerWithReset())
	mux := http.NewServeMux()
	if opts.metricsSecureAddress == "" {
		mux = metrics
	} else if err := s.startSecure(ctx, opts, protect(metrics, kube)); err != nil {
		return nil, err
	}
	if opts.httpAddress == "" {
		return s, nil
	}
	listener, err := net.Listen("tcp", opts.httpAddress)
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("serve /healthz, /readyz and /metrics: %w; choose another address with "+
			"-http-address, or none with -http-address=", err)
	}
	s.address = listener.Addr().String()
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
	if opts.profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	plain := &http.Server{Handler: mux, ReadTimeout: plainTimeout, WriteTimeout: readTimeout, MaxHeaderBytes: 16 << 10}
	if opts.profiling {
		plain.WriteTimeout = writeTimeout // A profile takes 30 s.
	}
	plain.SetKeepAlivesEnabled(false)
	s.serve(ctx, netutil.LimitListener(listener, maxPlainConnections), plain)
	return s, nil
}

// startSecure serves /metrics over TLS. Anybody who can reach the address may try.
func (s *server) startSecure(ctx context.Context, opts *Options, handler http.Handler) error {
	get, err := selfSigned()
	if opts.metricsCertFile != "" {
		get, err = certificateFrom(opts.metricsCertFile, opts.metricsKeyFile)
	}
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", opts.metricsSecureAddress)
	if err != nil {
		return fmt.Errorf("serve /metrics over TLS: %w; choose another address with -metrics-secure-address", err)
	}
	s.metricsAddress = listener.Addr().String()
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: get}
	s.serve(ctx, tls.NewListener(netutil.LimitListener(listener, maxConnections), config), &http.Server{
		Handler: handler, ReadTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		// Failed handshakes are those of strangers, and not worth a log line.
		ErrorLog: log.New(io.Discard, "", 0)})
	return nil
}

func (s *server) serve(ctx context.Context, listener net.Listener, server *http.Server) {
	server.BaseContext = func(net.Listener) context.Context { return context.WithoutCancel(ctx) }
	s.running = append(s.running, server)
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Cannot serve any more", "address", listener.Addr())
		}
	}()
}

func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (s *server) stop() {
	for _, server := range s.running {
		// Nobody waits for the response of a program that stops.
		_ = server.Close()
	}
}
