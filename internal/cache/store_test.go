package cache

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// handlers is an informer that only accepts handlers.
type handlers struct {
	cache.SharedIndexInformer
	cache.ResourceEventHandler
}

func (h *handlers) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, _ cache.HandlerOptions) (
	cache.ResourceEventHandlerRegistration, error) {
	h.ResourceEventHandler = handler
	return registration{}, nil
}

// storeOf is a store of Nodes with an informer.
func storeOf(informer cache.SharedIndexInformer) *Store[*Node] {
	return &Store[*Node]{watched: map[string]*watched[*Node]{metav1.NamespaceAll: {
		TypedSharedIndexInformer: cache.NewTypedSharedIndexInformer[*Node](informer)}}, isSame: (*Node).Same}
}

type registration struct {
	cache.ResourceEventHandlerRegistration
}

func (registration) HasSynced() bool { return true }

// TestOnChange: the events of an informer are reported, even a deletion that the watch missed. Heartbeats are not.
func TestOnChange(t *testing.T) {
	informer := &handlers{}
	store := storeOf(informer)
	var got [][2]*Node
	store.OnChange(func(before, after *Node) { got = append(got, [2]*Node{before, after}) })
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
