// local-service-controller gives every node a Service of its own inside every app that asks for it with a
// LocalService, and labels pods with the name of their node, so that each Service selects its node's pods.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"          // -logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of API requests and work queues
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/localservice-dev/local-service-controller/pkg/coalesce"
	clientset "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned"
	localservicescheme "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned/scheme"
	"github.com/localservice-dev/local-service-controller/pkg/metrics"
	"github.com/localservice-dev/local-service-controller/pkg/preflight"
)

// gcPercent is how much garbage may pile up, relative to what is in use, before it is collected. Most of what is in use
// are the caches, and at rest there is little garbage: memory is saved for hardly any time.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second signal ends the program at once.
	os.Exit(runWithFlags(ctx, os.Args[1:]))
}

// runWithFlags is the program with its flags, until ctx is done. It returns the exit code: 0 after a clean stop, 1
// after an error, 2 if the flags are wrong.
func runWithFlags(ctx context.Context, args []string) int {
	opts := newOptions()
	flags := flag.NewFlagSet("local-service-controller", flag.ContinueOnError)
	opts.addFlags(flags)
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if err := errors.Join(opts.validate(flags), logsapi.ValidateAndApply(opts.logging, nil)); err != nil {
		fmt.Fprintf(os.Stderr, "%v\nRun local-service-controller -help for all flags.\n", err)
		return 2
	}
	defer logs.FlushLogs()
	if err := run(ctx, opts); err != nil {
		klog.FromContext(ctx).Error(err, "Stopped")
		return 1
	}
	klog.FromContext(ctx).Info("Stopped")
	return 0
}

// run waits until the cluster is as we need it, and then runs the controllers until ctx is done.
func run(ctx context.Context, opts *options) error {
	config, err := opts.restConfig()
	if err != nil {
		return err
	}
	preflight.Observe(config)
	kube, client, meta, err := newClients(config)
	if err != nil {
		return err
	}
	metrics.Register()
	server, err := startServer(ctx, opts.httpAddress, opts.profiling)
	if err != nil {
		return err
	}
	defer server.stop()
	klog.FromContext(ctx).Info("Starting", "version", version.Get().GitVersion, "apiServer", config.Host,
		"nodeLabelKey", opts.nodeLabelKey, "leaderElection", opts.leaderElect, "httpAddress", server.address)

	if err := preflight.Wait(ctx, preflight.New(config.Host, kube, opts.leaseNamespace())); err != nil {
		return nil // Stopped while waiting.
	}

	recorder, stopEvents, err := newRecorder(ctx, kube)
	if err != nil {
		return err
	}
	defer stopEvents()
	deps, err := newDependencies(kube, client, meta, recorder, opts)
	if err != nil {
		return err
	}
	localServices, err := newLocalServiceController(deps)
	if err != nil {
		return err
	}
	pods, err := newPodController(deps)
	if err != nil {
		return err
	}

	informersCtx, stopInformers := context.WithCancel(context.WithoutCancel(ctx))
	waitForInformers := deps.startInformers(informersCtx)
	defer waitForInformers()
	defer stopInformers() // After the workers: they read the caches until the end.
	if !deps.waitForCaches(ctx) {
		return nil // Stopped while waiting.
	}
	server.setReady()
	klog.FromContext(ctx).Info("Caches are filled")
	debug.FreeOSMemory() // They have come in through much more memory than they take.

	work := func(ctx context.Context) {
		var running sync.WaitGroup
		running.Go(func() { localServices.Run(ctx, opts.workers) })
		running.Go(func() { pods.Run(ctx, opts.writeConcurrency) })
		running.Wait()
	}
	if !opts.leaderElect {
		work(ctx)
		return nil
	}
	return lead(ctx, kube, opts, server, work)
}

// newClients makes the clients. None is throttled: the bounded number of writes under way is the back-pressure, and
// the API server has its own priority and fairness.
func newClients(config *rest.Config) (kubernetes.Interface, clientset.Interface, metadata.Interface, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = fieldManager + "/" + version.Get().GitVersion
	config.QPS = -1
	client, err1 := clientset.NewForConfig(config)
	nodes := rest.CopyConfig(config)
	nodes.Dial = coalesce.Dial // The heartbeats of a large cluster are hundreds a second, and say nothing to us.
	meta, err2 := metadata.NewForConfig(nodes)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	kube, err3 := kubernetes.NewForConfig(config)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, nil, nil, fmt.Errorf("make clients for %s: %w", config.Host, err)
	}
	return kube, client, meta, nil
}

func newRecorder(ctx context.Context, kube kubernetes.Interface) (events.EventRecorder, func(), error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(kubescheme.AddToScheme(scheme), localservicescheme.AddToScheme(scheme)); err != nil {
		return nil, nil, err
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: kube.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, nil, fmt.Errorf("record events: %w", err)
	}
	return broadcaster.NewRecorder(scheme, fieldManager), broadcaster.Shutdown, nil
}

func newDependencies(kube kubernetes.Interface, client clientset.Interface, meta metadata.Interface, recorder events.EventRecorder, opts *options) (dependencies, error) {
	deps := dependencies{
		kube:             kube,
		client:           client,
		recorder:         recorder,
		clock:            clock.RealClock{},
		nodeLabelKey:     opts.nodeLabelKey,
		labelAllPods:     opts.labelAllPods,
		writeConcurrency: opts.writeConcurrency,
		limits:           opts.limits,
	}
	return deps, deps.addInformers(meta, opts.resyncPeriod)
}
