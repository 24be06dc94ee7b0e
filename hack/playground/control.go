package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
)

// serve answers the command line on the sandbox's socket.
func (s *sandbox) serve() error {
	l, err := listenUnix(s.dir.sandboxSocket())
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /nodes", answer(func(*http.Request) (any, error) { return s.nodes.states(), nil }))
	mux.HandleFunc("POST /nodes/{name}", answer(func(r *http.Request) (any, error) {
		return nil, s.nodes.add(r.Context(), r.PathValue("name"))
	}))
	mux.HandleFunc("DELETE /nodes/{name}", answer(func(r *http.Request) (any, error) {
		return nil, s.nodes.stop(r.PathValue("name"))
	}))
	go serveHTTP(l, mux)
	return nil
}

// listenUnix listens on a socket, and replaces one from a previous process.
func listenUnix(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing an old socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	return l, nil
}

func serveHTTP(l net.Listener, h http.Handler) {
	_ = (&http.Server{Handler: h}).Serve(l) // returns when l is closed, which is when the process ends
}

// answer makes a handler of a function that returns what to encode as JSON, or an error for the user.
func answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		_ = json.NewEncoder(w).Encode(v) // fails only if the client has gone
	}
}

// socketClient talks HTTP to one socket.
type socketClient struct {
	path string
	http http.Client
}

func unixClient(path string) *socketClient {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return &socketClient{path: path, http: http.Client{Transport: &http.Transport{DialContext: dial,
		DisableKeepAlives: true}}}
}

// call makes a request and decodes the answer into v, unless that is nil. The error is the server's, if it sent one.
func (c *socketClient) call(ctx context.Context, method, path string, v any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://playground"+path, nil)
	if err != nil {
		return fmt.Errorf("making a request for %s: %w", c.path, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", c.path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(b)))
	}
	if v == nil {
		return nil
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("decoding the answer of %s: %w", c.path, err)
	}
	return nil
}
