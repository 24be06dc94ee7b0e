package diagnose

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

const (
	nodeLabel = v1alpha1.DefaultNodeLabelKey

	notCreated = "no Service; the controller has not created it yet"
)

// TestStatusReasons checks node n1.
func TestStatusReasons(t *testing.T) {
	with := func(services []*corev1.Service, slices []*discoveryv1.EndpointSlice, pods ...*corev1.Pod) Input {
		return Input{Services: services, EndpointSlices: slices, Pods: pods}
	}
	of := func(changes ...func(*v1alpha1.LocalService)) Input {
		return Input{LocalService: localService(changes...)}
	}
	changed := func(changes ...func(*corev1.Service)) []*corev1.Service {
		return []*corev1.Service{service("n1", changes...)}
	}
	published := func(endpoints ...discoveryv1.Endpoint) []*discoveryv1.EndpointSlice {
		return []*discoveryv1.EndpointSlice{slice("n1", endpoints...)}
	}
	services, unready := changed(), published(endpoint("a", "10.0.0.1", false))
	readySlice, one, none := published(endpoint("a", "10.0.0.1", true)), Endpoints{1, 1}, Endpoints{}
	earlier := func(s *corev1.Service) { s.OwnerReferences[0].UID = "earlier" }
	without := func(s *corev1.Service) { s.OwnerReferences = nil }
	deleted := func(s *corev1.Service) { s.DeletionTimestamp = new(metav1.Now()) }
	withoutNode := func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "demo"} }
	publishNotReady := func(in Input) Input {
		in.LocalService = localService(func(ls *v1alpha1.LocalService) { ls.Spec.PublishNotReadyAddresses = true })
		return in
	}
	crash := notReady(waiting("CrashLoopBackOff"))

	for name, c := range map[string]struct {
		in        Input
		reason    Reason
		message   string // a part of it
		endpoints Endpoints
	}{
		"ready": {with(services, readySlice, pod("a", "n1")), "", "", one},
		"conflict with a Service that nothing controls": {with(other("demo-n1", nil), readySlice), NameConflict,
			"taken by a Service without an owner: if nothing uses it, delete it", none},
		"conflict with another LocalService": {with(other("demo-n1", controlledByLocalService("demo-of")), nil),
			NameConflict, "taken by a Service of LocalService demo-of", none},
		"conflict with another controller": {
			with(other("demo-n1", controlledBy("serving.knative.dev/v1", "Route", "r")), nil), NameConflict,
			"taken by a Service of Route r (serving.knative.dev/v1)", none},
		"Service of a LocalService of the same name, before": {with(changed(earlier), readySlice, pod("a", "n1")),
			ServiceTerminating,
			"of an earlier LocalService demo", one},
		"missing, never seen": {of(func(ls *v1alpha1.LocalService) { ls.Status = v1alpha1.LocalServiceStatus{} }),
			ServiceMissing, notCreated, none},
		"missing, change not seen": {of(readyCondition(v1alpha1.ReasonWriteFailed, ""),
			func(ls *v1alpha1.LocalService) { ls.Generation++ }), ServiceMissing, notCreated, none},
		"missing, not noticed": {Input{}, ServiceMissing, notCreated, none},
		"missing, refused": {of(readyCondition(v1alpha1.ReasonWriteFailed, "1 write failed: denied")),
			ServiceMissing, "no Service; 1 write failed: denied", none},
		"missing, by a quota": {of(readyCondition(v1alpha1.ReasonWriteFailed, "1 write failed: create Service "+
			`default/demo-n1: services "demo-n1" is forbidden: exceeded quota: svc.a, requested: `+
			"services=1,services.nodeports=1, used: services=3,services.nodeports=0, limited: services=3,"+
			"services.nodeports=9; each is tried again within two minutes")),
			ServiceMissing, `quota "svc.a" is used up (3 of 3): raise it; 1 Service waits`, none},
		"missing, because the node lacks a label": {of(func(ls *v1alpha1.LocalService) {
			ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: map[string]string{"a": "$(NODE_LABEL['zone'])"}}
		}), ServiceMissing, "no Service; the node has no label zone, for which spec.serviceMetadata has a variable: label " +
			"the node", none},
		"missing, LocalService deleted": {of(func(ls *v1alpha1.LocalService) {
			ls.DeletionTimestamp = new(metav1.Now())
		}), ServiceMissing, "the LocalService is being deleted", none},
		"Service terminating": {with(changed(deleted), nil), ServiceTerminating, "being deleted", none},
		"Service selects something else": {with(changed(withoutNode), readySlice, pod("a", "n1")), ServiceOutdated,
			"selects app=demo instead of app=demo,vm/rack=n1", one},
		"Service without its label": {with(other("demo-n1", controlledByLocalService("demo")), nil), ServiceOutdated,
			"has lost its label owner=demo", none},
		"Service orphaned": {with(changed(without), readySlice, pod("a", "n1")), ServiceOutdated,
			"the Service has lost its owner; the controller has not adopted it yet", one},
		"Service orphaned, and being deleted": {with(changed(without, deleted), nil), ServiceTerminating,
			"being deleted", none},
		"pod elsewhere with this node's label": {with(services, readySlice, pod("a", "n1"),
			pod("b", "n2", labelled("n1"))), PodsOfOtherNode, "labelled vm/rack=n1, but on another node: b (n2)", one},
		"ended pod elsewhere with this node's label": {with(services, readySlice, pod("a", "n1"),
			pod("b", "n2", labelled("n1"), terminating),
			pod("c", "n2", labelled("n1"), phase(corev1.PodSucceeded, ""))), "", "", one},
		"pod without label": {with(services, nil, pod("a", "n1", unlabelled)), PodsUnlabelled,
			"no label vm/rack=n1: a; the pod's events say whether it was refused", none},
		"pod with a wrong label": {with(services, nil, pod("a", "n1", labelled("n7"))), PodsMislabelled,
			"a has vm/rack=n7 instead of n1: ", none},
		"pod without label beside a ready one": {with(services, readySlice, pod("a", "n1"),
			pod("b", "n1", unlabelled)), PodsUnlabelled, "vm/rack=n1: b;", one},
		"pods not ready": {with(services, unready, pod("d", "n1", crash), pod("c", "n1", crash),
			pod("b", "n1", notReady(running)), pod("a", "n1", crash), pod("e", "n1", crash)), PodsNotReady,
			"a: CrashLoopBackOff; b: container app runs, but its readiness probe does not succeed; c: CrashLoopBackOff; 2 more",
			Endpoints{0, 1}},
		"one of two pods not ready": {with(services, published(endpoint("a", "10.0.0.1", true),
			endpoint("b", "10.0.0.2", false)), pod("a", "n1"), pod("b", "n1", crash)), PodsNotReady,
			"b: CrashLoopBackOff", Endpoints{1, 2}},
		"not ready, but published all the same": {publishNotReady(with(services, readySlice, pod("a", "n1", crash))),
			"", "", one},
		"not ready, to be published all the same": {publishNotReady(with(services, nil, pod("a", "n1", crash))),
			PodsNotReady, "CrashLoopBackOff", none},
		"not published yet": {with(services, nil, pod("a", "n1")), EndpointsNotPublished,
			"ready, but not in the EndpointSlices: a; kube-controller-manager has not added it yet", none},
		"not published as ready yet": {with(services, unready, pod("a", "n1")), EndpointsNotPublished,
			"ready, but not in the EndpointSlices: a", Endpoints{0, 1}},
		"published under an address that no pod has": {with(services, published(endpoint("a", "10.0.0.9", true)),
			pod("a", "n1")), EndpointsNotPublished, "the name leads to 10.0.0.9, where no pod is any more", Endpoints{0, 1}},
		"one published in place of another": {with(services, published(endpoint("old", "10.0.0.9", true)),
			pod("a", "n1")), EndpointsNotPublished, "leads to 10.0.0.9", Endpoints{0, 1}},
		"published for a pod that has ended": {with(services, readySlice, pod("a", "n1", phase(corev1.PodFailed, ""))),
			EndpointsNotPublished, "leads to 10.0.0.1", Endpoints{0, 1}},
		"an endpoint too many, as that is not ready": {with(services, published(endpoint("a", "10.0.0.1", true),
			endpoint("b", "10.0.0.2", false)), pod("a", "n1")), EndpointsNotPublished,
			"1 of 2 endpoints are ready, although all pods are", Endpoints{1, 2}},
		"only terminating": {with(services, published(terminatingEndpoint(endpoint("a", "10.0.0.1", false))),
			pod("a", "n1", terminating), pod("b", "n1", phase(corev1.PodSucceeded, ""))), PodsTerminating,
			"only terminating pods: a", none},
		"only ended": {with(services, nil, pod("a", "n1", phase(corev1.PodFailed, "Evicted")),
			pod("b", "n1", phase(corev1.PodSucceeded, ""))), PodsCompleted,
			"only ended pods: a (Evicted), b (Succeeded)", none},
		"no pod": {with(services, nil, pod("a", "n2"),
			pod("b", "n1", func(p *corev1.Pod) { p.Labels["app"] = "x" })), NoPods, "no pod with app=demo here", none},
		"no pod, but unscheduled ones": {with(services, nil, pod("a", "", notReady(running))), NoPods,
			"no pod with app=demo here (1 not scheduled yet)", none},
	} {
		t.Run(name, func(t *testing.T) {
			if c.in.LocalService == nil {
				c.in.LocalService = localService()
			}
			c.in.Nodes = nodes("n1")
			got := nodesOf(t, c.in).Items[0]
			if got.Reason != c.reason || !strings.Contains(got.Message, c.message) ||
				(c.reason == "") != (got.Message == "") {
				t.Errorf("got %q: %q; want %q: …%q…", got.Reason, got.Message, c.reason, c.message)
			}
			if got.Endpoints != c.endpoints {
				t.Errorf("endpoints %v; want %v", got.Endpoints, c.endpoints)
			}
		})
	}
}

func TestNodes(t *testing.T) {
	long := "ip-10-0-0-3.ec2.internal"
	in := Input{
		LocalService: localService(),
		Nodes:        nodes("n2", long, "n1"),
		Services:     []*corev1.Service{service(long), service("n1"), service("n3")},
		EndpointSlices: []*discoveryv1.EndpointSlice{
			slice(long, endpoint("a", "10.0.0.2", true), endpoint("b", "10.0.0.1", true)),
			slice(long, endpoint("a", "fd00::2", true), endpoint("b", "fd00::1", false)), // The other address family.
			slice(long, endpoint("", "10.0.0.9", true), terminatingEndpoint(endpoint("c", "10.0.0.8", false))),
			slice(long, discoveryv1.Endpoint{Addresses: []string{"10.0.0.3"}}), // Unknown is ready.
		},
		Pods: []*corev1.Pod{pod("b", long, at("10.0.0.1", "fd00::1")), pod("a", long, at("10.0.0.2", "fd00::2")),
			pod("c", long, terminating)},
		ClusterDomain: "example.org",
	}
	got := nodesOf(t, in)
	want := &NodeList{
		TypeMeta:  metav1.TypeMeta{APIVersion: "view.localservice.dev/v1alpha1", Kind: "LocalServiceNodeList"},
		Namespace: "default", LocalService: "demo", Mode: v1alpha1.ModeServices,
		Summary: Summary{Nodes: 3, Answering: 1},
		Controller: "The controller has not acted yet. See whether it runs, and whether it " +
			"watches namespace default (-namespaces): kubectl get pods -n local-service-system",
		Items: []Node{{
			Node: long, Service: naming.ServiceName("demo", long),
			DNSName:   naming.ServiceName("demo", long) + ".default.svc.example.org",
			Endpoints: Endpoints{Ready: 4, Total: 4}, Addresses: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3",
				"10.0.0.9", "fd00::2"},
			Pods: []Pod{
				{Name: "a", Ready: true, NodeLabel: long},
				{Name: "b", Ready: true, NodeLabel: long},
				{Name: "c", NodeLabel: long, Reason: "Terminating", Message: "Terminating"},
			},
		}, {
			Node: "n1", Service: "demo-n1", DNSName: "demo-n1.default.svc.example.org", Addresses: []string{},
			Pods:   []Pod{},
			Reason: NoPods, Message: "no pod with app=demo here",
		}, {
			Node: "n2", Service: "demo-n2", DNSName: "demo-n2.default.svc.example.org", Addresses: []string{},
			Pods:   []Pod{},
			Reason: ServiceMissing, Message: notCreated,
		}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("wrong view (-want +got):\n%s", diff)
	}
	for i, has := range []bool{true, true, false} {
		if got.Items[i].HasService() != has {
			t.Errorf("HasService of %s is not %v", got.Items[i].Node, has)
		}
	}
}

func TestKnownNodes(t *testing.T) {
	foreign := service("n2", func(s *corev1.Service) { s.OwnerReferences = nil })
	got := KnownNodes(Input{LocalService: localService(), Services: []*corev1.Service{service("n1"), foreign}})
	if !cmp.Equal(got, map[string]labels.Set{"n1": nil}) {
		t.Errorf("got %v; want n1", got)
	}
}

func TestNodeLabelKey(t *testing.T) {
	keyed := func(node, key string) *corev1.Service {
		return service(node, func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "demo", key: node} })
	}
	foreign := keyed("n3", "evil")
	foreign.OwnerReferences = nil
	for name, c := range map[string]struct {
		services []*corev1.Service
		want     string
	}{
		"no Services": {nil, nodeLabel},
		"the default": {[]*corev1.Service{keyed("n1", nodeLabel)}, nodeLabel},
		"another one": {[]*corev1.Service{keyed("n1", "example.org/node")}, "example.org/node"},
		"foreign":     {[]*corev1.Service{foreign}, nodeLabel},
		"for no node": {[]*corev1.Service{keyed("", "evil")}, nodeLabel},
	} {
		if got := nodeLabelKey(localService(), c.services); got != c.want {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}

// TestMissingLabels: a node without a label for which a variable stands takes no name from another one. The Service that
// it has is out of date, unless there is worse. Of a spec that is invalid, no label is asked for.
func TestMissingLabels(t *testing.T) {
	variable := func(ls *v1alpha1.LocalService) {
		ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: map[string]string{"a": "$(NODE_LABEL['zone'])"}}
	}
	zoned := map[string]labels.Set{"x.y": {"zone": "a"}, "x-y": {}}
	const label = "the node has no label zone, for which spec.serviceMetadata has a variable: label the node, or correct the key"
	answering := []*discoveryv1.EndpointSlice{slice("x-y", endpoint("a", "10.0.0.1", true))}
	for name, c := range map[string]struct {
		edit     func(*v1alpha1.LocalService)
		services []*corev1.Service
		nodes    map[string]labels.Set
		slices   []*discoveryv1.EndpointSlice
		want     []string // the names, reasons and messages of x-y and of x.y
	}{
		"a rival": {variable, []*corev1.Service{service("x.y")}, zoned, nil, []string{" ServiceMissing no Service; " + label,
			"demo-x-y NoPods no pod with app=demo here"}},
		"without a Service": {variable, nil, map[string]labels.Set{"x-y": {}}, nil,
			[]string{"demo-x-y ServiceMissing no Service; " + label}},
		"its own Service": {variable, []*corev1.Service{service("x-y")}, map[string]labels.Set{"x-y": {}}, answering,
			[]string{"demo-x-y ServiceOutdated the Service stays as it was; " + label}},
		"its own Service, without a pod": {variable, []*corev1.Service{service("x-y")}, map[string]labels.Set{"x-y": {}}, nil,
			[]string{"demo-x-y NoPods no pod with app=demo here"}},
		"its own Service, of an earlier spec": {variable, []*corev1.Service{service("x-y", func(s *corev1.Service) {
			s.Spec.Selector = map[string]string{"app": "old"}
		})}, map[string]labels.Set{"x-y": {}}, answering, []string{
			"demo-x-y ServiceOutdated the Service selects app=old instead of app=demo," + nodeLabel + "=x-y; " + label}},
		"an invalid spec": {func(ls *v1alpha1.LocalService) {
			variable(ls)
			readyCondition(v1alpha1.ReasonInvalidSpec, "x")(ls)
		}, []*corev1.Service{service("x.y")}, zoned, nil, []string{"demo-x-y ServiceOutdated the Service selects app=demo," +
			nodeLabel + "=x.y instead of app=demo," + nodeLabel + "=x-y; x",
			" NameConflict the name is that of node x-y: select only one of the two nodes"}},
	} {
		in := Input{LocalService: localService(c.edit), Services: c.services, Nodes: c.nodes, AllNodes: true,
			EndpointSlices: c.slices, PodsUnknown: c.slices != nil}
		var got []string
		for _, item := range Nodes(in).Items {
			got = append(got, fmt.Sprint(item.Service, " ", item.Reason, " ", item.Message))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestRivals: of two nodes that want one name, the one without it is reported, in both modes.
func TestRivals(t *testing.T) {
	for _, changes := range [][]func(*v1alpha1.LocalService){nil, {hostnamesMode}} {
		ls := localService(changes...)
		in := Input{LocalService: ls, Nodes: map[string]labels.Set{"x.y": {}, "x-y": {}}, AllNodes: true}
		items := Nodes(in).Items
		var holder, other Node
		for _, item := range items {
			if item.Node == "x-y" {
				holder = item
			} else {
				other = item
			}
		}
		if holder.Reason == NameConflict || holder.Service == "" || other.Reason != NameConflict || other.Service != "" ||
			other.Message != "the name is that of node x-y: select only one of the two nodes" {
			t.Errorf("%s: %+v", ls.Spec.Mode, items)
		}
	}
}
