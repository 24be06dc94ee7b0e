package cache

import (
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

func testNode(t *testing.T, name string, labels map[string]string) *Node {
	t.Helper()
	trimmed, err := trimNode(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	if err != nil {
		t.Fatal(err)
	}
	return trimmed
}

// TestSelectedNodes: the selected nodes follow the labels of the nodes. Mode Hostnames names the same nodes, and all of
// them while none is selected.
func TestSelectedNodes(t *testing.T) {
	c := newCaches(t)
	ls := objects.LocalService(func(ls *v1alpha1.LocalService) {
		ls.Spec.NodeSelector = map[string]string{"zone": "a"}
	})
	expect := func(when string, selected, named []string) {
		t.Helper()
		if got := slices.Sorted(slices.Values(c.Nodes.Selected(ls))); !slices.Equal(got, selected) {
			t.Errorf("%s: selected %v, want %v", when, got, selected)
		}
		isNamed := c.Nodes.Named(ls)
		for _, name := range []string{"one", "two", "three"} {
			if isNamed(name) != slices.Contains(named, name) {
				t.Errorf("%s: %s has a name: %t", when, name, isNamed(name))
			}
		}
	}
	one, two := testNode(t, "one", map[string]string{"zone": "a"}), testNode(t, "two", map[string]string{"zone": "b"})
	expect("no nodes", nil, nil)
	show(t, c.Nodes.Store, two)
	expect("none is selected", nil, []string{"two"})
	show(t, c.Nodes.Store, one)
	expect("one is selected", []string{"one"}, []string{"one"})
	show(t, c.Nodes.Store, testNode(t, "two", map[string]string{"zone": "a"}))
	expect("both are selected", []string{"one", "two"}, []string{"one", "two"})
	hide(t, c.Nodes.Store, one)
	expect("one is deleted", []string{"two"}, []string{"two"})
}

// TestNamedRivals: of the nodes that want one hostname, one has it, among those that are selected.
func TestNamedRivals(t *testing.T) {
	c := newCaches(t)
	expect := func(when string, ls *v1alpha1.LocalService, want ...string) {
		t.Helper()
		isNamed, got := c.Nodes.Named(ls), []string(nil)
		for _, name := range []string{"x-y-z", "x-y.z", "x.y-z", "x.y.z"} {
			if isNamed(name) {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v have names, want %v", when, got, want)
		}
	}
	all := objects.LocalService()
	inB := objects.LocalService(func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = map[string]string{"disk": "b"} })
	node := func(name, disk string) *Node {
		return testNode(t, name, map[string]string{"zone": "a", "disk": disk})
	}
	show(t, c.Nodes.Store, node("x.y-z", "a"))
	expect("alone", all, "x.y-z")
	show(t, c.Nodes.Store, node("x-y.z", "a"))
	show(t, c.Nodes.Store, node("x.y.z", "a"))
	expect("the first by name", all, "x-y.z")
	show(t, c.Nodes.Store, node("x-y-z", "a"))
	expect("its own name", all, "x-y-z")
	expect("none is selected", inB, "x-y-z")
	hide(t, c.Nodes.Store, node("x-y-z", "a"))
	expect("it is gone", all, "x-y.z")
	show(t, c.Nodes.Store, node("x-y.z", "b"))
	show(t, c.Nodes.Store, node("x.y-z", "b"))
	expect("others are not selected", inB, "x-y.z")
	grouped := objects.LocalService(func(ls *v1alpha1.LocalService) { ls.Spec.GroupBy = "zone" })
	expect("with groupBy, nodes share names", grouped, "x-y.z", "x.y-z", "x.y.z")
}

// TestNamedRivalOfHash: a node whose own name is the hashed form of another's does not always come first.
func TestNamedRivalOfHash(t *testing.T) {
	c, ls := newCaches(t), objects.LocalService(func(ls *v1alpha1.LocalService) { ls.Spec.Mode = v1alpha1.ModeHostnames })
	first := strings.Repeat("a", 51) + "-0" + strings.Repeat("b", 20)
	second := naming.Hostname(first)
	show(t, c.Nodes.Store, testNode(t, first, nil))
	show(t, c.Nodes.Store, testNode(t, second, nil))
	for node, want := range map[string]bool{first: true, second: false} {
		if got := c.Nodes.Named(ls)(node); got != want {
			t.Errorf("%s: has a name: %t", node, got)
		}
	}
}

// TestLabelsOfManyWrites: the writes of a plan ask for the labels of nodes at the same time, which only the race
// detector sees.
func TestLabelsOfManyWrites(t *testing.T) {
	c := newCaches(t)
	show(t, c.Nodes.Store, testNode(t, "one", map[string]string{"zone": "a"}))
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
	show(t, c.Nodes.Store, testNode(t, "one", map[string]string{"zone": "a"}))
	before := c.Nodes.Labels()
	expect := func(labels func(node, key string) (string, bool), node, key, want string, exists bool) {
		t.Helper()
		if got, has := labels(node, key); got != want || has != exists {
			t.Errorf("label %s of %s: %q, %t; want %q, %t", key, node, got, has, want, exists)
		}
	}
	expect(before, "one", "zone", "a", true)
	expect(before, "two", "zone", "", false)
	show(t, c.Nodes.Store, testNode(t, "one", map[string]string{"zone": "b", "disk": "ssd"}))
	show(t, c.Nodes.Store, testNode(t, "two", map[string]string{"zone": "b"}))
	expect(before, "one", "zone", "a", true)
	expect(before, "one", "disk", "", false)
	expect(before, "two", "zone", "", false)
	expect(c.Nodes.Labels(), "two", "zone", "b", true)
}
