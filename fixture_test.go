package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	core "k8s.io/client-go/testing"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/localservice-dev/local-service-controller/internal/app"
	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	localservicefake "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned/fake"
	localserviceinformers "github.com/localservice-dev/local-service-controller/pkg/generated/informers/externalversions/localservice/v1alpha1"
)

// fixture is a fake API server, and caches that watch it. It lives in a bubble of fake time.
type fixture struct {
	t      *testing.T
	kube   *kubefake.Clientset
	client *localservicefake.Clientset
	nodes  *metadatafake.FakeMetadataClient
	events *events.FakeRecorder
	deps   app.Dependencies
	// version is the resource version given last. Unlike an API server, the fake one gives none.
	version atomic.Int64
	// isWatched is true once the caches have synced.
	isWatched bool
}

// newFixture makes an API server with objects.
func newFixture(t *testing.T, objects ...runtime.Object) *fixture {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	f := &fixture{
		t:      t,
		kube:   kubefake.NewClientset(),
		client: localservicefake.NewClientset(),
		nodes:  metadatafake.NewSimpleMetadataClient(scheme),
		events: events.NewFakeRecorder(1000),
	}
	f.version.Store(1000)
	f.kube.PrependReactor("create", "services", f.createService)
	f.kube.PrependReactor("patch", "services", f.patch)
	f.kube.PrependReactor("patch", "pods", f.patch)
	f.kube.PrependReactor("create", "endpointslices", f.writeSlice)
	f.kube.PrependReactor("update", "endpointslices", f.writeSlice)
	f.kube.PrependWatchReactor("endpointslices", f.watchSlices)
	f.client.PrependReactor("update", "localservices", f.updateStatus)
	f.nodes.PrependReactor("get", "localservices", func(a core.Action) (bool, runtime.Object, error) {
		ls, err := f.client.LocalserviceV1alpha1().LocalServices(a.GetNamespace()).Get(f.t.Context(),
			a.(core.GetAction).GetName(), metav1.GetOptions{})
		return true, &metav1.PartialObjectMetadata{ObjectMeta: ls.ObjectMeta}, err
	})
	f.addVersions(&f.kube.Fake, f.kube.Tracker())
	f.addVersions(&f.client.Fake, f.client.Tracker())
	f.addVersions(&f.nodes.Fake, f.nodes.Tracker())
	for _, o := range objects {
		f.set(o)
	}
	f.deps = app.Dependencies{
		Options: &app.Options{
			NodeLabelKey:     v1alpha1.DefaultNodeLabelKey,
			WriteConcurrency: 4,
			Workers:          4,
		},
		Kube:     f.kube,
		Client:   f.client,
		Metadata: f.nodes,
		Recorder: app.Recorder{EventRecorder: f.events},
		Clock:    clock.RealClock{}, // of the bubble
		Shuffle:  rand.Shuffle,
	}
	f.deps.Caches = f.newCaches(false)
	return f
}

func (f *fixture) newCaches(allPods bool) *cache.Caches {
	f.t.Helper()
	caches, err := cache.New(cache.Options{Kube: f.kube, Metadata: f.nodes,
		LocalServices: func(namespace string) clientcache.SharedIndexInformer {
			return localserviceinformers.NewLocalServiceInformer(f.client, namespace, 0, clientcache.Indexers{})
		},
		NodeLabelKey: v1alpha1.DefaultNodeLabelKey, AllPods: allPods,
		OnWatchError: func(string) clientcache.WatchErrorHandlerWithContext {
			return clientcache.DefaultWatchErrorHandler
		}})
	if err != nil {
		f.t.Fatal(err)
	}
	return caches
}

// watch fills the caches, and keeps them current until the end of the test.
func (f *fixture) watch() {
	f.t.Helper()
	ctx, stop := context.WithCancel(f.t.Context())
	wait := f.deps.Caches.Start(ctx)
	f.t.Cleanup(func() {
		stop()
		wait()
	})
	if !f.deps.Caches.WaitForSync(ctx) {
		f.t.Fatal("the caches have not synced")
	}
	synctest.Wait()
	f.requests()
	f.isWatched = true
}

// end shuts down the queue of a loop that does not run: it has goroutines of its own.
func end(t *testing.T, loop *reconcile.Loop) {
	t.Cleanup(func() {
		ctx, stop := context.WithCancel(context.Background())
		stop()
		loop.Run(ctx, 0, func(func(types.NamespacedName) bool) {})
	})
}

// run runs a controller until the end of the test.
func (f *fixture) run(work func(ctx context.Context, workers int)) {
	f.start(work)
	settle()
}

// runAll runs all controllers until the end of the test.
func (f *fixture) runAll() {
	f.t.Helper()
	work, err := newControllers(f.deps)
	if err != nil {
		f.t.Fatal(err)
	}
	f.watch()
	f.run(func(ctx context.Context, _ int) { work(ctx) })
}

// start runs a controller until stop is called, or the end of the test.
func (f *fixture) start(work func(ctx context.Context, workers int)) (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		work(ctx, f.deps.Options.Workers)
	}()
	stop = func() {
		cancel()
		<-stopped
	}
	f.t.Cleanup(stop)
	return stop
}

// settle waits until nobody has anything to do, except for retries that are due later.
func settle() {
	time.Sleep(3 * time.Second) // of fake time
	synctest.Wait()
}

// requests returns all requests since the last call.
func (f *fixture) requests() []core.Action {
	all := slices.Concat(f.kube.Actions(), f.client.Actions())
	f.kube.ClearActions()
	f.client.ClearActions()
	return all
}

// writes returns the writes since the last call, abbreviated and sorted.
func (f *fixture) writes() []string {
	f.t.Helper()
	var out []string
	for _, a := range f.requests() {
		resource := a.GetResource().Resource
		if a.GetSubresource() != "" {
			resource += "/" + a.GetSubresource()
		}
		switch a := a.(type) {
		case core.CreateActionImpl:
			if len(a.CreateOptions.DryRun) == 0 {
				out = append(out, fmt.Sprintf("create %s %s", resource, a.Object.(metav1.Object).GetName()))
			}
		case core.UpdateActionImpl:
			write := fmt.Sprintf("update %s %s", resource, a.Object.(metav1.Object).GetName())
			if ls, isLocalService := a.Object.(*v1alpha1.LocalService); isLocalService {
				write += summaryOf(&ls.Status)
			}
			out = append(out, write)
		case core.DeleteActionImpl:
			if version := a.DeleteOptions.Preconditions.ResourceVersion; version == nil || *version == "" {
				f.t.Errorf("a deletion without a resource version: %v", a)
			}
			out = append(out, fmt.Sprintf("delete %s %s uid=%s", resource, a.Name, *a.DeleteOptions.Preconditions.UID))
		case core.PatchActionImpl:
			out = append(out, fmt.Sprintf("patch %s %s %s", resource, a.Name, a.Patch))
		default:
			if !slices.Contains([]string{"list", "watch", "get"}, a.GetVerb()) {
				f.t.Errorf("unexpected request %v", a)
			}
		}
	}
	slices.Sort(out)
	// A deletion may be repeated before the cache has observed the first one, which is harmless.
	return slices.CompactFunc(out, func(a, b string) bool { return a == b && strings.HasPrefix(a, "delete ") })
}

// summaryOf abbreviates a status to its counts and the conditions that are True.
func summaryOf(status *v1alpha1.LocalServiceStatus) string {
	var is []string
	for _, c := range status.Conditions {
		if c.Status == metav1.ConditionTrue {
			is = append(is, c.Type)
		}
		if c.Type == v1alpha1.ConditionReady && c.Status != metav1.ConditionTrue {
			is = append(is, "not Ready: "+c.Reason)
		}
	}
	return fmt.Sprintf(" %d/%d %s", status.Services, status.Nodes, strings.Join(is, ", "))
}

// recorded returns the events since the last call.
func (f *fixture) recorded() []string {
	var out []string
	for {
		select {
		case e := <-f.events.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

func (f *fixture) expect(what string, want, got []string) {
	f.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
