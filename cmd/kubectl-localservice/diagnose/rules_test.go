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

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const nodeLabel = v1alpha1.DefaultNodeLabelKey

// now is the time in these tests.
var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// TestRules checks what is found of node n1, unless a case has other nodes: its reason, state, endpoints and message.
func TestRules(t *testing.T) {
	of := func(changes ...func(*v1alpha1.LocalService)) Input {
		return Input{LocalService: localService(changes...)}
	}
	with := func(services []*corev1.Service, slices []*discoveryv1.EndpointSlice, pods ...*corev1.Pod) Input {
		return Input{Services: services, EndpointSlices: slices, Pods: pods}
	}
	on := func(in Input, nodes ...*corev1.Node) Input {
		in.Nodes = nodes
		return in
	}
	changed := func(changes ...func(*corev1.Service)) []*corev1.Service {
		return []*corev1.Service{aService("n1", changes...)}
	}
	published := func(pods ...string) []*discoveryv1.EndpointSlice {
		return []*discoveryv1.EndpointSlice{objects.EndpointSlice("demo-n1", pods...)}
	}
	services, unready := changed(), published("a!")
	ready := published("a")
	both := published("a", "b!")
	deleted := func(s *corev1.Service) { s.DeletionTimestamp = new(metav1.Now()) }
	withoutOwner := func(s *corev1.Service) { s.OwnerReferences = nil }
	publishing := func(in Input) Input {
		in.LocalService = localService(func(ls *v1alpha1.LocalService) { ls.Spec.PublishNotReadyAddresses = true })
		return in
	}
	mesh := func(ready bool) []*discoveryv1.EndpointSlice {
		s := objects.EndpointSlice("demo-n1", "z")
		s.Labels[discoveryv1.LabelManagedBy] = "endpointslice-mesh-controller.cilium.io"
		s.Endpoints[0].TargetRef, s.Endpoints[0].Conditions.Ready = nil, &ready
		return []*discoveryv1.EndpointSlice{s}
	}
	crash := objects.NotReady(objects.Waiting("CrashLoopBackOff"))
	daemon := func(node string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
						Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}}
		}
	}
	amid := func(in Input, around Around) Input {
		in.Around = around
		return in
	}
	event := func(reason, kind, name, message string) corev1.Event {
		return corev1.Event{Reason: reason, Message: message, InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name}}
	}
	claiming := func(claim string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "token"}, {VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
		}
	}
	generated := func(from string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.GenerateName = from } }
	holding := func(port int32) func(*corev1.Pod) { return containing(corev1.ContainerPort{HostPort: port}) }
	conditioned := func(serving, terminating bool) []*discoveryv1.EndpointSlice {
		slices := published("a")
		c := &slices[0].Endpoints[0].Conditions
		c.Ready, c.Serving, c.Terminating = new(!terminating), &serving, &terminating
		return slices
	}
	const (
		few = "Deployment web has 1 replica for 2 names: scale it, by minReplicas if a HorizontalPodAutoscaler does, or " +
			"use a DaemonSet"
		label  = "pods lack the label vm/rack, or have that of another node "
		events = "; see why: kubectl get events -n default --field-selector=reason=NodeLabelRefused; without one, see " +
			"whether the controller runs and labels pods (-label-pods)"
		log    = "; see kubectl logs -n default "
		others = "1 of 2 endpoints are ready, the others are of no pod here; see who manages their EndpointSlice: " +
			"kubectl get endpointslices -n default -l kubernetes.io/service-name=demo-n1 --show-labels"
		no      = "no matching pod here"
		demo    = " (app=demo)"
		node    = "; see kubectl describe node n1"
		gpus    = "; the node is tainted with gpu=yes:NoSchedule, which its pods do not tolerate"
		waits   = "not scheduled: 0/3 nodes are available: 3 Insufficient cpu."
		another = "; create this LocalService under another name: deleting the Service does not help, as its owner " +
			"would create it again"
	)
	for name, c := range map[string]struct {
		in        Input
		reason    Reason
		state     State
		endpoints string
		message   string
	}{
		"ready": {with(services, ready, objects.Pod("a", "n1")), "", Healthy, "1/1", ""},
		"taken by nobody": {with(other("demo-n1", nil), ready), NameConflict, Down, "0/0", "the name is taken by a Service " +
			"without an owner (demo-n1); if it is for the pods on node n1, have it adopted: kubectl patch service -n " +
			`default demo-n1 --type=merge -p '{"metadata":{"labels":{"owner":"demo"}},"spec":{"selector":{"vm/rack":` +
			`"n1"}}}'; if nothing uses it, delete it; otherwise create this LocalService under another name`},
		"taken by another LocalService": {with(other("demo-n1", objects.ControlledBy(v1alpha1.SchemeGroupVersion.String(), v1alpha1.Kind, "demo-of")), nil), NameConflict,
			Down, "0/0", "the name is taken by a Service of LocalService demo-of (demo-n1)" + another},
		"taken by another node": {on(of(), nodesWith("x-y", "x.y")[1], nodesWith("x-y")[0]), ServiceMissing, Down, "0/0",
			"no Service; the controller has not written it yet"},
		"earlier": {with(changed(func(s *corev1.Service) { s.OwnerReferences[0].UID = "earlier" }), ready, objects.Pod("a", "n1")),
			ServiceOutdated, Degraded, "1/1", "the Service is being deleted"},
		"missing, change not seen": {of(objects.Reporting(metav1.ConditionFalse, v1alpha1.ReasonWriteFailed, "x"),
			func(ls *v1alpha1.LocalService) { ls.Generation++ }), ServiceMissing, Down, "0/0",
			"no Service; the controller has not written it yet"},
		"missing, refused": {of(objects.Reporting(metav1.ConditionFalse, v1alpha1.ReasonWriteFailed, "1 write failed: exceeded\nquota")),
			ServiceMissing, Down, "0/0", `no Service; 1 write failed: exceeded\nquota`},
		"missing, LocalService deleted": {of(func(ls *v1alpha1.LocalService) { ls.DeletionTimestamp = new(metav1.Now()) }),
			ServiceMissing, Down, "0/0", "no Service; the LocalService is being deleted"},
		"terminating": {with(changed(deleted), nil), ServiceOutdated, Down, "0/0", "the Service is being deleted"},
		"selects something else": {with(changed(func(s *corev1.Service) {
			s.Spec.Selector = map[string]string{"app": "demo"}
		}), ready, objects.Pod("a", "n1")), ServiceOutdated, Degraded, "1/1", "the Service has another selector than the " +
			`LocalService says; the controller has not written it yet (app=demo)`},
		"orphaned": {with(changed(withoutOwner), ready, objects.Pod("a", "n1")), ServiceOutdated, Degraded, "1/1",
			"the Service differs from the LocalService in ownerReferences; the controller has not written it yet"},
		"another port": {with(changed(func(s *corev1.Service) {
			s.Spec.Ports, s.Spec.SessionAffinity = []corev1.ServicePort{{Port: 80}}, corev1.ServiceAffinityClientIP
		}), ready, objects.Pod("a", "n1")), ServiceOutdated, Degraded, "1/1", "the Service differs from the LocalService in " +
			"ports, sessionAffinity; the controller has not written it yet"},
		"another port, and no pod": {with(changed(func(s *corev1.Service) {
			s.Spec.Ports = []corev1.ServicePort{{Port: 80}}
		}), nil), NoPods, Empty, "0/0", no + demo},
		"another port, and the spec is invalid": {func() Input {
			in := with(changed(func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{{Port: 80}} }), ready,
				objects.Pod("a", "n1"))
			in.LocalService = localService(func(ls *v1alpha1.LocalService) { ls.Spec.GroupBy = "zone" })
			return in
		}(), "", Healthy, "1/1", ""},
		"orphaned, and being deleted": {with(changed(withoutOwner, deleted), nil), ServiceOutdated, Down, "0/0",
			"the Service is being deleted"},

		"pod elsewhere with this node's label": {with(services, ready, objects.Pod("a", "n1"), objects.Pod("b", "n2", labelled("n1"))),
			PodsMislabelled, Degraded, "1/1", label + "(b on n2 has n1)" + events},
		"ended pod elsewhere with this node's label": {with(services, ready, objects.Pod("a", "n1"),
			objects.Pod("b", "n2", labelled("n1"), objects.Ending), objects.Pod("c", "n2", labelled("n1"), phase(corev1.PodSucceeded, ""))),
			"",
			Healthy, "1/1", ""},
		"pod without label": {with(services, ready, objects.Pod("a", "n1"), objects.Pod("b", "n1", objects.Unlabelled)), PodsMislabelled, Degraded,
			"1/1", label + "(b on n1 has none)" + events},
		"pods with another label": {with(services, nil, objects.Pod("a", "n1", labelled("n7")), objects.Pod("b", "n1", labelled(""))),
			PodsMislabelled, Down, "0/0", label + "(a on n1 has n7, b on n1 has none)" + events},

		"pods not ready": {with(services, unready, objects.Pod("d", "n1", crash), objects.Pod("c", "n1", crash),
			objects.Pod("b", "n1", objects.NotReady(running)), objects.Pod("a", "n1", crash), objects.Pod("e", "n1", crash)), PodsNotReady, Down,
			"0/1",
			"CrashLoopBackOff (a, c, d and 2 more)" + log + "a"},
		"pods that wait": {with(services, unready, objects.Pod("a", "n1", objects.NotReady(objects.Waiting("ContainerCreating")))), PodsNotReady,
			Down, "0/1", "ContainerCreating: it waits for its volumes, its image or the network (a); see kubectl describe pod -n default a"},
		"pods not ready for several causes": {with(services, unready, objects.Pod("a", "n1", crash),
			objects.Pod("b", "n1", objects.NotReady(running))), PodsNotReady, Down, "0/1",
			"CrashLoopBackOff (a, b: its readiness probe does not succeed)" + log + "a"},
		"one of two pods not ready": {with(services, both, objects.Pod("a", "n1"), objects.Pod("b", "n1", crash)), PodsNotReady, Degraded,
			"1/2", "CrashLoopBackOff (b)" + log + "b"},
		"not ready, but published": {publishing(with(services, ready, objects.Pod("a", "n1", crash))), PodsNotReady, Degraded, "1/1",
			"CrashLoopBackOff (a)" + log + "a"},
		"not ready, but published, as Kubernetes does": {publishing(with(services, conditioned(false, false), objects.Pod("a", "n1", crash))), PodsNotReady, Down, "0/1", "CrashLoopBackOff (a)" + log + "a"},
		"not published yet": {with(services, nil, objects.Pod("a", "n1")), EndpointsOutdated, Down, "0/0",
			"pods are ready, but not in the EndpointSlices; kube-controller-manager has not added them yet (a)"},
		"not published, as a quota is used up": {amid(with(services, nil, objects.Pod("a", "n1")), Around{Events: []corev1.Event{
			event(eventUnpublished, "Service", "demo-n1", "of before"), event(eventUnpublished, "Service", "demo-n1",
				"Error updating Endpoint Slices for Service default/demo-n1: endpointslices \"demo-n1-x7x\" is forbidden: "+
					"exceeded quota: objects"), event(eventUnpublished, "Service", "demo-n10", "of another")}}),
			EndpointsOutdated, Down, "0/0", "pods are ready, but not in the EndpointSlices; Error updating Endpoint Slices " +
				"for Service default/…: endpointslices \"…\" is forbidden: exceeded quota: objects (a)"},
		"an endpoint too many, as that is not ready": {with(services, both, objects.Pod("a", "n1")), EndpointsOutdated, Degraded,
			"1/2", others},
		"published by a mesh":      {with(services, mesh(true)), "", Healthy, "1/1", ""},
		"published by a mesh, too": {with(services, slices.Concat(ready, mesh(true)), objects.Pod("a", "n1")), "", Healthy, "2/2", ""},
		"published by a mesh, not ready": {with(services, slices.Concat(ready, mesh(false)), objects.Pod("a", "n1")),
			EndpointsOutdated, Degraded, "1/2", others},

		"only terminating": {with(services, conditioned(false, true),
			objects.Pod("a", "n1", objects.Ending), objects.Pod("b", "n1", phase(corev1.PodSucceeded, ""))), PodsEnded, Down, "0/0",
			"only terminating pods (a)"},
		"only ended": {with(services, nil, objects.Pod("a", "n1", phase(corev1.PodFailed, "Evicted")),
			objects.Pod("b", "n1", phase(corev1.PodSucceeded, ""))), PodsEnded, Empty, "0/0",
			"only ended pods: Evicted (a, b: Succeeded)"},
		"only ended, and published as not ready": {with(services, unready, objects.Pod("a", "n1", phase(corev1.PodSucceeded, ""))),
			PodsEnded, Empty, "0/0", "only ended pods: Succeeded (a)"},
		"a Job": {with(services, nil, objects.Pod("a", "n1", phase(corev1.PodSucceeded, ""), madeBy("Job", "backup"))),
			PodsEnded, Empty, "0/0", "only ended pods: Succeeded (a); a name needs pods that keep running, such as those " +
				"of a Deployment or DaemonSet: a Job ends"},
		"no pod": {with(services, nil, objects.Pod("a", "n2"), objects.Pod("b", "n1", func(p *corev1.Pod) { p.Labels["app"] = "x" })),
			NoPods, Empty, "0/0", no + demo},
		"a pod waits that could come here": {on(with(services, nil, objects.Pod("a", "", unscheduled, inPool("a"))),
			nodesWith("n1:pool=a")...), PodsNotReady, Down, "0/0", waits + " (a)"},
		"a pod waits that could not come here": {on(with(services, nil, objects.Pod("a", "", unscheduled, inPool("a"))),
			nodesWith("n1:pool=b")...), NoPods, Empty, "0/0", no + demo},
		"a pod waits in place of an ended one": {with(services, nil, objects.Pod("a", "n1", phase(corev1.PodFailed, "Evicted")),
			objects.Pod("b", "", unscheduled)), PodsNotReady, Down, "0/0", waits + " (b)"},
		"a waiting pod is deleted": {with(services, nil, objects.Pod("a", "", unscheduled, objects.Ending)), NoPods, Empty, "0/0",
			no + demo},
		"fewer replicas than names": {amid(on(with(services, nil, objects.Pod("a", "n2")), nodesWith("n1", "n2")...), Around{
			Workloads: []Workload{{"Deployment", "other", labels.Set{"app": "x"}, 0},
				{"Deployment", "web", labels.Set{"app": "demo"}, 1}}}), NoPods, Empty, "0/0", no + demo + "; " + few},
		"as many replicas as names": {amid(on(with(services, nil, objects.Pod("a", "n2")), nodesWith("n1", "n2")...), Around{
			Workloads: []Workload{{"Deployment", "web", labels.Set{"app": "demo"}, 2}}}), NoPods, Empty, "0/0", no + demo},

		"cordoned": {on(with(services, nil, objects.Pod("b", "n9"), objects.Pod("c", "", unscheduled)), node1(cordoned)),
			NodeUnschedulable, Empty, "0/0", no + "; the node is cordoned" + demo},
		"cordoned, with a pod": {on(with(services, unready, objects.Pod("a", "n1", crash)), node1(cordoned)), PodsNotReady, Down,
			"0/1", "CrashLoopBackOff (a)" + log + "a"},
		"tainted": {on(with(services, nil, objects.Pod("b", "n9")), node1(gpu)), NodeUnschedulable, Empty, "0/0",
			no + gpus + demo},
		"tainted without a value": {on(with(services, nil, objects.Pod("b", "n9")), node1(taint("a.b/c", "",
			corev1.TaintEffectNoExecute))), NodeUnschedulable, Empty, "0/0",
			no + "; the node is tainted with a.b/c:NoExecute, which its pods do not tolerate" + demo},
		"tainted, but tolerated": {on(with(services, nil, objects.Pod("b", "n9", func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		})), node1(gpu)), NoPods, Empty, "0/0", no + demo},
		"tainted, but pods only rather go elsewhere": {on(with(services, nil, objects.Pod("b", "n9")), node1(taint("x", "",
			corev1.TaintEffectPreferNoSchedule))), NoPods, Empty, "0/0", no + demo},
		"tainted, with a pod that waits": {on(with(services, nil, objects.Pod("b", "n9"), objects.Pod("a", "", unscheduled)), node1(gpu)),
			NodeUnschedulable, Empty, "0/0", no + gpus + demo},
		"tainted, with a pod that waits for another node": {on(with(services, nil, objects.Pod("b", "", unscheduled,
			daemon("n2"))), node1(gpu)), NodeUnschedulable, Empty, "0/0",
			no + gpus + demo},
		"waits for this node alone": {with(services, nil, objects.Pod("b", "", unscheduled, daemon("n1"))), PodsNotReady, Down,
			"0/0", waits + " (b)"},
		"its volume": {amid(with(services, nil, objects.Pod("a", "", unscheduled, claiming("data"))), Around{Events: []corev1.Event{
			event("ProvisioningFailed", "PersistentVolumeClaim", "data", `storageclass "fast" not found`),
			event("ProvisioningFailed", "PersistentVolumeClaim", "of-another", "x")}}), PodsNotReady, Down, "0/0",
			`not scheduled: its PersistentVolumeClaim is not bound, storageclass "fast" not found; ` +
				waits[len("not scheduled: "):] + " (a: data)"},
		"preempted": {amid(with(services, nil, objects.Pod("web-7", "", unscheduled, daemon("n1"), generated("web-"))),
			Around{Pods: []corev1.Pod{*objects.Pod("x", "n1"), {ObjectMeta: metav1.ObjectMeta{Name: "big", UID: "f-7"}}},
				Events: []corev1.Event{event(eventPreempted, "Pod", "web-3", "Preempted by pod f-7 on node n1"),
					event(eventPreempted, "Pod", "other-2", "x")}}), PodsNotReady, Down, "0/0",
			"not scheduled: a pod of a higher priority has its place; " + waits[len("not scheduled: "):] +
				" (web-7: Preempted by pod big on node n1)"},
		"its host port": {amid(with(services, nil, objects.Pod("b", "", unscheduled, daemon("n1"), holding(9100))),
			Around{Pods: []corev1.Pod{*objects.Pod("x", "n2", holding(9100)), *objects.Pod("old", "n1", holding(9100)),
				*objects.Pod("y", "n1", holding(9101))}}), PodsNotReady, Down, "0/0", "not scheduled: another pod has its host port; " +
			waits[len("not scheduled: "):] + " (b: 9100/TCP: old)"},
		"tainted, and no pod anywhere": {on(with(services, nil), node1(gpu)), NoPods, Empty, "0/0", no + demo},
		"down": {on(with(services, unready, objects.Pod("a", "n1", lost)), node1(down(40))), NodeNotReady, Down, "0/1",
			"the node is NotReady (for 40s)" + node},
		"down, not noticed in the endpoints": {on(with(services, ready, objects.Pod("a", "n1")), node1(down(1))), "", Healthy, "1/1",
			""},
		"down, without a pod": {on(with(services, nil, objects.Pod("b", "n9")), node1(down(3*60+20))), NodeNotReady, Empty, "0/0",
			"the node is NotReady (for 3m20s)" + node},
	} {
		t.Run(name, func(t *testing.T) {
			if c.in.LocalService == nil {
				c.in.LocalService = localService()
			}
			if c.in.Nodes == nil {
				c.in.Nodes = nodesWith("n1")
			}
			c.in.Now = now
			list := listOf(t, c.in)
			got, around := list.Items[0], c.in.Around
			if len(around.Workloads)+len(around.Pods)+len(around.Events) > 0 && !list.AsksAround {
				t.Error("what is around would not be read")
			}
			if got.Reason != c.reason || got.State != c.state || got.Message != c.message {
				t.Errorf("got  %s %s: %s\nwant %s %s: %s", got.State, got.Reason, got.Message, c.state, c.reason,
					c.message)
			}
			if got := fmt.Sprintf("%d/%d", got.Endpoints.Ready, got.Endpoints.Total); got != c.endpoints {
				t.Errorf("endpoints %s; want %s", got, c.endpoints)
			}
		})
	}
}

// TestReasons: each reason that may be found is explained, in the order in which they are looked for.
func TestReasons(t *testing.T) {
	var found, explained []Reason
	for _, r := range rules {
		if r.reason != "" && !slices.Contains(found, r.reason) {
			found = append(found, r.reason)
		}
	}
	for _, r := range Reasons {
		explained = append(explained, r.Reason)
	}
	if !slices.Equal(found, explained) {
		t.Errorf("found are %v, explained are %v", found, explained)
	}
}

// TestRivals: of two nodes that want one name, or two groups, the one without it is reported, in both modes.
func TestRivals(t *testing.T) {
	grouped := listOf(t, Input{LocalService: localService(groupBy("zone")), Nodes: nodesWith("a:zone=x.y",
		"b:zone=x-y", "c:zone=x.y", "x.y"), Pods: []*corev1.Pod{objects.Pod("p", "a"), objects.Pod("q", "c")}})
	var got []string
	for _, n := range grouped.Items {
		got = append(got, fmt.Sprintf("%s %q, %d pods: %s %s", n.Node, n.Hostname, len(n.Pods), n.Reason, n.Message))
	}
	want := []string{
		`x-y "x-y", 0 pods: ServiceMissing no Service demo for the names; the controller has not written it yet`,
		`x.y "", 2 pods: NameConflict the name is that of value x-y; set the label zone to one value on the nodes of both`,
		`x.y "", 0 pods: NodeWithoutName no value for label zone (spec.groupBy), so no name; set the label, or correct ` +
			"spec.groupBy: kubectl get nodes -L zone"}
	if diff := cmp.Diff(want, got); diff != "" || grouped.Summary.Nodes != 2 || grouped.Items[1].ID() == grouped.Items[2].ID() {
		t.Errorf("%+v (-want +got):\n%s", grouped.Summary, diff)
	}
	for _, changes := range [][]func(*v1alpha1.LocalService){nil, {objects.HostnamesMode}} {
		items := listOf(t, Input{LocalService: localService(changes...), Nodes: nodesWith("x.y", "x-y")}).Items
		slices.SortFunc(items, func(a, b *Node) int { return strings.Compare(a.Node, b.Node) })
		const want = "the name is that of node x-y; select only one of the two nodes"
		if items[0].Reason == NameConflict || items[0].Service == "" || items[1].Reason != NameConflict ||
			items[1].Service != "" || items[1].HasService || items[1].Message != want {
			t.Errorf("%+v", items)
		}
	}
}

// TestLongSelector: a long selector leaves room for the cause, which a table cuts.
func TestLongSelector(t *testing.T) {
	ls := localService(func(ls *v1alpha1.LocalService) {
		ls.Spec.Selector = map[string]string{"app.kubernetes.io/name": "vllm", "app.kubernetes.io/instance": "prefill",
			"app.kubernetes.io/component": "worker"}
	})
	got := listOf(t, Input{LocalService: ls, Nodes: []*corev1.Node{node1(cordoned)},
		Services: []*corev1.Service{templates(ls)[0].Service("n1")}}).Items[0]
	if got.Cause != "no matching pod here; the node is cordoned" {
		t.Errorf("%s: %s", got.Reason, got.Cause)
	}
}

// TestPortsMissing: a name with a cluster IP answers only if all of its ports are published. A headless one resolves,
// but is degraded.
func TestPortsMissing(t *testing.T) {
	http := containing(corev1.ContainerPort{Name: "http", ContainerPort: 8080}, corev1.ContainerPort{ContainerPort: 1})
	web, metrics := port("web", 80, intstr.FromString("web")), port("metrics", 90, intstr.FromInt32(9090))
	none, both := []string{}, []string{"web", "metrics"}
	const message = `no container has a port named "web" for port 80/TCP`
	const act = "; correct targetPort, or name the container's port"
	for name, c := range map[string]struct {
		headless  bool
		wanted    []v1alpha1.ServicePort
		published [][]string // the ports of each EndpointSlice
		pod       *corev1.Pod
		state     State
		ready     int
		message   string
	}{
		"published": {wanted: []v1alpha1.ServicePort{web, metrics}, published: [][]string{both},
			pod: objects.Pod("a", "n1", http), state: Healthy, ready: 1},
		"none": {wanted: []v1alpha1.ServicePort{web}, published: [][]string{none}, pod: objects.Pod("a", "n1"), state: Down,
			message: message + " (they name none)" + act},
		"one of two": {wanted: []v1alpha1.ServicePort{web, metrics}, published: [][]string{{"metrics"}},
			pod: objects.Pod("a", "n1", http), state: Down, message: message + " (\"http\" is 8080/TCP)" + act},
		"each of two at another pod": {wanted: []v1alpha1.ServicePort{web, port("metrics", 90,
			intstr.FromString("metrics"))}, published: [][]string{{"metrics"}, {"web"}}, pod: objects.Pod("a", "n1", http),
			state: Healthy, ready: 1},
		"headless": {headless: true, wanted: []v1alpha1.ServicePort{web}, published: [][]string{none},
			pod: objects.Pod("a", "n1", http), state: Degraded, ready: 1, message: message +
				" (\"http\" is 8080/TCP)" + act},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Nodes: nodesWith("n1"), Pods: []*corev1.Pod{c.pod},
				LocalService: localService(func(ls *v1alpha1.LocalService) {
					ls.Spec.Ports = c.wanted
					if c.headless {
						ls.Spec.ClusterIP = corev1.ClusterIPNone
					}
				})}
			in.Services = []*corev1.Service{templates(in.LocalService)[0].Service("n1")}
			for _, names := range c.published {
				published := objects.EndpointSlice("demo-n1", "a")
				for _, name := range names {
					published.Ports = append(published.Ports, discoveryv1.EndpointPort{Name: &name})
				}
				in.EndpointSlices = append(in.EndpointSlices, published)
			}
			got := listOf(t, in).Items[0]
			if got.State != c.state || got.Endpoints.Ready != c.ready || got.Message != c.message ||
				(c.message == "") != (got.Reason == "") {
				t.Errorf("got %s, %d ready, %q: %s", got.State, got.Endpoints.Ready, got.Reason, got.Message)
			}
		})
	}
}

// TestStatusReported: a name and the status that is about the same have one line on the page.
func TestStatusReported(t *testing.T) {
	for name, c := range map[string]struct {
		reason   string
		services []*corev1.Service
		want     bool
	}{
		"name taken":       {v1alpha1.ReasonNameTaken, other("demo-n1", nil), true},
		"refused":          {v1alpha1.ReasonWriteFailed, nil, true},
		"invalid":          {v1alpha1.ReasonInvalidSpec, []*corev1.Service{aService("n1")}, false},
		"another is taken": {v1alpha1.ReasonNameTaken, []*corev1.Service{aService("n1")}, false},
	} {
		got := listOf(t, Input{LocalService: localService(objects.Reporting(metav1.ConditionFalse, c.reason, "x")), Nodes: nodesWith("n1"),
			Services: c.services}).Summary
		if got.Reported != c.want || got.Problem != "x" || got.Status != c.reason {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestNodeLabelKey: the key of the node label is that in the selector of a Service of the LocalService.
func TestNodeLabelKey(t *testing.T) {
	keyed := func(node, key string) *corev1.Service {
		return aService(node, func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "demo", key: node} })
	}
	foreign := keyed("n3", "evil")
	foreign.OwnerReferences = nil
	for want, service := range map[string]*corev1.Service{"example.org/node": keyed("n1", "example.org/node"),
		nodeLabel: foreign} {
		if got := nodeLabelKey(localService(), []*corev1.Service{service}); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
