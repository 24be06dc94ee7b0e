// local-service-controller gives every node a Service of its own inside every app that asks for it with a
// LocalService, and labels pods with the name of their node, so that each Service selects its node's pods.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/app"
	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/writer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second signal ends the program at once.
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
	if err := app.Run(ctx, opts, newControllers); err != nil {
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
	options       *app.Options
}

func makeControllers(deps app.Dependencies) (*controllers, error) {
	writers := newWriters(deps)
	localServices, err1 := newLocalServiceController(deps, writers)
	hostnames, err2 := newHostnamesController(deps, writers, localServices.loop.Add)
	c := &controllers{localServices: localServices, hostnames: hostnames, options: deps.Options}
	var err3 error
	if deps.Options.LabelPods {
		c.pods, err3 = newPodController(deps)
	}
	return c, errors.Join(err1, err2, err3)
}

// newWriters returns the dependencies of all writers of Services, EndpointSlices and statuses. They share refusals,
// because the status of a LocalService also reports refused EndpointSlices.
func newWriters(deps app.Dependencies) writer.Dependencies {
	return writer.Dependencies{Kube: deps.Kube, Client: deps.Client, Metadata: deps.Metadata, Caches: deps.Caches,
		Observed: cache.NewObserved(), Refusals: writer.NewRefusals(), Record: deps.Recorder.Record,
		Shuffle: deps.Shuffle}
}

// newControllers creates the controllers, and returns a function that runs them until its context is done.
func newControllers(deps app.Dependencies) (work func(context.Context), err error) {
	c, err := makeControllers(deps)
	return c.run, err
}

func (c *controllers) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.localServices.Run(ctx, c.options.Workers) })
	running.Go(func() { c.hostnames.Run(ctx, c.options.WriteConcurrency) })
	if c.pods != nil {
		running.Go(func() { c.pods.Run(ctx, c.options.WriteConcurrency) })
	}
	running.Wait()
}
