package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/fanout"
)

func testSlice(service string, ready ...bool) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: service + "-x", Namespace: "default",
		Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
	for _, r := range ready {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: &r}})
	}
	return slice
}

// TestStatusReadyNodes: the status counts the selected nodes whose Service, if it is ours, has a ready endpoint.
func TestStatusReadyNodes(t *testing.T) {
	ls := testLocalService()
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "demo-node4", Namespace: "default", UID: "theirs"}}
	f, c := newLocalServiceFixture(t, ls, testNode("node1"), testNode("node2"), testNode("node3"), testNode("node4"), foreign,
		testService(t, ls, "node1"), testService(t, ls, "node2"), testService(t, ls, "node3"),
		testSlice("demo-node1", false, true), testSlice("demo-node2", false), testSlice("demo-node4", true), testSlice("other", true))
	sync := func(want string) {
		t.Helper()
		if err := c.sync(t.Context(), demoKey); err != nil {
			t.Fatal(err)
		}
		f.writes()
		got, err := f.client.LocalserviceV1alpha1().LocalServices("default").Get(t.Context(), "demo", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		f.client.ClearActions()
		if got.Status.Ready != want {
			t.Errorf("ready %q (%d), want %q", got.Status.Ready, got.Status.ReadyNodes, want)
		}
	}
	sync("1/4")

	fake := c.clock.(*clocktesting.FakeClock)
	fake.Step(progressInterval)
	c.endpointsChanged(f.cached(testSlice("demo-node3", true)).(*endpointSlice))
	if c.loop.Len() != 1 {
		t.Error("the change of an EndpointSlice is not looked at")
	}
	sync("2/4")

	c.endpointsChanged(f.cached(testSlice("demo-node1", false)).(*endpointSlice))
	sync("2/4") // Too early to write again.
	fake.Step(progressInterval)
	sync("1/4")
}

// TestStatusEndpointsOfOthers: an EndpointSlice that is not of a Service of ours leads to nothing.
func TestStatusEndpointsOfOthers(t *testing.T) {
	_, c := newLocalServiceFixture(t, testLocalService(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: "default"}})
	for _, service := range []string{"theirs", "unknown"} {
		trimmed, err := trimEndpointSlice(testSlice(service, true))
		if err != nil {
			t.Fatal(err)
		}
		c.endpointsChanged(trimmed.(*endpointSlice))
	}
	if c.loop.Len() != 0 {
		t.Error("work because of a Service of somebody else")
	}
}

// TestDeletionOfMost: that most Services go is announced before it happens, and can be made to wait for a confirmation.
func TestDeletionOfMost(t *testing.T) {
	ls := testLocalService(inPlace(3), func(ls *v1alpha1.LocalService) {
		ls.Generation, ls.Spec.NodeSelector = 2, map[string]string{"typo": "x"}
	})
	objects := []runtime.Object{ls, testNode("node1"), testNode("node2"), testNode("node3"),
		testService(t, ls, "node1"), testService(t, ls, "node2"), testService(t, ls, "node3")}
	deletions := []string{"delete services demo-node1 uid=uid-demo-node1", "delete services demo-node2 uid=uid-demo-node2",
		"delete services demo-node3 uid=uid-demo-node3", "patch localservices/status demo 0/0 Ready"}

	t.Run("announced", func(t *testing.T) {
		f, c := newLocalServiceFixture(t, objects...)
		if err := c.sync(t.Context(), demoKey); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(deletions, f.writes()); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
		want := []string{"Warning DeletingServices About to delete 3 of 3 Services, which no selected node wants any more",
			"Normal ServicesWritten Services: deleted 3 (0 nodes selected)"}
		if diff := cmp.Diff(want, f.recorded()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
	t.Run("held until confirmed", func(t *testing.T) {
		f, c := newLocalServiceFixture(t, objects...)
		c.limits.MaxDeleteFraction = 0.5
		if err := c.sync(t.Context(), demoKey); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"patch localservices/status demo 0/0 not Ready: DeletionHeld"}, f.writes()); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
		if got := f.recorded(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning DeletionHeld 3 of 3 Services") {
			t.Errorf("events %v", got)
		}
		confirmed := ls.DeepCopy()
		confirmed.ResourceVersion, confirmed.Annotations = "2", map[string]string{v1alpha1.AllowDeletionAnnotationKey: "true"}
		c.localServiceChanged(ls, f.cached(confirmed).(*v1alpha1.LocalService))
		if err := c.sync(t.Context(), demoKey); err != nil {
			t.Fatal(err)
		}
		if got := f.writes(); len(got) < 3 {
			t.Errorf("writes %v, want the deletions after the confirmation", got)
		}
	})
}

// TestCapacityMaxServicesPerNamespace: what would be too much is not begun, and done when there is room.
func TestCapacityMaxServicesPerNamespace(t *testing.T) {
	objects := []runtime.Object{testLocalService()}
	for i := range 5 {
		objects = append(objects, testNode(fmt.Sprintf("node%d", i)))
	}
	f, c := newLocalServiceFixture(t, objects...)
	c.limits = fanout.Limits{MaxDeleteFraction: 1, MaxServicesPerNamespace: 5}
	other := f.trimmed(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "default"}}).(*fanout.Service)
	c.census.Change(nil, other)
	if err := c.sync(t.Context(), demoKey); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"patch localservices/status demo 0/5 not Ready: TooManyServices"}, f.writes()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if got := f.recorded(); len(got) != 1 || !strings.Contains(got[0], "would have 6") {
		t.Errorf("events %v", got)
	}
	c.census.Change(other, nil)
	if err := c.sync(t.Context(), demoKey); err != nil {
		t.Fatal(err)
	}
	if got := f.writes(); len(got) != 6 {
		t.Errorf("writes %v, want 5 Services and the status", got)
	}
}

// TestCapacityNear: more Services than a cluster stands are made all the same, and warned of.
func TestCapacityNear(t *testing.T) {
	f, c := newLocalServiceFixture(t, testLocalService(), testNode("node1"))
	other := f.trimmed(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}).(*fanout.Service)
	for range 5000 {
		c.census.Change(nil, other)
	}
	if err := c.sync(t.Context(), demoKey); err != nil {
		t.Fatal(err)
	}
	want := []string{"create services demo-node1", "patch localservices/status demo 0/1 not Ready: WritingServices, Progressing, NearCapacity",
		"patch localservices/status demo 1/1 Ready, NearCapacity"}
	if diff := cmp.Diff(want, f.writes()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if got := f.recorded(); len(got) != 2 || !strings.HasPrefix(got[0], "Warning ManyServices the namespace has 5001 Services") {
		t.Errorf("events %v, want the warning first", got)
	}

	// One more is nothing new: it is not told before, not again, and not at once.
	f.cached(testNode("node2"))
	c.ledger.MarkNode(demoKey, "node2")
	for _, want := range [][]string{{"create services demo-node2"}, {"patch localservices/status demo 2/2 Ready, NearCapacity"}} {
		if err := c.sync(t.Context(), demoKey); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, f.writes()); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
		f.deps.clock.(*clocktesting.FakeClock).Step(progressInterval)
	}
	if got := f.recorded(); len(got) != 1 || !strings.HasPrefix(got[0], "Normal ServicesWritten") {
		t.Errorf("events %v, want no warning", got)
	}
}
