// Package app is the program without its controllers: flags, clients, caches, events, preflight checks, leader
// election, and the server for health and metrics.
package app

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	_ "k8s.io/component-base/logs/json/register"          // -logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of API requests and work queues
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/writer"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	localservicescheme "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned/scheme"
)

// Dependencies holds what controllers are made from.
type Dependencies struct {
	writer.Shared
	Options *Options
	// Clock is that of the queues, which have metrics.
	Clock clock.WithTicker
	// LackingFields returns the fields of a spec that the API server did not know when this instance began its work. An
	// API server publishes a schema some time after it serves a resource.
	LackingFields func() []string
	// LookSoon makes the program look soon whether the API server knows other fields than before.
	LookSoon func()
}

// Run waits until the cluster has what the controllers need, makes them, and runs them, while this instance leads,
// until ctx is done. The function work must not return before all work has ended. Run ends with an error if etcd was
// restored from a backup: see cache.Reader.
func Run(ctx context.Context, opts *Options, newControllers func(Dependencies) (work func(context.Context))) error {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err := run(running, stop, opts, newControllers)
	if ctx.Err() == nil && running.Err() != nil {
		return context.Cause(running)
	}
	return err
}

func run(ctx context.Context, stop func(error), opts *Options,
	newControllers func(Dependencies) (work func(context.Context))) error {
	config, err := opts.restConfig()
	if err != nil {
		return err
	}
	deps, err := NewDependencies(config, opts, logReadErrors(opts), stop)
	if err != nil {
		return err
	}
	server, err := startServer(ctx, opts, deps.Kube)
	if err != nil {
		return err
	}
	defer server.stop()
	klog.FromContext(ctx).Info("Starting", "version", version.Get().GitVersion, "apiServer", config.Host,
		"nodeLabelKey", opts.NodeLabelKey, "namespaces", opts.Namespaces, "leaderElection", opts.leaderElect,
		"httpAddress", server.address, "metricsSecureAddress", server.metricsAddress)

	if err := waitForCluster(ctx, deps.Kube); err != nil {
		return nil // Stopped while waiting.
	}
	recorder, stopEvents, err := newRecorder(ctx, deps.Kube)
	if err != nil {
		return err
	}
	deps.Record = RecordTo(recorder)
	defer stopEvents()
	metrics.Register(&metrics.Collector{LocalServices: deps.Caches.LocalServices.All})
	var lacking []string // Found before the work begins.
	deps.LackingFields = func() []string { return lacking }
	leases := deps.Kube.CoordinationV1().Leases(opts.leaderElectionNamespace)
	inspector := &inspector{LeaseInterface: leases, kube: deps.Kube, pods: deps.Caches.Pods, options: opts,
		soon: make(chan struct{}, 1)}
	deps.LookSoon = inspector.lookSoon
	controllers := newControllers(deps)
	work := func(ctx context.Context) {
		lacking = findOldSchema(ctx, deps.Kube)
		var inspecting sync.WaitGroup
		inspecting.Go(func() { inspector.run(ctx, lacking, stop) })
		controllers(ctx)
		inspecting.Wait()
	}

	cachesCtx, stopCaches := context.WithCancel(context.WithoutCancel(ctx))
	waitForCaches := deps.Caches.Start(cachesCtx)
	defer waitForCaches()
	defer stopCaches() // After the workers: they read the caches until the end.
	if !deps.Caches.WaitForSync(ctx) {
		return nil // Stopped while waiting.
	}
	server.ready.Store(true)
	klog.FromContext(ctx).Info("Caches are filled")
	for range 2 { // Filling the caches took much more memory than they keep. A sync.Pool is freed at the second run.
		debug.FreeOSMemory()
	}
	if !opts.leaderElect {
		work(ctx)
		return nil
	}
	return Lead(ctx, inspector, opts, server.electionHealth, work)
}

// NewDependencies makes Dependencies, without how to record events. The caches are empty until they are started. No
// client is throttled: the bounded number of writes under way is the back-pressure, and the API server has its own
// priority and fairness.
func NewDependencies(config *rest.Config, opts *Options,
	onReadError func(ctx context.Context, resource string, err error), onRestore func(error)) (Dependencies, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = v1alpha1.FieldManager + "/" + version.Get().GitVersion
	config.QPS = -1
	config.WarningHandlerWithContext = NewComplaints() // A fan-out would log the same for each write.
	// Since Kubernetes 1.37 the API server would compress streamed lists and each event after them. To decompress that
	// took a sixth of the CPU time of starts and fan-outs. kube-controller-manager and kube-scheduler decline it, too.
	config.DisableCompression = true
	meta, err1 := metadata.NewForConfig(config)
	dyn, err2 := dynamic.NewForConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	kube, err3 := kubernetes.NewForConfig(config)
	if err := errors.Join(err1, err2, err3); err != nil {
		return Dependencies{}, fmt.Errorf("make clients for %s: %w", config.Host, err)
	}
	caches := cache.New(cache.Options{Kube: kube, Dynamic: dyn, Metadata: meta, Namespaces: opts.Namespaces,
		NodeLabelKey: opts.NodeLabelKey, Pods: opts.LabelPods, AllPods: opts.LabelAllPods,
		OnReadError: onReadError, OnRestore: onRestore})
	return Dependencies{Options: opts, Clock: clock.RealClock{}, LackingFields: func() []string { return nil }, LookSoon: func() {},
		Shared: writer.Shared{Kube: kube, Dynamic: dyn, Metadata: meta, Caches: caches,
			Pool: writer.NewPool(opts.WriteConcurrency), Shuffle: rand.Shuffle}}, nil
}

// newRecorder makes a recorder of events, and returns how to stop it. An event that is being written then is not
// canceled, which would be logged as an error, but nobody waits for it: the last event may be lost at a stop.
func newRecorder(ctx context.Context, kube kubernetes.Interface) (events.EventRecorder, func(), error) {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: kube.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(context.WithoutCancel(ctx)); err != nil {
		return nil, nil, fmt.Errorf("record events: %w", err)
	}
	return broadcaster.NewRecorder(localservicescheme.Scheme, v1alpha1.FieldManager), broadcaster.Shutdown, nil
}
