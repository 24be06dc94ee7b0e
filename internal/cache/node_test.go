package cache

import (
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
)

func testNode(t *testing.T, name string, labels ...string) *Node {
	t.Helper()
	trimmed, err := trimNode(&metav1.PartialObjectMetadata{ObjectMeta: objects.Node(name, labels...).ObjectMeta})
	if err != nil {
		t.Fatal(err)
	}
	return trimmed
}

// TestSelectedNodes: the selected nodes follow the labels of the nodes. Mode Hostnames names the same nodes, and all of
// them while none is selected. Of two nodes that want one name, only one has it.
func TestSelectedNodes(t *testing.T) {
	c := newCaches(t)
	ls := objects.LocalService(objects.HostnamesMode, objects.Selecting("zone=a"))
	expect := func(when string, selected, named []string) {
		t.Helper()
		if got := slices.Sorted(slices.Values(c.Nodes.Selected(ls))); !slices.Equal(got, selected) {
			t.Errorf("%s: selected %v, want %v", when, got, selected)
		}
		names := c.Names(ls, c.Nodes.Selected(ls), "")
		for _, name := range []string{"x-y", "x.y", "other", "gone"} {
			if got := names.Of(name); (got != "") != slices.Contains(named, name) {
				t.Errorf("%s: %s has the name %q", when, name, got)
			}
		}
	}
	in := func(zone, name string) *Node { return testNode(t, name, "zone="+zone) }
	expect("no nodes", nil, nil)
	show(t, c.Nodes.Store, in("b", "x-y"), in("b", "x.y"), in("b", "other"))
	expect("none is selected", nil, []string{"x-y", "other"})
	show(t, c.Nodes.Store, in("a", "x.y"))
	expect("one is selected, and its rival is not", []string{"x.y"}, []string{"x.y"})
	show(t, c.Nodes.Store, in("a", "x-y"))
	expect("both are selected", []string{"x-y", "x.y"}, []string{"x-y"})
	hide(t, c.Nodes.Store, in("a", "x-y"))
	expect("one is deleted", []string{"x.y"}, []string{"x.y"})
}

// TestLabelsOfManyWrites: the writes of a plan ask for the labels of nodes at the same time, which only the race
// detector sees.
func TestLabelsOfManyWrites(t *testing.T) {
	c := newCaches(t)
	show(t, c.Nodes.Store, testNode(t, "one", "zone=a"))
	labels := c.Nodes.Labels()
	var asking sync.WaitGroup
	for _, name := range []string{"one", "one", "two", "two"} {
		asking.Go(func() {
			if _, exists := labels(name, "zone"); exists != (name == "one") {
				t.Errorf("%s has the label: %t", name, exists)
			}
		})
	}
	asking.Wait()
}

// TestLabelsStay: for one sync, the labels of a node stay as they were when they were first read.
func TestLabelsStay(t *testing.T) {
	c := newCaches(t)
	show(t, c.Nodes.Store, testNode(t, "one", "zone=a"))
	before := c.Nodes.Labels()
	expect := func(labels func(node, key string) (string, bool), node, key, want string, exists bool) {
		t.Helper()
		if got, has := labels(node, key); got != want || has != exists {
			t.Errorf("label %s of %s: %q, %t; want %q, %t", key, node, got, has, want, exists)
		}
	}
	expect(before, "one", "zone", "a", true)
	expect(before, "two", "zone", "", false)
	show(t, c.Nodes.Store, testNode(t, "one", "zone=b", "disk=ssd"))
	show(t, c.Nodes.Store, testNode(t, "two", "zone=b"))
	expect(before, "one", "zone", "a", true)
	expect(before, "one", "disk", "", false)
	expect(before, "two", "zone", "", false)
	expect(c.Nodes.Labels(), "two", "zone", "b", true)
}
