package main

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// addVersions gives lists and deleted objects a resource version, as an API server does. A cache needs it to know what
// it has observed.
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

// newVersion gives an object, unless it is nil, a new resource version.
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

func (f *fixture) nextVersion() string { return strconv.FormatInt(f.version.Add(1), 10) }

// watchSlices shows each watch of EndpointSlices only those that its selector matches, as an API server does.
func (f *fixture) watchSlices(a core.Action) (bool, watch.Interface, error) {
	action := a.(core.WatchActionImpl)
	watched, err := f.kube.Tracker().Watch(a.GetResource(), a.GetNamespace(), action.ListOptions)
	if err != nil {
		return true, nil, err
	}
	return true, watch.Filter(watched, func(event watch.Event) (watch.Event, bool) {
		slice, isSlice := event.Object.(*discoveryv1.EndpointSlice)
		return event, !isSlice || action.GetWatchRestrictions().Labels.Matches(labels.Set(slice.Labels))
	}), nil
}

func (f *fixture) createService(a core.Action) (bool, runtime.Object, error) {
	create := a.(core.CreateActionImpl)
	service := objects.Stored(create.Object.(*corev1.Service))
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

func (f *fixture) patch(a core.Action) (bool, runtime.Object, error) {
	_, object, err := core.ObjectReaction(f.kube.Tracker())(a)
	if err != nil {
		return true, nil, err
	}
	patched := object.DeepCopyObject()
	patched.(metav1.Object).SetResourceVersion(f.nextVersion())
	return true, patched, f.kube.Tracker().Update(a.GetResource(), patched, a.GetNamespace())
}

func (f *fixture) writeSlice(a core.Action) (bool, runtime.Object, error) {
	// An update is a creation with another verb.
	slice := a.(core.CreateAction).GetObject().(*discoveryv1.EndpointSlice).DeepCopy()
	seen := slice.ResourceVersion
	slice.UID, slice.ResourceVersion = types.UID("uid-"+slice.Name), f.nextVersion()
	if a.GetVerb() == "create" {
		return true, slice, f.kube.Tracker().Create(a.GetResource(), slice, slice.Namespace)
	}
	old, err := f.kube.Tracker().Get(a.GetResource(), slice.Namespace, slice.Name)
	if err == nil && old.(*discoveryv1.EndpointSlice).ResourceVersion != seen {
		err = apierrors.NewConflict(a.GetResource().GroupResource(), slice.Name, nil)
	}
	if err != nil {
		return true, nil, err
	}
	return true, slice, f.kube.Tracker().Update(a.GetResource(), slice, slice.Namespace)
}

func (f *fixture) updateStatus(a core.Action) (bool, runtime.Object, error) {
	sent := a.(core.UpdateAction).GetObject().(*v1alpha1.LocalService)
	object, err := f.client.Tracker().Get(a.GetResource(), sent.Namespace, sent.Name)
	if err != nil {
		return true, nil, err
	}
	ls := object.(*v1alpha1.LocalService).DeepCopy()
	if sent.ResourceVersion != ls.ResourceVersion {
		return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), ls.Name, errors.New("changed"))
	}
	ls.Status, ls.ResourceVersion = *sent.Status.DeepCopy(), f.nextVersion()
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
	if o.GetResourceVersion() == "" { // A store without one would not know what it has observed.
		created.(metav1.Object).SetResourceVersion("1")
	}
	if f.isWatched { // A watch sends an object with a later version than those that it sent before.
		created.(metav1.Object).SetResourceVersion(f.nextVersion())
	}
	if err := tracker.Create(resource, created, o.GetNamespace()); err != nil {
		f.t.Fatal(err)
	}
}

// edit changes the spec of the LocalService at the API server, and waits for the consequences.
func (f *fixture) edit(change func(*v1alpha1.LocalService)) {
	f.t.Helper()
	synctest.Wait()
	ls := f.localService()
	ls.Generation++
	change(ls)
	f.set(ls)
	settle()
}

// localService returns the LocalService that the API server has.
func (f *fixture) localService() *v1alpha1.LocalService {
	f.t.Helper()
	ls, err := f.client.LocalserviceV1alpha1().LocalServices("default").Get(f.t.Context(), "demo", metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return ls.DeepCopy()
}

// services returns the existing Services, by name.
func (f *fixture) services() map[string]*corev1.Service {
	f.t.Helper()
	// A reactor cannot make requests, so this reads the tracker.
	list, err := f.kube.Tracker().List(corev1.SchemeGroupVersion.WithResource("services"),
		corev1.SchemeGroupVersion.WithKind("Service"), "default")
	if err != nil {
		f.t.Fatal(err)
	}
	found := map[string]*corev1.Service{}
	for _, s := range list.(*corev1.ServiceList).Items {
		found[s.Name] = &s
	}
	return found
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

// testService returns the Service of a node as the controller has created it.
func testService(ls *v1alpha1.LocalService, node string, edit ...func(*corev1.Service)) *corev1.Service {
	templates, err := plan.NewTemplates(ls, v1alpha1.DefaultNodeLabelKey)
	if err != nil {
		panic(err) // A mistake in the test.
	}
	s := objects.Stored(templates[0].Service(node))
	s.Status = corev1.ServiceStatus{}
	for _, e := range edit {
		e(s)
	}
	return s
}

// inPlace returns the status of a LocalService after a sync that found everything in place.
func inPlace(nodes int) func(*v1alpha1.LocalService) {
	return func(ls *v1alpha1.LocalService) {
		ls.Status = status.Of(ls, &plan.Plan{Nodes: nodes, InPlace: nodes}, &plan.Outcome{})
	}
}

func testSlice(service string, ready ...bool) *discoveryv1.EndpointSlice {
	owner, _, _ := strings.Cut(service, "-")
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: service + "-x", Namespace: "default",
		ResourceVersion: "1",
		Labels: map[string]string{discoveryv1.LabelServiceName: service, v1alpha1.OwnerLabelKey: owner,
			v1alpha1.DefaultNodeLabelKey: "x"}}}
	for _, r := range ready {
		slice.Endpoints = append(slice.Endpoints,
			discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: &r}})
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
