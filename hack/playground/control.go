package main

import (
	"context"
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
	mux.HandleFunc("POST /nodes/{name}", answer(func(r *http.Request) error {
		return s.nodes.add(r.Context(), r.PathValue("name"))
	}))
	mux.HandleFunc("DELETE /nodes/{name}", answer(func(r *http.Request) error {
		return s.nodes.stop(r.PathValue("name"))
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

// answer makes a handler of a function that returns an error for the user.
func answer(f func(*http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := f(r); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	}
}

// call makes a request to the server on a socket. The error is the server's, if it sent one.
func call(ctx context.Context, socket, method, path string) error {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, method, "http://playground"+path, nil)
	if err != nil {
		return fmt.Errorf("making a request for %s: %w", socket, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", socket, err)
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(b)))
	}
	return nil
}
