package cache

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testobject"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// newCaches are caches that watch nothing: the test puts in what they show.
func newCaches(t *testing.T, resources ...*metav1.APIResourceList) *Caches {
	t.Helper()
	kube := kubefake.NewClientset()
	kube.Resources = resources
	c, err := New(Options{Kube: kube, LocalServices: NewLocalServiceInformer(dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), 0),
		Metadata: metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()), NodeLabelKey: nodeLabelKey,
		OnWatchError: func(string) cache.WatchErrorHandlerWithContext { return cache.DefaultWatchErrorHandler }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// show has a cache show objects.
func show[T any](t *testing.T, store *Store[T], objects ...*T) {
	t.Helper()
	for _, object := range objects {
		if err := store.informers.of(metav1.NamespaceAll).GetIndexer().Add(object); err != nil {
			t.Fatal(err)
		}
	}
}

// showServices has the cache of Services show some, and the groups know them.
func showServices(t *testing.T, c *Caches, services ...*Service) {
	t.Helper()
	show(t, c.Services.Store, services...)
	for _, service := range services {
		c.Services.change(nil, service)
	}
}

// TestOwned: a LocalService owns the Services that have its UID in their controller reference, whatever their names.
func TestOwned(t *testing.T) {
	c := newCaches(t)
	of := func(uid types.UID, namespace, node string) *Service {
		return generated(t, testobject.LocalService(func(ls *v1alpha1.LocalService) {
			ls.UID, ls.Namespace = uid, namespace
		}), node)
	}
	showServices(t, c, of("uid-demo", "default", "a"), of("uid-demo", "default", "b"), of("uid-demo", "other", "c"),
		of("earlier", "default", "d"), trimmed(t, testobject.ForeignService("demo-e")))
	var got []string
	c.Services.Owned(testobject.LocalService(), func(byName map[string]plan.Service) {
		for name, service := range byName {
			if name != service.GetName() {
				t.Errorf("%s under the name %s", service.GetName(), name)
			}
			got = append(got, name)
		}
	})
	slices.Sort(got)
	if want := []string{"demo-a", "demo-b"}; !slices.Equal(got, want) {
		t.Errorf("owned %v, want %v", got, want)
	}
}

// TestShows: whether the cache has heard of a write.
func TestShows(t *testing.T) {
	ls := testobject.LocalService()
	cached := func(edit func(*corev1.Service)) *Service {
		whole := wholeOf(t, ls, "node1")
		edit(whole)
		return trimmed(t, whole)
	}
	version := func(v string) func(*corev1.Service) { return func(s *corev1.Service) { s.ResourceVersion = v } }
	current := cached(version("7"))
	terminating := cached(func(s *corev1.Service) { s.DeletionTimestamp = new(metav1.Now()) })
	for name, c := range map[string]struct {
		cached  *Service
		answer  string // resource version of what was written, "" for a deletion
		current *Service
		want    bool
	}{
		"deleted, and still there":      {current, "", current, false},
		"deleted, and gone":             {nil, "", current, true},
		"deleted, and being deleted":    {terminating, "", current, true},
		"deleted, and another is there": {cached(func(s *corev1.Service) { s.UID = "another" }), "", current, true},
		"created, and not there yet":    {nil, "8", nil, false},
		"updated, and as before":        {current, "8", current, false},
		"updated, and up to date":       {cached(version("8")), "8", current, true},
		"updated since by others":       {cached(version("10")), "8", current, true},
		"of an odd version":             {cached(version("x")), "8", current, true},
	} {
		t.Run(name, func(t *testing.T) {
			caches := newCaches(t)
			if c.cached != nil {
				showServices(t, caches, c.cached)
			}
			change := plan.Change{Name: "demo-node1", Current: c.current}
			if got := caches.Services.Shows(ls, change, c.answer); got != c.want {
				t.Errorf("shows it: %v, want %v", got, c.want)
			}
		})
	}
}

// TestEchoes: LocalServices are as they were written, until the watch tells a newer state; and what the watch tells of
// a write is known as its echo.
func TestEchoes(t *testing.T) {
	c := newCaches(t).LocalServices
	at := func(version int) *v1alpha1.LocalService {
		return testobject.LocalService(func(ls *v1alpha1.LocalService) { ls.ResourceVersion = fmt.Sprint(version) })
	}
	expect := func(when string, version int) {
		t.Helper()
		if got := c.Get("default", "demo"); got == nil || got.ResourceVersion != fmt.Sprint(version) {
			t.Errorf("%s: %v, want version %d", when, got, version)
		}
	}
	isEcho := func(version int) bool { return c.IsEcho(at(version), at(version)) }
	show(t, c.Store, at(1))
	expect("told", 1)
	if isEcho(1) {
		t.Error("an echo of no write")
	}
	c.Wrote(at(3))
	expect("written", 3)
	show(t, c.Store, at(2))
	expect("told an older state", 3)
	if isEcho(2) || !isEcho(3) {
		t.Error("version 3 and no other is the echo")
	}
	show(t, c.Store, at(4))
	expect("told a newer state", 4)
	if isEcho(4) {
		t.Error("version 4 was written by somebody else")
	}
	if got := c.Get("default", "other"); got != nil {
		t.Errorf("another: %v", got)
	}
}

// TestTrimEndpointSlice: an EndpointSlice is ready if one of its endpoints is. Endpoints that do not say are ready.
func TestTrimEndpointSlice(t *testing.T) {
	for name, c := range map[string]struct {
		ready []*bool
		want  bool
	}{
		"no endpoints":  {nil, false},
		"not ready":     {[]*bool{new(false), new(false)}, false},
		"one is ready":  {[]*bool{new(false), new(true)}, true},
		"does not say":  {[]*bool{nil}, true},
		"all are ready": {[]*bool{new(true), new(true)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			full := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "demo-a-x",
				Labels: map[string]string{discoveryv1.LabelServiceName: "demo-a", v1alpha1.OwnerLabelKey: "demo"}}}
			for _, ready := range c.ready {
				full.Endpoints = append(full.Endpoints,
					discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: ready}})
			}
			got, err := trimEndpointSlice(full)
			if err != nil || got.Ready != c.want || got.Service != "demo-a" || got.LocalService.Value() != "demo" {
				t.Errorf("%+v, %v, want ready: %v", got, err, c.want)
			}
		})
	}
}

// handlers is an informer that only takes handlers.
type handlers struct {
	cache.SharedIndexInformer
	cache.ResourceEventHandler
}

func (h *handlers) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	h.ResourceEventHandler = handler
	return registration{}, nil
}

type registration struct {
	cache.ResourceEventHandlerRegistration
}

func (registration) HasSynced() bool { return true }

// TestOnChange: what is told of the events of an informer, also of a deletion that the watch has missed.
func TestOnChange(t *testing.T) {
	informer := &handlers{}
	store := &Store[Node]{informers: clusterWide(informer), told: map[string][]cache.InformerSynced{}}
	var got [][2]*Node
	if err := store.OnChange(func(before, after *Node) { got = append(got, [2]*Node{before, after}) }); err != nil {
		t.Fatal(err)
	}
	a, b := &Node{Labels: "a=1"}, &Node{Labels: "a=2"}
	informer.OnAdd(a, false)
	informer.OnUpdate(a, b)
	informer.OnDelete(b)
	informer.OnDelete(cache.DeletedFinalStateUnknown{Key: "node1", Obj: b})
	if want := [][2]*Node{{nil, a}, {a, b}, {b, nil}, {b, nil}}; !slices.Equal(got, want) {
		t.Errorf("told (-want +got):\n%s", cmp.Diff(want, got))
	}
}

// TestSelectedNodes: what is remembered of a nodeSelector is right after each change of a node, and not without bound.
func TestSelectedNodes(t *testing.T) {
	c := newCaches(t)
	selecting := func(selector map[string]string) *v1alpha1.LocalService {
		return testobject.LocalService(func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = selector })
	}
	node := func(name string, labels map[string]string) *Node {
		trimmed, err := trimNode(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
		if err != nil {
			t.Fatal(err)
		}
		return trimmed
	}
	want := func(names ...string) {
		t.Helper()
		selection := c.Nodes.Selected(selecting(map[string]string{"zone": "a"}))
		got := slices.Sorted(slices.Values(selection.Names))
		if !slices.Equal(got, names) || !selection.IsOf(names) || selection.IsOf(append(names, "other")) ||
			selection.IsOf([]string{"other", "another"}[:len(names)]) && len(names) > 0 {
			t.Errorf("selected %v, want %v", got, names)
		}
		for _, name := range []string{"one", "two", "three"} {
			for key, want := range map[string]string{"zone": "a", "other": "", "": ""} {
				value, isSelected := selection.Label(name, key)
				if isSelected != slices.Contains(names, name) || isSelected && value != want {
					t.Errorf("label %q of %s: %q, %v", key, name, value, isSelected)
				}
			}
		}
	}
	show := func(before, after *Node) {
		t.Helper()
		if after != nil {
			show(t, c.Nodes.Store, after)
		} else if err := c.Nodes.informers.of("").GetIndexer().Delete(before); err != nil {
			t.Fatal(err)
		}
		c.Nodes.change(before, after)
	}
	want()
	one, two := node("one", map[string]string{"zone": "a"}), node("two", map[string]string{"zone": "b"})
	show(nil, one)
	show(nil, two)
	want("one")
	moved := node("two", map[string]string{"zone": "a"})
	show(two, moved)
	want("one", "two")
	show(one, nil)
	want("two")
	for i := range 3 * maxSelections {
		c.Nodes.Selected(selecting(map[string]string{"zone": fmt.Sprint(i)}))
	}
	if n := c.Nodes.selected.Len(); n > maxSelections {
		t.Errorf("%d selections are remembered, want at most %d", n, maxSelections)
	}
}
