package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/fanout"
	localservicefake "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned/fake"
)

// fixture is a controller between a fake API server and caches that a test fills by hand, so that a test says exactly
// what is known when.
type fixture struct {
	t       *testing.T
	kube    *kubefake.Clientset
	client  *localservicefake.Clientset
	events  *events.FakeRecorder
	deps    dependencies
	objects []runtime.Object
}

// newFixture makes an API server with objects, all of which the caches have, too.
func newFixture(t *testing.T, objects ...runtime.Object) *fixture {
	t.Helper()
	var localServices, others []runtime.Object
	for _, o := range objects {
		switch o := o.(type) {
		case *v1alpha1.LocalService:
			localServices = append(localServices, o.DeepCopy())
		case *metav1.PartialObjectMetadata: // Nodes are only watched.
		default:
			others = append(others, o.DeepCopyObject())
		}
	}
	f := &fixture{
		t:       t,
		kube:    kubefake.NewClientset(others...),
		client:  localservicefake.NewClientset(localServices...),
		events:  events.NewFakeRecorder(100),
		objects: objects,
	}
	// Unlike an API server, the fake one gives no new resource versions.
	version := 1000
	f.client.PrependReactor("patch", "localservices", func(a core.Action) (bool, runtime.Object, error) {
		handled, object, err := core.ObjectReaction(f.client.Tracker())(a)
		if err == nil {
			version++
			object.(*v1alpha1.LocalService).ResourceVersion = strconv.Itoa(version)
		}
		return handled, object, err
	})
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	f.deps = dependencies{
		kube:             f.kube,
		client:           f.client,
		recorder:         f.events,
		clock:            clocktesting.NewFakeClock(time.Now()), // It stands still: no progress is told in between.
		nodeLabelKey:     v1alpha1.DefaultNodeLabelKey,
		writeConcurrency: 4,
		limits:           fanout.Limits{MaxDeleteFraction: 1},
	}
	if err := f.deps.addInformers(metadatafake.NewSimpleMetadataClient(scheme), 0); err != nil {
		t.Fatal(err)
	}
	return f
}

// fill puts the objects into the caches, as watches would.
func (f *fixture) fill() {
	f.t.Helper()
	for _, o := range f.objects {
		f.cached(o)
	}
}

// cached puts an object into its cache, and returns it as it is there.
func (f *fixture) cached(object runtime.Object) any {
	f.t.Helper()
	informer, _ := f.cacheOf(object)
	trimmed := f.trimmed(object)
	if err := informer.GetIndexer().Add(trimmed); err != nil {
		f.t.Fatal(err)
	}
	return trimmed
}

// trimmed is an object as its cache would have it.
func (f *fixture) trimmed(object runtime.Object) any {
	f.t.Helper()
	_, trim := f.cacheOf(object)
	trimmed, err := trim(object.DeepCopyObject())
	if err != nil {
		f.t.Fatal(err)
	}
	return trimmed
}

func (f *fixture) uncached(object runtime.Object) {
	f.t.Helper()
	informer, _ := f.cacheOf(object)
	if err := informer.GetIndexer().Delete(object); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) cacheOf(object runtime.Object) (cache.SharedIndexInformer, cache.TransformFunc) {
	f.t.Helper()
	switch object.(type) {
	case *v1alpha1.LocalService:
		return f.deps.localServices, stripManagedFields
	case *metav1.PartialObjectMetadata:
		return f.deps.nodes, trimNode
	case *corev1.Service:
		return f.deps.services, trimService(f.deps.nodeLabelKey)
	case *discoveryv1.EndpointSlice:
		return f.deps.endpointSlices, trimEndpointSlice
	case *corev1.Pod:
		return f.deps.pods, trimPod(f.deps.nodeLabelKey)
	}
	f.t.Fatalf("no cache of %T", object)
	return nil, nil
}

// writes are the requests that change something, told in short, in the order of their names; and forgets them.
func (f *fixture) writes() []string {
	f.t.Helper()
	var out []string
	for _, a := range slices.Concat(f.kube.Actions(), f.client.Actions()) {
		resource := a.GetResource().Resource
		if a.GetSubresource() != "" {
			resource += "/" + a.GetSubresource()
		}
		switch a := a.(type) {
		case core.CreateActionImpl:
			out = append(out, fmt.Sprintf("create %s %s", resource, a.Object.(metav1.Object).GetName()))
		case core.DeleteActionImpl:
			out = append(out, fmt.Sprintf("delete %s %s uid=%s", resource, a.Name, *a.DeleteOptions.Preconditions.UID))
		case core.PatchActionImpl:
			out = append(out, fmt.Sprintf("patch %s %s %s", resource, a.Name, shorten(f.t, a)))
		default:
			if !slices.Contains([]string{"list", "watch", "get"}, a.GetVerb()) {
				f.t.Errorf("unexpected request %v", a)
			}
		}
	}
	f.kube.ClearActions()
	f.client.ClearActions()
	slices.Sort(out)
	return out
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

func testLocalService(edit ...func(*v1alpha1.LocalService)) *v1alpha1.LocalService {
	ls := &v1alpha1.LocalService{
		ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "default", UID: "uid-demo", Generation: 1, ResourceVersion: "1"},
		Spec: v1alpha1.LocalServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Selector:  map[string]string{"app": "demo"},
			Ports:     []v1alpha1.ServicePort{{Name: "http", Port: 8080}},
		},
	}
	for _, e := range edit {
		e(ls)
	}
	return ls
}

func testNode(name string, labels ...string) *metav1.PartialObjectMetadata {
	node := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1", Labels: map[string]string{}},
	}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		node.Labels[key] = value
	}
	return node
}

// testService is the Service of a node as the API server has it after the controller has created it.
func testService(t *testing.T, ls *v1alpha1.LocalService, node string, edit ...func(*corev1.Service)) *corev1.Service {
	t.Helper()
	template, err := fanout.NewTemplate(ls, v1alpha1.DefaultNodeLabelKey)
	if err != nil {
		t.Fatal(err)
	}
	s := template.Service(node)
	s.UID, s.ResourceVersion = types.UID("uid-"+s.Name), "7"
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	for _, e := range edit {
		e(s)
	}
	return s
}

// inPlace is the status of a LocalService after a sync that found everything in place.
func inPlace(nodes int) func(*v1alpha1.LocalService) {
	return func(ls *v1alpha1.LocalService) {
		ls.Status = fanout.Status(ls.Status, ls.Generation, fanout.Outcome{Nodes: nodes, InPlace: nodes})
	}
}

func testPod(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name), Labels: map[string]string{"app": "demo"}},
		Spec:       corev1.PodSpec{NodeName: "node1"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, e := range edit {
		e(p)
	}
	return p
}

func withLabels(labels map[string]string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = maps.Clone(labels) }
}
