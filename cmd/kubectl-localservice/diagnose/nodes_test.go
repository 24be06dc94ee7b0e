package diagnose

import (
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

	notNoticed = "the controller has not noticed yet: is it running, and does it watch this namespace (-namespaces)?"
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
		"Service of a LocalService of the same name, before": {with(changed(earlier), readySlice), ServiceTerminating,
			"of an earlier LocalService demo", one},
		"missing, never seen": {of(func(ls *v1alpha1.LocalService) { ls.Status = v1alpha1.LocalServiceStatus{} }),
			ServiceMissing, notNoticed, none},
		"missing, change not seen": {of(readyCondition(v1alpha1.ReasonWriteFailed, ""),
			func(ls *v1alpha1.LocalService) { ls.Generation++ }), ServiceMissing, notNoticed, none},
		"missing, not noticed": {Input{}, ServiceMissing, notNoticed, none},
		"missing, refused": {of(readyCondition(v1alpha1.ReasonWriteFailed, "1 writes failed: exceeded quota")),
			ServiceMissing, "no such Service: the controller says WriteFailed: 1 writes failed: exceeded quota", none},
		"missing, LocalService deleted": {of(func(ls *v1alpha1.LocalService) {
			ls.DeletionTimestamp = new(metav1.Now())
		}), ServiceMissing, "the LocalService is being deleted", none},
		"Service terminating": {with(changed(deleted), nil), ServiceTerminating, "being deleted", none},
		"Service selects something else": {with(changed(withoutNode), readySlice, pod("a", "n1")), ServiceOutdated,
			"selects app=demo instead of app=demo,vm/rack=n1", one},
		"Service without its label": {with(other("demo-n1", controlledByLocalService("demo")), nil), ServiceOutdated,
			"has lost its label owner=demo", none},
		"Service orphaned": {with(changed(without), readySlice, pod("a", "n1")), ServiceOutdated,
			"nothing controls the Service any more", one},
		"Service orphaned, and being deleted": {with(changed(without, deleted), nil), ServiceTerminating,
			"being deleted", none},
		"pod elsewhere with this node's label": {with(services, readySlice, pod("a", "n1"),
			pod("b", "n2", labelled("n1"))), PodsOfOtherNode, "labelled vm/rack=n1, but on another node: b (n2)", one},
		"ended pod elsewhere with this node's label": {with(services, readySlice, pod("a", "n1"),
			pod("b", "n2", labelled("n1"), terminating),
			pod("c", "n2", labelled("n1"), phase(corev1.PodSucceeded, ""))), "", "", one},
		"pod without label": {with(services, nil, pod("a", "n1", unlabelled)), PodsUnlabelled,
			"no label vm/rack=n1: a; is the controller running, or was the label refused", none},
		"pod with a wrong label": {with(services, nil, pod("a", "n1", labelled("n7"))), PodsMislabelled,
			"a has vm/rack=n7 instead of n1: ", none},
		"pod without label beside a ready one": {with(services, readySlice, pod("a", "n1"),
			pod("b", "n1", unlabelled)), PodsUnlabelled, ": b;", one},
		"pods not ready": {with(services, unready, pod("d", "n1", crash), pod("c", "n1", crash),
			pod("b", "n1", notReady(running)), pod("a", "n1", crash), pod("e", "n1", crash)), PodsNotReady,
			"not ready: a (CrashLoopBackOff), b (containers with unready status: [app]), c (CrashLoopBackOff), 2 more",
			Endpoints{0, 1}},
		"one of two pods not ready": {with(services, published(endpoint("a", "10.0.0.1", true),
			endpoint("b", "10.0.0.2", false)), pod("a", "n1"), pod("b", "n1", crash)), PodsNotReady,
			"not ready: b (CrashLoopBackOff)", Endpoints{1, 2}},
		"not ready, but published all the same": {publishNotReady(with(services, readySlice, pod("a", "n1", crash))),
			"", "", one},
		"not ready, to be published all the same": {publishNotReady(with(services, nil, pod("a", "n1", crash))),
			PodsNotReady, "CrashLoopBackOff", none},
		"not published yet": {with(services, nil, pod("a", "n1")), EndpointsNotPublished,
			"0 of 1 ready pods are in the EndpointSlices", none},
		"not published as ready yet": {with(services, unready, pod("a", "n1")), EndpointsNotPublished,
			"0 of 1 ready pods", Endpoints{0, 1}},
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
		Pods:          []*corev1.Pod{pod("b", long), pod("a", long), pod("c", long, terminating)},
		ClusterDomain: "example.org",
	}
	got := nodesOf(t, in)
	want := &NodeList{
		TypeMeta:  metav1.TypeMeta{APIVersion: "view.localservice.dev/v1alpha1", Kind: "LocalServiceNodeList"},
		Namespace: "default", LocalService: "demo", Mode: v1alpha1.ModeServices,
		Summary: Summary{Nodes: 3, Answering: 1},
		Items: []Node{{
			Node: long, Service: naming.ServiceName("demo", long),
			DNSName:   naming.ServiceName("demo", long) + ".default.svc.example.org",
			Endpoints: Endpoints{Ready: 4, Total: 4}, Addresses: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3",
				"10.0.0.9", "fd00::2"},
			Pods: []Pod{
				{Name: "a", Ready: true, NodeLabel: long},
				{Name: "b", Ready: true, NodeLabel: long},
				{Name: "c", NodeLabel: long, Reason: "Terminating"},
			},
		}, {
			Node: "n1", Service: "demo-n1", DNSName: "demo-n1.default.svc.example.org", Addresses: []string{},
			Pods:   []Pod{},
			Reason: NoPods, Message: "no pod with app=demo here",
		}, {
			Node: "n2", Service: "demo-n2", DNSName: "demo-n2.default.svc.example.org", Addresses: []string{},
			Pods:   []Pod{},
			Reason: ServiceMissing, Message: "no such Service: " + notNoticed,
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

func TestWhyNotReady(t *testing.T) {
	initState := func(state corev1.ContainerState) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			notReady(waiting("PodInitializing"))(p)
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: running}, {State: state}}
		}
	}
	for want, change := range map[string]func(*corev1.Pod){
		"":                                      func(*corev1.Pod) {},
		"Evicted":                               phase(corev1.PodFailed, "Evicted"),
		"Failed":                                phase(corev1.PodFailed, ""),
		"Terminating":                           terminating,
		"ImagePullBackOff":                      notReady(waiting("ImagePullBackOff")),
		"OOMKilled":                             notReady(terminated("OOMKilled", 137)),
		"Error":                                 notReady(terminated("", 3)),
		"CrashLoopBackOff":                      initState(waiting("CrashLoopBackOff")),
		"PodInitializing":                       initState(terminated("Completed", 0)),
		"containers with unready status: [app]": notReady(running),
		"NodeLost": func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Reason: "NodeLost"}
		},
		"is its node down?": func(p *corev1.Pod) { p.Status = corev1.PodStatus{} },
	} {
		if got := whyNotReady(pod("a", "n1", change)); got != want {
			t.Errorf("got %q; want %q", got, want)
		}
	}
}
