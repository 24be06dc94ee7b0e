package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	core "k8s.io/client-go/testing"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/localservice-dev/local-service-controller/internal/app"
	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/internal/testobject"
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
	// isWatched is true once the caches are filled.
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
	f.kube.PrependReactor("patch", "services", f.patchService)
	f.kube.PrependReactor("create", "endpointslices", f.writeSlice)
	f.kube.PrependReactor("update", "endpointslices", f.writeSlice)
	f.client.PrependReactor("patch", "localservices", f.applyStatus)
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

// addVersions gives lists, and what is deleted, a resource version, as an API server does: by it a cache knows what it has
// observed.
func (f *fixture) addVersions(fake *core.Fake, tracker core.ObjectTracker) {
	fake.PrependReactor("delete", "*", func(a core.Action) (bool, runtime.Object, error) {
		f.newVersion(tracker, a.GetResource(), a.GetNamespace(), a.(core.DeleteAction).GetName())
		return false, nil, nil
	})
	fake.PrependReactor("list", "*", func(a core.Action) (bool, runtime.Object, error) {
		isHandled, list, err := core.ObjectReaction(tracker)(a)
		if isHandled && err == nil {
			list.(metav1.ListInterface).SetResourceVersion(strconv.FormatInt(f.version.Load(), 10))
		}
		return isHandled, list, err
	})
}

// newVersion gives an object, if it is there, a new resource version.
func (f *fixture) newVersion(tracker core.ObjectTracker, resource schema.GroupVersionResource, namespace, name string) {
	object, err := tracker.Get(resource, namespace, name)
	if err != nil {
		return
	}
	object = object.DeepCopyObject()
	object.(metav1.Object).SetResourceVersion(f.nextVersion())
	if err := tracker.Update(resource, object, namespace); err != nil {
		f.t.Error(err)
	}
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

// watch fills the caches, and keeps them up to date until the end of the test.
func (f *fixture) watch() {
	f.t.Helper()
	ctx, stop := context.WithCancel(f.t.Context())
	wait := f.deps.Caches.Start(ctx)
	f.t.Cleanup(func() {
		stop()
		wait()
	})
	if !f.deps.Caches.WaitForSync(ctx) {
		f.t.Fatal("the caches are not filled")
	}
	synctest.Wait()
	f.requests()
	f.isWatched = true
}

// end shuts the queue of a loop that does not run, which has goroutines of its own.
func end[K comparable](t *testing.T, loop *reconcile.Loop[K]) {
	t.Cleanup(func() {
		ctx, stop := context.WithCancel(context.Background())
		stop()
		loop.Run(ctx, 0, func() iter.Seq[K] { return func(func(K) bool) {} })
	})
}

// run has a controller work until the end of the test.
func (f *fixture) run(work func(ctx context.Context, workers int)) {
	f.start(work, 4)
	settle()
}

// runAll has all controllers work until the end of the test.
func (f *fixture) runAll() {
	f.t.Helper()
	work, err := newControllers(f.deps)
	if err != nil {
		f.t.Fatal(err)
	}
	f.watch()
	f.run(func(ctx context.Context, _ int) { work(ctx) })
}

// start has a controller work until stop is called, or the end of the test.
func (f *fixture) start(work func(ctx context.Context, workers int), workers int) (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		work(ctx, workers)
	}()
	stop = func() {
		cancel()
		<-stopped
	}
	f.t.Cleanup(stop)
	return stop
}

// settle waits until there is nothing left to do for anybody, but for what is tried again later.
func settle() {
	time.Sleep(3 * time.Second) // of the bubble's time
	synctest.Wait()
}

func (f *fixture) nextVersion() string { return strconv.FormatInt(f.version.Add(1), 10) }

func (f *fixture) createService(a core.Action) (bool, runtime.Object, error) {
	create := a.(core.CreateActionImpl)
	service := testobject.Stored(create.Object.(*corev1.Service))
	if len(create.CreateOptions.DryRun) > 0 {
		if _, err := f.kube.Tracker().Get(a.GetResource(), service.Namespace, service.Name); err == nil {
			return true, nil, apierrors.NewAlreadyExists(a.GetResource().GroupResource(), service.Name)
		}
		return true, service, nil
	}
	service.ResourceVersion, service.CreationTimestamp = f.nextVersion(), metav1.Now()
	service.UID = types.UID(fmt.Sprintf("uid-%s-%s", service.Name, service.ResourceVersion))
	return true, service, f.kube.Tracker().Create(a.GetResource(), service, service.Namespace)
}

func (f *fixture) patchService(a core.Action) (bool, runtime.Object, error) {
	_, object, err := core.ObjectReaction(f.kube.Tracker())(a)
	if err != nil {
		return true, nil, err
	}
	service := object.(*corev1.Service).DeepCopy()
	service.ResourceVersion = f.nextVersion()
	return true, service, f.kube.Tracker().Update(a.GetResource(), service, service.Namespace)
}

func (f *fixture) writeSlice(a core.Action) (bool, runtime.Object, error) {
	// An update is a creation with another verb.
	slice := a.(core.CreateAction).GetObject().(*discoveryv1.EndpointSlice).DeepCopy()
	old, err := f.kube.Tracker().Get(a.GetResource(), slice.Namespace, slice.Name)
	slice.ResourceVersion, slice.UID = f.nextVersion(), types.UID("uid-"+slice.Name)
	switch update, isUpdate := a.(core.UpdateActionImpl); {
	case !isUpdate:
		return true, slice, f.kube.Tracker().Create(a.GetResource(), slice, slice.Namespace)
	case err != nil:
		return true, nil, err
	case old.(*discoveryv1.EndpointSlice).ResourceVersion != update.Object.(*discoveryv1.EndpointSlice).ResourceVersion:
		return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), slice.Name, nil)
	}
	return true, slice, f.kube.Tracker().Update(a.GetResource(), slice, slice.Namespace)
}

func (f *fixture) applyStatus(a core.Action) (bool, runtime.Object, error) {
	patch := a.(core.PatchActionImpl)
	object, err := f.client.Tracker().Get(a.GetResource(), a.GetNamespace(), patch.Name)
	if err != nil {
		return true, nil, err
	}
	var applied v1alpha1.LocalService
	if err := json.Unmarshal(patch.Patch, &applied); err != nil {
		return true, nil, err
	}
	ls := object.(*v1alpha1.LocalService).DeepCopy()
	if applied.ResourceVersion != "" && applied.ResourceVersion != ls.ResourceVersion {
		return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), ls.Name, errors.New("it has been changed"))
	}
	ls.Status, ls.ResourceVersion = applied.Status, f.nextVersion()
	return true, ls, f.client.Tracker().Update(a.GetResource(), ls, ls.Namespace)
}

// set creates or updates an object at the API server.
func (f *fixture) set(object runtime.Object) {
	f.t.Helper()
	tracker, resource := f.trackerOf(object)
	o, err := meta.Accessor(object)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := tracker.Get(resource, o.GetNamespace(), o.GetName()); err == nil {
		o.SetResourceVersion(f.nextVersion())
		err = tracker.Update(resource, object, o.GetNamespace())
		if err != nil {
			f.t.Fatal(err)
		}
		return
	}
	created := object.DeepCopyObject()
	if f.isWatched { // What a watch tells has a later version than what it told before.
		created.(metav1.Object).SetResourceVersion(f.nextVersion())
	}
	if err := tracker.Create(resource, created, o.GetNamespace()); err != nil {
		f.t.Fatal(err)
	}
}

// edit changes a LocalService as it is at the API server.
func (f *fixture) edit(change func(*v1alpha1.LocalService)) {
	f.t.Helper()
	synctest.Wait()
	ls := f.localService()
	change(ls)
	f.set(ls)
}

// localService is the LocalService as it is at the API server.
func (f *fixture) localService() *v1alpha1.LocalService {
	f.t.Helper()
	ls, err := f.client.LocalserviceV1alpha1().LocalServices("default").Get(f.t.Context(), "demo", metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return ls.DeepCopy()
}

// remove deletes an object at the API server.
func (f *fixture) remove(object runtime.Object) {
	f.t.Helper()
	tracker, resource := f.trackerOf(object)
	o, err := meta.Accessor(object)
	if err != nil {
		f.t.Fatal(err)
	}
	f.newVersion(tracker, resource, o.GetNamespace(), o.GetName())
	if err := tracker.Delete(resource, o.GetNamespace(), o.GetName()); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) trackerOf(object runtime.Object) (core.ObjectTracker, schema.GroupVersionResource) {
	f.t.Helper()
	switch object.(type) {
	case *v1alpha1.LocalService:
		return f.client.Tracker(), v1alpha1.SchemeGroupVersion.WithResource("localservices")
	case *metav1.PartialObjectMetadata:
		return f.nodes.Tracker(), corev1.SchemeGroupVersion.WithResource("nodes")
	case *corev1.Service:
		return f.kube.Tracker(), corev1.SchemeGroupVersion.WithResource("services")
	case *discoveryv1.EndpointSlice:
		return f.kube.Tracker(), discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	case *corev1.Pod:
		return f.kube.Tracker(), corev1.SchemeGroupVersion.WithResource("pods")
	}
	f.t.Fatalf("no cache of %T", object)
	return nil, schema.GroupVersionResource{}
}

// requests are all requests since the last call.
func (f *fixture) requests() []core.Action {
	all := slices.Concat(f.kube.Actions(), f.client.Actions())
	f.kube.ClearActions()
	f.client.ClearActions()
	return all
}

// writes are the requests since the last call that change something, told in short, in the order of their names.
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
			out = append(out, fmt.Sprintf("update %s %s", resource, a.Object.(metav1.Object).GetName()))
		case core.DeleteActionImpl:
			if version := a.DeleteOptions.Preconditions.ResourceVersion; version == nil || *version == "" {
				f.t.Errorf("a deletion of what was not seen: %v", a)
			}
			out = append(out, fmt.Sprintf("delete %s %s uid=%s", resource, a.Name, *a.DeleteOptions.Preconditions.UID))
		case core.PatchActionImpl:
			out = append(out, fmt.Sprintf("patch %s %s %s", resource, a.Name, shorten(f.t, a)))
		default:
			if !slices.Contains([]string{"list", "watch", "get"}, a.GetVerb()) {
				f.t.Errorf("unexpected request %v", a)
			}
		}
	}
	slices.Sort(out)
	// A deletion may be repeated before the watch tells of it, which does no harm.
	return slices.CompactFunc(out, func(a, b string) bool { return a == b && strings.HasPrefix(a, "delete ") })
}

// shorten tells a merge patch whole, and of a status its counts and the conditions that are True.
func shorten(t *testing.T, a core.PatchActionImpl) string {
	t.Helper()
	if a.PatchType == types.MergePatchType {
		return string(a.Patch)
	}
	var applied v1alpha1.LocalService
	if err := json.Unmarshal(a.Patch, &applied); err != nil {
		t.Fatal(err)
	}
	var is []string
	for _, c := range applied.Status.Conditions {
		if c.Status == metav1.ConditionTrue {
			is = append(is, c.Type)
		}
		if c.Type == v1alpha1.ConditionReady && c.Status != metav1.ConditionTrue {
			is = append(is, "not Ready: "+c.Reason)
		}
	}
	return fmt.Sprintf("%d/%d %s", applied.Status.Services, applied.Status.Nodes, strings.Join(is, ", "))
}

// recorded are the events since the last call.
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

func testNode(name string, labels ...string) *metav1.PartialObjectMetadata {
	node := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1",
			Labels: map[string]string{}},
	}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		node.Labels[key] = value
	}
	return node
}

func testNodes(n int) []runtime.Object {
	var nodes []runtime.Object
	for i := range n {
		nodes = append(nodes, testNode(fmt.Sprintf("node%02d", i)))
	}
	return nodes
}

// testService is the Service of a node as the API server has it after the controller has created it.
func testService(ls *v1alpha1.LocalService, node string, edit ...func(*corev1.Service)) *corev1.Service {
	templates, err := plan.NewTemplates(ls, v1alpha1.DefaultNodeLabelKey)
	if err != nil {
		panic(err) // A mistake in the test.
	}
	s := testobject.Stored(templates[0].Service(node))
	s.Status = corev1.ServiceStatus{}
	for _, e := range edit {
		e(s)
	}
	return s
}

// inPlace is the status of a LocalService after a sync that found everything in place.
func inPlace(nodes int) func(*v1alpha1.LocalService) {
	return func(ls *v1alpha1.LocalService) {
		report := status.Report{Plan: plan.Plan{Nodes: nodes, InPlace: nodes}}
		ls.Status = report.Status(ls.Status, ls.Generation)
	}
}

func testSlice(service string, ready ...bool) *discoveryv1.EndpointSlice {
	owner, _, _ := strings.Cut(service, "-")
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: service + "-x", Namespace: "default",
		ResourceVersion: "1",
		Labels: map[string]string{discoveryv1.LabelServiceName: service, v1alpha1.OwnerLabelKey: owner,
			v1alpha1.DefaultNodeLabelKey: "x"}}}
	for _, r := range ready {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: &r}})
	}
	return slice
}

func testPod(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name),
			ResourceVersion: "1", Labels: map[string]string{"app": "demo"}},
		Spec:   corev1.PodSpec{NodeName: "node1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, e := range edit {
		e(p)
	}
	return p
}

func withLabels(labels map[string]string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = maps.Clone(labels) }
}
