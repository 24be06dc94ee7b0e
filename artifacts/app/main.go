// localservice-app is the demo application: it answers every request with the pod and the node that it comes from.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const address = ":8080"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// The Deployment sets both, see artifacts/examples/example.yaml.
	if err := serve(ctx, os.Getenv("POD"), os.Getenv("NODE")); err != nil {
		log.Fatal(err)
	}
}

// serve answers requests until ctx is done, and then finishes those that have begun.
func serve(ctx context.Context, pod, node string) error {
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
	log.Printf("answering on %s as %s/%s", address, pod, node)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-finished
}
