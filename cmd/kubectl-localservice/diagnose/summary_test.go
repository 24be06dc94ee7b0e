package diagnose

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestSummary: the numbers are those of `kubectl get localservices`. A name answers even if some of its pods are not
// ready. A name without pods counts, a node without the label of groupBy does not.
func TestSummary(t *testing.T) {
	in := Input{LocalService: localService(readyCondition(v1alpha1.ReasonNameTaken, "taken")),
		Nodes:    map[string]labels.Set{"n1": nil, "n2": nil, "n3": nil, "n4": nil},
		Services: []*corev1.Service{service("n1"), service("n2"), service("n3"), other("demo-n4", nil)[0]},
		Pods:     []*corev1.Pod{pod("a", "n1"), pod("b", "n2"), pod("c", "n2", notReady(waiting("CrashLoopBackOff")))},
		EndpointSlices: []*discoveryv1.EndpointSlice{slice("n1", endpoint("a", "10.0.0.1", true)),
			slice("n2", endpoint("b", "10.0.0.2", true), endpoint("c", "10.0.0.3", false)),
			slice("n4", endpoint("d", "10.0.0.4", true))}}
	want := Summary{Nodes: 4, Answering: 2, Status: "NameTaken", Problem: "taken"}
	if got := Nodes(in).Summary; got != want {
		t.Errorf("got %+v; want %+v", got, want)
	}
	in.LocalService.Status.Conditions[0].Status = metav1.ConditionTrue
	if got := Nodes(in).Summary.Problem; got != "" {
		t.Errorf("while Ready is True: %s", got)
	}
	zones := map[string]labels.Set{"n1": {"zone": "a"}, "n2": {"zone": "a"}, "n3": {"zone": "b"}, "n4": {}}
	in = published(localService(groupBy("zone")), zones, on("n1", endpoint("a", "10.0.0.1", true)))
	in.Pods = []*corev1.Pod{pod("a", "n1")}
	if got, want := Nodes(in).Summary, (Summary{Nodes: 2, Answering: 1}); got != want {
		t.Errorf("of groups: %+v; want %+v", got, want)
	}
}

// TestMessage: the message is about all names. If no node is selected, it names the selector, but not to a user who may
// not list nodes.
func TestMessage(t *testing.T) {
	selecting := func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = map[string]string{"disk": "sdd"} }
	kept := published(localService(groupBy("zone"), selecting,
		readyCondition(v1alpha1.ReasonNoNodesSelected, "no node")),
		map[string]labels.Set{"n1": {"zone": "a", "disk": "sdd"}},
		on("n1", endpoint("a", "10.0.0.1", true)))
	kept.Nodes, kept.AllNodes = nil, true
	onNode := func(change func(*v1alpha1.LocalService)) Input {
		return Input{LocalService: localService(change), Nodes: nodes("n1"), AllNodes: true,
			Pods: []*corev1.Pod{pod("a", "n1")}}
	}
	for name, c := range map[string]struct {
		in   Input
		want string
	}{
		"without nodes": {Input{LocalService: localService(), AllNodes: true}, "There is no node."},
		"selector": {Input{LocalService: localService(selecting), AllNodes: true},
			`No node matches spec.nodeSelector "disk=sdd". Correct spec.nodeSelector or the labels of the nodes: ` +
				"kubectl get nodes --show-labels"},
		"Service kept": {Input{LocalService: localService(selecting), AllNodes: true,
			Services: append(other("demo-n2", nil), service("n1"))},
			`No node matches spec.nodeSelector "disk=sdd", and the controller keeps 1 Service of nodes that exist, ` +
				"whose names still work. Correct spec.nodeSelector or the labels of the nodes: kubectl get nodes " +
				"--show-labels"},
		"names kept": {kept, `No node matches spec.nodeSelector "disk=sdd", and the controller removes no published ` +
			"name. Correct spec.nodeSelector or the labels of the nodes: kubectl get nodes --show-labels"},
		"nodes not listed": {Input{LocalService: localService(selecting)}, ""},
		"spec not observed, as while no controller runs": {onNode(func(ls *v1alpha1.LocalService) { ls.Generation++ }),
			"The controller has not acted on the last change of the LocalService: is it running?"},
		"clients need another port": {onNode(func(ls *v1alpha1.LocalService) {
			ls.Spec.ClusterIP = corev1.ClusterIPNone
			ls.Spec.Ports = []v1alpha1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}
		}), "Clients must connect to port 8080 (not 80): a headless Service does not translate ports."},
	} {
		if got := Nodes(c.in).Message; got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// TestCordoned: a cordon is the reason only if there is no pod.
func TestCordoned(t *testing.T) {
	in := Input{LocalService: localService(), Cordoned: map[string]bool{"n1": true, "n2": true},
		Nodes:    map[string]labels.Set{"n1": nil, "n2": nil, "n3": nil},
		Services: []*corev1.Service{service("n1"), service("n2"), service("n3")},
		Pods:     []*corev1.Pod{pod("a", "n1", notReady(waiting("CrashLoopBackOff"))), pod("b", "", notReady(running))},
		EndpointSlices: []*discoveryv1.EndpointSlice{slice("n1",
			endpoint("a", "10.0.0.1", false))}}
	for i, want := range []string{"PodsNotReady: not ready: a (CrashLoopBackOff)",
		"NodeCordoned: no pod with app=demo here (1 not scheduled yet); the node is cordoned",
		"NoPods: no pod with app=demo here (1 not scheduled yet)"} {
		if n := nodesOf(t, in).Items[i]; string(n.Reason)+": "+n.Message != want {
			t.Errorf("%s: %s: %s; want %s", n.Node, n.Reason, n.Message, want)
		}
	}
	zones := map[string]labels.Set{"n1": {"zone": "a"}, "n2": {"zone": "b"}, "n3": {"zone": "b"}}
	in = published(localService(groupBy("zone")), zones, on("n9", endpoint("x", "10.0.0.1", true)))
	in.Cordoned = map[string]bool{"n1": true, "n2": true}
	in.Pods = []*corev1.Pod{pod("x", "n9")}
	for i, want := range []Reason{NodeCordoned, NoPods} {
		if n := nodesOf(t, in).Items[i]; n.Reason != want {
			t.Errorf("group %s: %s: %s; want %s", n.Node, n.Reason, n.Message, want)
		}
	}
}

// TestCause: problems of the same kind have the same cause, whatever the names of their pods.
func TestCause(t *testing.T) {
	for want, n := range map[string]Node{
		"": {},
		"CrashLoopBackOff": {Reason: PodsNotReady,
			Pods: []Pod{{Ready: true}, {Reason: "Terminating"}, {Reason: "CrashLoopBackOff"}}},
		"pods not ready": {Reason: PodsNotReady},
		"no Service":     {Reason: ServiceMissing, Pods: []Pod{{Reason: "CrashLoopBackOff"}}},
		"NameGone":       {Reason: NameGone},
	} {
		if got := n.Cause(); got != want {
			t.Errorf("got %q; want %q", got, want)
		}
	}
}
