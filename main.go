// local-service-controller gives every node a Service of its own inside every app that asks for it with a
// LocalService, and labels pods with the name of their node, so that each Service selects its node's pods.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"

	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/app"
	"github.com/localservice-dev/local-service-controller/internal/writer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second signal ends the program at once.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // Most of the heap is caches, which last, so that more collections cost little.
	}
	os.Exit(run(ctx, os.Args[1:]))
}

// run runs the program until ctx is done. It returns the exit code: 0 after a clean stop, 1 after an error, 2 if the
// flags are wrong.
func run(ctx context.Context, args []string) int {
	opts, err := app.NewOptions(args, os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	defer logs.FlushLogs()
	work := func(deps app.Dependencies) func(context.Context) { return newControllers(deps).run }
	if err := app.Run(ctx, opts, work); err != nil {
		klog.FromContext(ctx).Error(err, "Stopped")
		return 1
	}
	klog.FromContext(ctx).Info("Stopped")
	return 0
}

// controllers holds all controllers of an instance.
type controllers struct {
	localServices *localServiceController
	hostnames     *hostnamesController
	pods          *podController // nil with -label-pods=false
}

func newControllers(deps app.Dependencies) *controllers {
	refusals := writer.NewRefusals() // The status of a LocalService also reports refused EndpointSlices.
	localServices := newLocalServiceController(&deps, refusals)
	c := &controllers{localServices: localServices,
		hostnames: newHostnamesController(&deps, refusals, localServices.loop.Add)}
	if deps.Options.LabelPods {
		c.pods = newPodController(&deps)
	}
	return c
}

// run runs all workers until ctx is done, and returns when they have stopped. The caches must be filled.
func (c *controllers) run(ctx context.Context) {
	options, caches := c.localServices.options, c.localServices.caches
	var running sync.WaitGroup
	running.Go(func() { c.localServices.loop.Run(ctx, options.Workers, caches.LocalServices.Keys()) })
	running.Go(func() { c.hostnames.loop.Run(ctx, options.WriteConcurrency, caches.HostnameSlices.Keys()) })
	if c.pods != nil {
		running.Go(func() { c.pods.loop.Run(ctx, options.WriteConcurrency, c.pods.keys) })
	}
	running.Wait()
}
