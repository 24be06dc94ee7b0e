package cache

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// newCaches returns caches that watch nothing. The test fills them.
func newCaches(t *testing.T, namespaces ...string) *Caches {
	t.Helper()
	return newCachesOf(t, kubefake.NewClientset(), namespaces...)
}

func newCachesOf(t *testing.T, kube kubernetes.Interface, namespaces ...string) *Caches {
	t.Helper()
	c, err := New(Options{Kube: kube,
		LocalServices: NewLocalServiceInformer(dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), 0),
		Metadata:      metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()), NodeLabelKey: nodeLabelKey,
		Namespaces:   namespaces,
		OnWatchError: func(string) cache.WatchErrorHandlerWithContext { return cache.DefaultWatchErrorHandler }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// show adds objects to a cache.
func show[T any](t *testing.T, store *Store[T], objects ...*T) {
	t.Helper()
	for _, object := range objects {
		if err := store.watched.of(metav1.NamespaceAll).GetIndexer().Add(object); err != nil {
			t.Fatal(err)
		}
	}
}

// hide removes objects from a cache.
func hide[T any](t *testing.T, store *Store[T], objects ...*T) {
	t.Helper()
	for _, object := range objects {
		if err := store.watched.of(metav1.NamespaceAll).GetIndexer().Delete(object); err != nil {
			t.Fatal(err)
		}
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

// storeOf is a store of Nodes with an informer.
func storeOf(informer cache.SharedIndexInformer) *Store[Node] {
	return &Store[Node]{watched: byNamespace[*watched]{metav1.NamespaceAll: {SharedIndexInformer: informer}}}
}

type registration struct {
	cache.ResourceEventHandlerRegistration
}

func (registration) HasSynced() bool { return true }

// TestOnChange: the events of an informer are reported, also a deletion that the watch has missed. Heartbeats are not.
func TestOnChange(t *testing.T) {
	informer := &handlers{}
	store := storeOf(informer)
	var got [][2]*Node
	if err := store.OnChange(func(before, after *Node) { got = append(got, [2]*Node{before, after}) }); err != nil {
		t.Fatal(err)
	}
	a, b := &Node{Labels: "a=1"}, &Node{Labels: "a=2"}
	informer.OnAdd(a, false)
	informer.OnUpdate(a, &Node{Labels: "a=1"}) // a heartbeat
	informer.OnUpdate(a, b)
	informer.OnDelete(b)
	informer.OnDelete(cache.DeletedFinalStateUnknown{Key: "node1", Obj: b})
	if want := [][2]*Node{{nil, a}, {a, b}, {b, nil}, {b, nil}}; !slices.Equal(got, want) {
		t.Errorf("reported (-want +got):\n%s", cmp.Diff(want, got))
	}
}
