package diagnose

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodesOf calls Nodes, whose result must be the same for trimmed objects.
func nodesOf(t *testing.T, in Input) *NodeList {
	t.Helper()
	kept := in
	kept.Pods = trimAll(in.Pods, (*corev1.Pod).DeepCopy)
	kept.Services = trimAll(in.Services, (*corev1.Service).DeepCopy)
	kept.EndpointSlices = trimAll(in.EndpointSlices, (*discoveryv1.EndpointSlice).DeepCopy)
	list := Nodes(in)
	if diff := cmp.Diff(list, Nodes(kept)); diff != "" {
		t.Errorf("of trimmed objects (-whole +trimmed):\n%s", diff)
	}
	return list
}

func trimAll[T any](objects []*T, copyOf func(*T) *T) (trimmed []*T) {
	for _, object := range objects {
		kept, _ := Trim(copyOf(object))
		trimmed = append(trimmed, kept.(*T))
	}
	return trimmed
}

func TestTrim(t *testing.T) {
	full := pod("a", "n1")
	full.Spec.Containers = []corev1.Container{{Name: "app", Image: "app"}}
	full.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/unreachable"}, {Key: "gpu"}}
	full.Annotations = map[string]string{"a": "b"}
	full.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{}}`)}}
	kept, _ := Trim(full)
	got := kept.(*corev1.Pod)
	if len(got.Spec.Containers) > 0 || len(got.Spec.Tolerations) != 1 || len(got.Annotations) > 0 ||
		string(got.ManagedFields[0].FieldsV1.GetRawBytes()) != `{"f:metadata":{"f:labels":{"f:app":{}}}}` {
		t.Errorf("kept: %+v", got)
	}
	if len(full.Spec.Containers) == 0 {
		t.Error("the pod itself was changed")
	}
	service := service("n1")
	service.ManagedFields = full.ManagedFields
	if _, _ = Trim(service); service.ManagedFields != nil {
		t.Errorf("kept: %+v", service)
	}
}

func TestState(t *testing.T) {
	for _, c := range []struct {
		ready  int
		reason Reason
		want   State
	}{
		{1, "", Healthy},
		{1, PodsNotReady, Degraded},
		{1, ServiceOutdated, Degraded},
		{0, PodsNotReady, Down},
		{0, NameConflict, Down},
		{0, PodsSelectedByLabel, Down},
		{0, PodsTerminating, Down},
		{0, NoPods, Empty},
		{0, NodeCordoned, Empty},
		{0, NodeTainted, Empty},
		{0, NodeNotReady, Empty},
		{0, PodsCompleted, Empty},
		{0, NodeWithoutName, Empty},
		{0, NameGone, Empty},
	} {
		n := Node{Endpoints: Endpoints{Ready: c.ready, Total: 2}, Reason: c.reason}
		if got := n.State(); got != c.want {
			t.Errorf("%d ready, %q: %s; want %s", c.ready, c.reason, got, c.want)
		}
	}
}

func TestChanges(t *testing.T) {
	n := func(node string, ready int) Node {
		return Node{Node: node, Service: "demo-" + node, Endpoints: Endpoints{Ready: ready}}
	}
	before := &NodeList{Items: []Node{n("n1", 1), n("n2", 1), n("n3", 1)}}
	now := &NodeList{Items: []Node{n("n0", 1), n("n1", 1), n("n3", 2)}}
	want := []Node{n("n0", 1), n("n3", 2), {Node: "n2", Service: "demo-n2", Addresses: []string{}, Pods: []Pod{},
		Reason: NameGone, Message: "gone: the LocalService does not give this name any more"}}
	if diff := cmp.Diff(want, Changes(before, now), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := Changes(nil, now); len(got) != 3 {
		t.Errorf("before anything: %v", got)
	}
	if got := Changes(now, now); len(got) > 0 {
		t.Errorf("of the same: %v", got)
	}
	// A group of nodes may have the name of a node that has none.
	group, nameless := n("n1", 1), n("n1", 0)
	group.Hostname = "n1"
	both := &NodeList{Items: []Node{group, nameless}}
	if got := Changes(both, both); len(got) > 0 {
		t.Errorf("of a group and a node: %v", got)
	}
}
