package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	want := Summary{Nodes: 4, Answering: 2, Status: "NameTaken", Problem: "taken",
		Cause: "name taken by another Service or node"}
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
			`No node matches spec.nodeSelector "disk=sdd". Correct that or the labels of the nodes: ` +
				"kubectl get nodes --show-labels"},
		"Service kept": {Input{LocalService: localService(selecting), AllNodes: true,
			Services: append(other("demo-n2", nil), service("n1"))},
			`No node matches spec.nodeSelector "disk=sdd", and the controller keeps 1 Service of nodes that exist, ` +
				"whose names still work. Correct that or the labels of the nodes: kubectl get nodes " +
				"--show-labels"},
		"names kept": {kept, `No node matches spec.nodeSelector "disk=sdd", and the controller removes no published ` +
			"name. Correct that or the labels of the nodes: kubectl get nodes --show-labels"},
		"nodes not listed":  {Input{LocalService: localService(selecting)}, ""},
		"spec not observed": {onNode(func(ls *v1alpha1.LocalService) { ls.Generation++ }), ""},
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

// TestNodeStates: what keeps pods off a node is the reason only if there is no pod, and a node that is not ready the
// reason why its pods are not. A group has the reason only if all its nodes have it.
func TestNodeStates(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	taint := func(key, value string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
		}
	}
	gpu := taint("gpu", "yes", corev1.TaintEffectNoSchedule)
	cordoned := func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		taint("node.kubernetes.io/unschedulable", "", corev1.TaintEffectNoSchedule)(n)
	}
	down := func(seconds int) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
				LastTransitionTime: metav1.Time{Time: now.Add(-time.Duration(seconds) * time.Second)}}}
			taint("node.kubernetes.io/unreachable", "", corev1.TaintEffectNoExecute)(n)
		}
	}
	tolerating := func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	states := func(changes ...func(*corev1.Node)) map[string]NodeState {
		all := map[string]NodeState{}
		for i, change := range changes {
			node := &corev1.Node{}
			change(node)
			all[fmt.Sprintf("n%d", i+1)] = NodeStateOf(node)
			if diff := cmp.Diff(all[fmt.Sprintf("n%d", i+1)], NodeStateOf(trimNode(node))); diff != "" {
				t.Errorf("of the trimmed node: %s", diff)
			}
		}
		return all
	}
	well := func(*corev1.Node) {}
	lost := pod("a", "n1", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse })
	crash, elsewhere := pod("a", "n1", notReady(waiting("CrashLoopBackOff"))), pod("b", "n9")
	unready := slice("n1", endpoint("a", "10.0.0.1", false))
	const no = "no pod with app=demo here"
	for name, c := range map[string]struct {
		states map[string]NodeState
		pods   []*corev1.Pod
		slices []*discoveryv1.EndpointSlice
		groups bool
		want   string // of node n1, or of the group
	}{
		"cordoned": {states(cordoned), []*corev1.Pod{elsewhere}, nil, false,
			"NodeCordoned: " + no + "; the node is cordoned"},
		"cordoned, and a pod waits": {states(cordoned), []*corev1.Pod{pod("b", "", notReady(running))}, nil, false,
			"NodeCordoned: " + no + " (1 not scheduled yet); the node is cordoned"},
		"cordoned, with a pod": {states(cordoned), []*corev1.Pod{crash}, []*discoveryv1.EndpointSlice{unready}, false,
			"PodsNotReady: a: CrashLoopBackOff"},
		"tainted": {states(gpu), []*corev1.Pod{elsewhere}, nil, false,
			"NodeTainted: " + no + "; its pods do not tolerate the taint gpu=yes:NoSchedule of the node"},
		"tainted without a value": {states(taint("a.b/c", "", corev1.TaintEffectNoExecute)), []*corev1.Pod{elsewhere},
			nil, false, "NodeTainted: " + no + "; its pods do not tolerate the taint a.b/c:NoExecute of the node"},
		"tainted, but tolerated": {states(gpu), []*corev1.Pod{pod("b", "n9", tolerating)}, nil, false,
			"NoPods: " + no},
		"tainted, but pods only rather go elsewhere": {states(taint("x", "", corev1.TaintEffectPreferNoSchedule)),
			[]*corev1.Pod{elsewhere}, nil, false, "NoPods: " + no},
		"tainted, and no pod anywhere": {states(gpu), nil, nil, false, "NoPods: " + no},
		"down": {states(down(40)), []*corev1.Pod{lost}, []*discoveryv1.EndpointSlice{unready}, false,
			"NodeNotReady: the node is NotReady since 40 s"},
		"down, not noticed in the endpoints": {states(down(1)), []*corev1.Pod{pod("a", "n1")},
			[]*discoveryv1.EndpointSlice{slice("n1", endpoint("a", "10.0.0.1", true))}, false, ": "},
		"down, without a pod": {states(down(3*60 + 20)), []*corev1.Pod{elsewhere}, nil, false,
			"NodeNotReady: the node is NotReady since 3 m 20 s"},
		"group, cordoned": {states(cordoned, cordoned), []*corev1.Pod{elsewhere}, nil, true,
			"NodeCordoned: " + no + "; its nodes are cordoned"},
		"group, partly cordoned": {states(cordoned, well), []*corev1.Pod{elsewhere}, nil, true, "NoPods: " + no},
		"group, tainted": {states(gpu, gpu), []*corev1.Pod{elsewhere}, nil, true,
			"NodeTainted: " + no + "; its pods do not tolerate the taint gpu=yes:NoSchedule of its nodes"},
		"group, partly tainted": {states(gpu, well), []*corev1.Pod{elsewhere}, nil, true, "NoPods: " + no},
		"group, down": {states(down(100), down(40)), []*corev1.Pod{elsewhere}, nil, true,
			"NodeNotReady: its nodes are NotReady since 40 s"},
		"group, partly down": {states(down(40), well), []*corev1.Pod{lost}, nil, true,
			"PodsNotReady: a: its node n1 is NotReady since 40 s"},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{LocalService: localService(), Nodes: nodes("n1"), Services: []*corev1.Service{service("n1")},
				EndpointSlices: c.slices}
			if c.groups {
				in = published(localService(groupBy("zone")), nodes("n1:zone=a", "n2:zone=a"),
					on("n9", endpoint("x", "10.0.0.1", true)))
			}
			in.States, in.Pods, in.Now = c.states, c.pods, now
			if n := nodesOf(t, in).Items[0]; string(n.Reason)+": "+n.Message != c.want {
				t.Errorf("got %s: %s; want %s", n.Reason, n.Message, c.want)
			}
		})
	}
	in := Input{LocalService: localService(), Nodes: nodes("n1"), Services: []*corev1.Service{service("n1")},
		States: states(down(40))}
	if got, want := Nodes(in).Items[0].Message, "the node is NotReady since 2026-01-02 03:03:25 UTC"; got != want {
		t.Errorf("in a watch: %s; want %s", got, want)
	}
}

func TestMatches(t *testing.T) {
	taint := corev1.Taint{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}
	for toleration, want := range map[corev1.Toleration]bool{
		{Operator: corev1.TolerationOpExists}:                            true,
		{Key: "gpu", Operator: corev1.TolerationOpExists}:                true,
		{Key: "other", Operator: corev1.TolerationOpExists}:              false,
		{Key: "gpu", Value: "yes"}:                                       true,
		{Key: "gpu", Value: "yes", Operator: corev1.TolerationOpEqual}:   true,
		{Key: "gpu", Value: "no"}:                                        false,
		{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}: true,
		{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoExecute}:  false,
		{Key: "gpu", Value: "1", Operator: corev1.TolerationOpGt}:        true,
	} {
		if got := matches(&toleration, &taint); got != want {
			t.Errorf("%+v: %v", toleration, got)
		}
	}
}

// TestController: a controller that does not run, or has not acted, is one line about the LocalService.
func TestController(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	runs := Controller{Namespace: "ops", Name: "lsc", Holder: "lsc-7-x", Renewed: now.Add(-90 * time.Second)}
	stopped := runs
	stopped.Stopped = true
	changed := func(ls *v1alpha1.LocalService) { ls.Generation++ }
	well := Input{LocalService: localService(), Nodes: nodes("n1"), Services: []*corev1.Service{service("n1")},
		Pods: []*corev1.Pod{pod("a", "n1")}, Now: now,
		EndpointSlices: []*discoveryv1.EndpointSlice{slice("n1", endpoint("a", "10.0.0.1", true))}}
	const (
		stops = "The controller does not seem to run: Lease ops/lsc was last renewed 90 s ago. See whether its pods " +
			"run, and in their log what they wait for: kubectl get pods -n ops"
		waits = "The controller has not acted yet, although it runs. See whether it watches namespace default" +
			" (-namespaces), and its log: kubectl logs -n ops lsc-7-x"
		unknown = "The controller has not acted yet. See whether it runs, and whether it watches namespace default" +
			" (-namespaces): kubectl get pods -n local-service-system"
	)
	missing, unobserved, unlabelledPod, refused := well, well, well, well
	missing.Services = nil
	unobserved.LocalService = localService(changed)
	unlabelledPod.Pods = []*corev1.Pod{pod("a", "n1"), pod("b", "n1", unlabelled)}
	refused.Services, refused.LocalService = nil, localService(readyCondition(v1alpha1.ReasonWriteFailed, "no"))
	for name, c := range map[string]struct {
		in         Input
		controller Controller
		want       string
	}{
		"all is well":              {well, runs, ""},
		"all is well, not known":   {well, Controller{}, ""},
		"all is still well":        {well, stopped, stops},
		"missing":                  {missing, runs, waits},
		"missing, stopped":         {missing, stopped, stops},
		"missing, not known":       {missing, Controller{}, unknown},
		"missing, refused":         {refused, runs, ""},
		"not acted on the change":  {unobserved, runs, waits},
		"pods without their label": {unlabelledPod, runs, waits},
	} {
		c.in.Controller = c.controller
		if got := Nodes(c.in).Controller; got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
	if got := stopped.Stops(time.Time{}); !strings.Contains(got, "was last renewed at 2026-01-02 03:02:35 UTC.") {
		t.Errorf("in a watch: %s", got)
	}
}

// TestForeignSlices: what somebody else publishes under a name is named, with what to delete, and does not count as an
// endpoint.
func TestForeignSlices(t *testing.T) {
	in := Input{LocalService: localService(), Nodes: nodes("n1"), AllNodes: true,
		Services: []*corev1.Service{service("n1"), other("demo-n2", nil)[0]}, Pods: []*corev1.Pod{pod("a", "n1")},
		EndpointSlices: []*discoveryv1.EndpointSlice{slice("n1", endpoint("a", "10.0.0.1", true))}}
	foreign := func(node, manager, kind string, endpoints ...discoveryv1.Endpoint) {
		s := slice(node, endpoints...)
		s.Name, s.Labels[discoveryv1.LabelManagedBy] = "demo-"+node+"-"+manager, manager
		if kind != "" {
			s.OwnerReferences = controlledBy("v1", kind, "demo-"+node)
		}
		in.EndpointSlices = append(in.EndpointSlices, s)
	}
	foreign("n1", "endpointslicemirroring-controller.k8s.io", "Endpoints", endpoint("", "192.0.2.2", true),
		endpoint("", "192.0.2.1", true))
	foreign("n1", "somebody", "", endpoint("", "192.0.2.3", true))
	foreign("n1", "nobody", "")                                    // It publishes nothing.
	foreign("n2", "somebody", "", endpoint("", "192.0.2.4", true)) // The Service is not ours.
	const text = "Something else publishes %s under this name, too. If nothing needs it, delete it: kubectl delete %s -n " +
		"default"
	want := fmt.Sprintf(text, "192.0.2.1, 192.0.2.2", "endpoints demo-n1") + "\n" +
		fmt.Sprintf(text, "192.0.2.3", "endpointslice demo-n1-somebody")
	got := nodesOf(t, in)
	if got.Message != want {
		t.Errorf("got\n%s\nwant\n%s", got.Message, want)
	}
	if n := got.Items[0]; n.Endpoints != (Endpoints{1, 1}) || n.Reason != "" {
		t.Errorf("the name has %+v, %s: %s", n.Endpoints, n.Reason, n.Message)
	}
}

// TestNatural: numbers in names count as numbers.
func TestNatural(t *testing.T) {
	want := []string{"", "10", "a", "a-2-b", "a-2-c", "a-02-d", "a-10", "a-10-a", "a10", "b"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, Natural)
	if !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}
	for _, a := range want {
		for _, b := range want {
			if (Natural(a, b) == 0) != (a == b) || Natural(a, b) != -Natural(b, a) {
				t.Errorf("%q and %q: %d, %d", a, b, Natural(a, b), Natural(b, a))
			}
		}
	}
	in := Input{LocalService: localService(), Nodes: nodes("n10", "n9", "n1")}
	var order []string
	for _, n := range Nodes(in).Items {
		order = append(order, n.Node)
	}
	if !slices.Equal(order, []string{"n1", "n9", "n10"}) {
		t.Errorf("nodes in the order %v", order)
	}
}

// TestStatusCause: what the status is about, and the names that it is about, have the same cause.
func TestStatusCause(t *testing.T) {
	const quota = `services "demo-n1" is forbidden: exceeded quota: q, requested: services=1, used: services=1, ` +
		"limited: services=1"
	for want, c := range map[string]struct {
		reason, message string
		services        []*corev1.Service
	}{
		"name taken by another Service or node": {v1alpha1.ReasonNameTaken, "", other("demo-n1", nil)},
		`quota "q" is used up`:                  {v1alpha1.ReasonWriteFailed, quota, nil},
		"WriteFailed":                           {v1alpha1.ReasonWriteFailed, "denied", nil},
		"WritingServices":                       {v1alpha1.ReasonWritingServices, "", nil},
	} {
		in := Input{LocalService: localService(readyCondition(c.reason, c.message)), Nodes: nodes("n1"),
			Services: c.services}
		list := nodesOf(t, in)
		if got := list.Items[0].Cause(); got != want || list.Summary.Cause != want {
			t.Errorf("the name has the cause %q, the LocalService %q; want %q", got, list.Summary.Cause, want)
		}
	}
	in := Input{LocalService: localService(readyCondition(v1alpha1.ReasonWriteFailed, quota)), Nodes: nodes("n1"),
		Services: []*corev1.Service{service("n1")}}
	if got := nodesOf(t, in).Items[0].Cause(); got != "no pod" {
		t.Errorf("a name without a pod has the cause %q", got)
	}
}

// TestCause: problems of the same kind have the same cause, whatever the names of their pods.
func TestCause(t *testing.T) {
	for want, n := range map[string]Node{
		"": {},
		"CrashLoopBackOff": {Reason: PodsNotReady,
			Pods: []Pod{{Ready: true}, {Reason: "Terminating"}, {Reason: "CrashLoopBackOff"}}},
		"pods not ready":       {Reason: PodsNotReady},
		`quota "a" is used up`: {Reason: ServiceMissing, SharedCause: (&quota{name: "a"}).cause()},
		"no Service":           {Reason: ServiceMissing, Pods: []Pod{{Reason: "CrashLoopBackOff"}}},
		"NameGone":             {Reason: NameGone},
	} {
		if got := n.Cause(); got != want {
			t.Errorf("got %q; want %q", got, want)
		}
	}
}
