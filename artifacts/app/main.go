// localservice-app is the demo application: it answers every request with the pod and the node that it comes from, over
// TLS if $CERTIFICATES is a folder with tls.crt and tls.key. As `localservice-app get URL` it is a client, as there is
// no other in its image.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const (
	address    = ":8080"
	tlsAddress = ":8443"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if len(os.Args) == 3 && os.Args[1] == "get" {
		if err := get(ctx, os.Args[2], os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	// The Deployment sets POD and NODE, see artifacts/examples/example.yaml.
	if err := serve(ctx, os.Getenv("POD"), os.Getenv("NODE"), os.Getenv("CERTIFICATES")); err != nil {
		log.Fatal(err)
	}
}

// get prints the answer to a request.
func get(ctx context.Context, url string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(out, response.Body)
	return err
}

// serve answers requests until ctx is done, and then finishes those that have begun.
func serve(ctx context.Context, pod, node, certificates string) error {
	server := &http.Server{
		Addr:              address,
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "hello  this message from %s/%s\n", pod, node)
		}),
	}
	finished := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		finished <- server.Shutdown(grace)
	})
	listen := server.ListenAndServe
	if certificates != "" {
		server.Addr = tlsAddress
		listen = func() error {
			return server.ListenAndServeTLS(filepath.Join(certificates, "tls.crt"),
				filepath.Join(certificates, "tls.key"))
		}
	}
	log.Printf("answering on %s as %s/%s", server.Addr, pod, node)
	if err := listen(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-finished
}
