package view

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

//go:embed page
var page embed.FS

// securityHeaders limit the page to its own files: no content of other sites, and no display in their frames.
var securityHeaders = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
	"Cache-Control":                "no-store",
}

// Server serves the page, which holds nothing to protect, and its data to clients that have the token. That is in the
// fragment of the page's address, which browsers send to nobody, and which the page's script adds to its requests. A
// cookie would go to every port of 127.0.0.1, even to those of other users, and with requests of other sites' pages.
type Server struct {
	scope    Scope
	details  func(ctx context.Context, column, row string) *Details
	token    string
	listener net.Listener

	mu      sync.Mutex
	matrix  *Matrix
	changed chan struct{} // closed when there is a new matrix
}

// NewServer listens on a free port of 127.0.0.1. details returns what is known about one cell, nil if there is none.
func NewServer(scope Scope, details func(ctx context.Context, column, row string) *Details) (*Server, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen on a port of 127.0.0.1: %w", err)
	}
	return &Server{scope: scope, details: details, token: rand.Text(), listener: listener, matrix: &Matrix{},
		changed: make(chan struct{})}, nil
}

// URL returns the address of the page, with the token.
func (s *Server) URL() string { return fmt.Sprintf("http://%s/#%s", s.listener.Addr(), s.token) }

// Publish makes the page show a new matrix.
func (s *Server) Publish(m *Matrix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.matrix = m
	close(s.changed)
	s.changed = make(chan struct{})
}

// Run serves until ctx is done.
func (s *Server) Run(ctx context.Context) error {
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // The streams never end by themselves.
	if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the page at %s: %w", s.listener.Addr(), err)
	}
	return nil
}

// Handler answers the requests.
func (s *Server) Handler() http.Handler {
	files, _ := fs.Sub(page, "page") // The folder is in the binary.
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("GET /events", s.authorized(s.serveEvents))
	mux.HandleFunc("GET /cell", s.authorized(s.serveCell))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range securityHeaders {
			w.Header().Set(name, value)
		}
		// A foreign host name that resolves to this address may be an attack by DNS rebinding.
		if own := s.listener.Addr().String(); r.Host != own && r.Host != strings.Replace(own, "127.0.0.1", "localhost", 1) {
			http.Error(w, "ask for the address that kubectl localservice view has printed", http.StatusMisdirectedRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *Server) authorized(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.FormValue("token")), []byte(s.token)) != 1 {
			http.Error(w, "the token is missing or wrong: open the address that kubectl localservice view has printed",
				http.StatusForbidden)
			return
		}
		handle(w, r)
	}
}

// serveEvents sends the whole matrix, and then what changes. A slow reader misses only states in between.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	stream := http.NewResponseController(w)
	send := func(u Update) {
		data, _ := json.Marshal(u) // It has only types with a JSON form.
		fmt.Fprintf(w, "data: %s\n\n", data)
	}
	sent := &Matrix{}
	send(Update{Reset: &s.scope, Status: &Status{Problems: []string{}}})
	for {
		s.mu.Lock()
		matrix, changed := s.matrix, s.changed
		s.mu.Unlock()
		for _, update := range Updates(sent, matrix) {
			send(update)
		}
		sent = matrix
		if stream.Flush() != nil { // It reports what failed before, too.
			return // The page is closed.
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// serveCell sends all that is known about one cell: its Details.
func (s *Server) serveCell(w http.ResponseWriter, r *http.Request) {
	details := s.details(r.Context(), r.FormValue("column"), r.FormValue("row"))
	if details == nil {
		http.Error(w, "there is no such cell any more", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(details) // Fails only if the page is closed.
}
