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
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const nodeLabel = v1alpha1.DefaultNodeLabelKey

// now is the time in these tests.
var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// scenario is what the objects show, and what is found of node n1 or, with other nodes, of the first: its reason, state
// and endpoints.
type scenario struct {
	in        Input
	reason    Reason
	state     State
	endpoints string
}

func scenarios() map[string]scenario {
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
	demo := map[string]string{"app": "demo"}
	choosy := func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{"disk": "ssd"} }
	tolerant := func(p *corev1.PodSpec) {
		p.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
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
		return corev1.Event{Reason: reason, Message: message, InvolvedObject: corev1.ObjectReference{Kind: kind,
			Name: name}}
	}
	labelRefused := func(localService, message string, at time.Time) corev1.Event {
		e := event("NodeLabelRefused", v1alpha1.Kind, localService, message)
		e.EventTime = metav1.NewMicroTime(at)
		return e
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
	return map[string]scenario{
		"ready":           {with(services, ready, objects.Pod("a", "n1")), "", Healthy, "1/1"},
		"taken by nobody": {with(other("demo-n1", nil), ready), NameConflict, Down, "0/0"},
		"taken by another LocalService": {with(other("demo-n1", objects.ControlledBy(v1alpha1.SchemeGroupVersion.String(),
			v1alpha1.Kind, "demo-of")), nil), NameConflict,
			Down, "0/0"},
		"taken by another node": {on(of(), nodesWith("x-y", "x.y")[1], nodesWith("x-y")[0]), ServiceMissing, Down, "0/0"},
		"earlier": {with(changed(func(s *corev1.Service) { s.OwnerReferences[0].UID = "earlier" }), ready, objects.Pod("a",
			"n1")),
			ServiceOutdated, Degraded, "1/1"},
		"missing, change not seen": {of(objects.Reporting(metav1.ConditionFalse, v1alpha1.ReasonWriteFailed, "x"),
			func(ls *v1alpha1.LocalService) { ls.Generation++ }), ServiceMissing, Down, "0/0"},
		"missing, refused": {of(objects.Reporting(metav1.ConditionFalse, v1alpha1.ReasonWriteFailed,
			"1 write failed: exceeded\nquota")),
			ServiceMissing, Down, "0/0"},
		"missing, LocalService deleted": {of(func(ls *v1alpha1.LocalService) { ls.DeletionTimestamp = new(metav1.Now()) }),
			ServiceMissing, Down, "0/0"},
		"terminating": {with(changed(deleted), nil), ServiceOutdated, Down, "0/0"},
		"selects something else": {with(changed(func(s *corev1.Service) {
			s.Spec.Selector = demo
		}), ready, objects.Pod("a", "n1")), ServiceOutdated, Degraded, "1/1"},
		"orphaned": {with(changed(withoutOwner), ready, objects.Pod("a", "n1")), ServiceOutdated, Degraded, "1/1"},
		"another port": {with(changed(func(s *corev1.Service) {
			s.Spec.Ports, s.Spec.SessionAffinity = []corev1.ServicePort{{Port: 80}}, corev1.ServiceAffinityClientIP
		}), ready, objects.Pod("a", "n1")), ServiceOutdated, Degraded, "1/1"},
		"another port, and no pod": {with(changed(func(s *corev1.Service) {
			s.Spec.Ports = []corev1.ServicePort{{Port: 80}}
		}), nil), NoPods, Empty, "0/0"},
		"another port, and the spec is invalid": {func() Input {
			in := with(changed(func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{{Port: 80}} }), ready,
				objects.Pod("a", "n1"))
			in.LocalService = localService(func(ls *v1alpha1.LocalService) { ls.Spec.GroupBy = "zone" })
			return in
		}(), "", Healthy, "1/1"},
		"orphaned, and being deleted": {with(changed(withoutOwner, deleted), nil), ServiceOutdated, Down, "0/0"},

		"pod elsewhere with this node's label": {with(services, ready, objects.Pod("a", "n1"), objects.Pod("b", "n2",
			labelled("n1"))),
			PodsMislabelled, Degraded, "1/1"},
		"ended pod elsewhere with this node's label": {with(services, ready, objects.Pod("a", "n1"),
			objects.Pod("b", "n2", labelled("n1"), objects.Ending), objects.Pod("c", "n2", labelled("n1"),
				phase(corev1.PodSucceeded, ""))),
			"",
			Healthy, "1/1"},
		"pod without label": {with(services, ready, objects.Pod("a", "n1"), objects.Pod("b", "n1", objects.Unlabelled)),
			PodsMislabelled, Degraded,
			"1/1"},
		"pods with another label": {with(services, nil, objects.Pod("a", "n1", labelled("n7")), objects.Pod("b", "n1",
			labelled(""))),
			PodsMislabelled, Down, "0/0"},
		"pod without label, as the guard refuses it": {amid(with(services, nil, objects.Pod("a", "n1", objects.Unlabelled,
			func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now) })), Around{Events: []corev1.Event{
			labelRefused("demo", "the guard names vm/rack", now.Add(time.Second)),
			labelRefused("another", "not this", now.Add(time.Minute)), labelRefused("demo", "no more", now.Add(-time.Second))}}),
			PodsMislabelled, Down, "0/0"},
		"pod without label, where no controller watches": {func() Input {
			in := with(services, nil, objects.Pod("a", "n1", objects.Unlabelled))
			in.Controller.Namespaces = []string{"shop"}
			return in
		}(), PodsMislabelled, Down, "0/0"},

		"pods not ready": {with(services, unready, objects.Pod("d", "n1", crash), objects.Pod("c", "n1", crash),
			objects.Pod("b", "n1", objects.NotReady(running)), objects.Pod("a", "n1", crash), objects.Pod("e", "n1", crash)),
			PodsNotReady, Down,
			"0/1"},
		"pods that wait": {with(services, unready, objects.Pod("a", "n1",
			objects.NotReady(objects.Waiting("ContainerCreating")))), PodsNotReady,
			Down, "0/1"},
		"pods not ready for several causes": {with(services, unready, objects.Pod("a", "n1", crash),
			objects.Pod("b", "n1", objects.NotReady(running))), PodsNotReady, Down, "0/1"},
		"one of two pods not ready": {with(services, both, objects.Pod("a", "n1"), objects.Pod("b", "n1", crash)),
			PodsNotReady, Degraded,
			"1/2"},
		"not ready, but published": {publishing(with(services, ready, objects.Pod("a", "n1", crash))),
			PodsNotReady, Degraded, "1/1"},
		"not ready, but published, as Kubernetes does": {publishing(with(services, conditioned(false, false),
			objects.Pod("a", "n1", crash))), PodsNotReady, Down, "0/1"},
		"not published yet": {with(services, nil, objects.Pod("a", "n1")), EndpointsOutdated,
			Down, "0/0"},
		"not published, as a quota is used up": {amid(with(services, nil, objects.Pod("a", "n1")),
			Around{Events: []corev1.Event{
				event(eventUnpublished, "Service", "demo-n1", "of before"), event(eventUnpublished, "Service", "demo-n1",
					"Error updating Endpoint Slices for Service default/demo-n1: endpointslices \"demo-n1-x7x\" is forbidden: "+
						"exceeded quota: objects"), event(eventUnpublished, "Service", "demo-n10", "of another")}}),
			EndpointsOutdated, Down, "0/0"},
		"an endpoint too many, as that is not ready": {with(services, both, objects.Pod("a", "n1")), EndpointsOutdated,
			Degraded,
			"1/2"},
		"published by a mesh": {with(services, mesh(true)), "", Healthy, "1/1"},
		"published by a mesh, too": {with(services, slices.Concat(ready, mesh(true)), objects.Pod("a", "n1")), "", Healthy,
			"2/2"},
		"published by a mesh, not ready": {with(services, slices.Concat(ready, mesh(false)), objects.Pod("a", "n1")),
			EndpointsOutdated, Degraded, "1/2"},

		"only terminating": {with(services, conditioned(false, true),
			objects.Pod("a", "n1", objects.Ending), objects.Pod("b", "n1", phase(corev1.PodSucceeded, ""))), PodsEnded, Down,
			"0/0"},
		"only ended": {with(services, nil, objects.Pod("a", "n1", phase(corev1.PodFailed, "Evicted")),
			objects.Pod("b", "n1", phase(corev1.PodSucceeded, ""))), PodsEnded, Empty, "0/0"},
		"only ended, and published as not ready": {with(services, unready, objects.Pod("a", "n1",
			phase(corev1.PodSucceeded, ""))),
			PodsEnded, Empty, "0/0"},
		"a Job": {with(services, nil, objects.Pod("a", "n1", phase(corev1.PodSucceeded, ""), madeBy("Job", "backup"))),
			PodsEnded, Empty, "0/0"},
		"no pod": {with(services, nil, objects.Pod("a", "n2"), objects.Pod("b", "n1",
			func(p *corev1.Pod) { p.Labels["app"] = "x" })),
			NoPods, Empty, "0/0"},
		"a pod waits that could come here": {on(with(services, nil, objects.Pod("a", "", unscheduled, inPool("a"))),
			nodesWith("n1:pool=a")...), PodsNotReady, Down, "0/0"},
		"a pod waits that could not come here": {on(with(services, nil, objects.Pod("a", "", unscheduled, inPool("a"))),
			nodesWith("n1:pool=b")...), NoPods, Empty, "0/0"},
		"a pod waits in place of an ended one": {with(services, nil, objects.Pod("a", "n1", phase(corev1.PodFailed,
			"Evicted")),
			objects.Pod("b", "", unscheduled)), PodsNotReady, Down, "0/0"},
		"a waiting pod is deleted": {with(services, nil, objects.Pod("a", "", unscheduled, objects.Ending)), NoPods, Empty,
			"0/0"},
		"fewer replicas than names": {amid(on(with(services, nil, objects.Pod("a", "n2")), nodesWith("n1", "n2")...),
			Around{
				Workloads: []Workload{maker("Deployment", "other", map[string]string{"app": "x"}, 0),
					maker("Deployment", "web", demo, 1)}}), NoPods, Empty, "0/0"},
		"a DaemonSet that has not made it yet": {amid(on(with(services, nil, objects.Pod("a", "n2")), nodesWith("n1",
			"n2")...), Around{Workloads: []Workload{maker("DaemonSet", "web", demo, 0)}}), NoPods,
			Empty, "0/0"},
		"a DaemonSet whose nodeSelector leaves out the node": {amid(on(with(services, nil, objects.Pod("a", "n2")),
			nodesWith("n1")[0], nodesWith("n2:disk=ssd")[0]), Around{Workloads: []Workload{
			maker("DaemonSet", "choosy", demo, 0, choosy)}}), NodeUnschedulable, Empty, "0/0"},
		"of two workloads one fits the node": {amid(on(with(services, nil, objects.Pod("a", "n2")), nodesWith("n1", "n2")...),
			Around{Workloads: []Workload{maker("DaemonSet", "choosy", demo, 0, choosy),
				maker("DaemonSet", "web", demo, 0)}}), NoPods, Empty, "0/0"},
		"a taint, and only a DaemonSet": {amid(on(with(services, nil), node1(gpu)), Around{Workloads: []Workload{
			maker("DaemonSet", "web", demo, 0)}}), NodeUnschedulable, Empty, "0/0"},
		"a taint, which a DaemonSet tolerates": {amid(on(with(services, nil), node1(gpu)), Around{Workloads: []Workload{
			maker("DaemonSet", "web", demo, 0, tolerant)}}), NoPods, Empty, "0/0"},
		"as many replicas as names": {amid(on(with(services, nil, objects.Pod("a", "n2")), nodesWith("n1", "n2")...),
			Around{
				Workloads: []Workload{maker("Deployment", "web", demo, 2)}}), NoPods, Empty, "0/0"},

		"cordoned": {on(with(services, nil, objects.Pod("b", "n9"), objects.Pod("c", "", unscheduled)), node1(cordoned)),
			NodeUnschedulable, Empty, "0/0"},
		"cordoned, with a pod": {on(with(services, unready, objects.Pod("a", "n1", crash)), node1(cordoned)), PodsNotReady,
			Down,
			"0/1"},
		"tainted": {on(with(services, nil, objects.Pod("b", "n9")), node1(gpu)), NodeUnschedulable, Empty, "0/0"},
		"tainted without a value": {on(with(services, nil, objects.Pod("b", "n9")), node1(taint("a.b/c", "",
			corev1.TaintEffectNoExecute))), NodeUnschedulable, Empty, "0/0"},
		"tainted, but tolerated": {on(with(services, nil, objects.Pod("b", "n9", func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		})), node1(gpu)), NoPods, Empty, "0/0"},
		"tainted, but pods only rather go elsewhere": {on(with(services, nil, objects.Pod("b", "n9")), node1(taint("x", "",
			corev1.TaintEffectPreferNoSchedule))), NoPods, Empty, "0/0"},
		"tainted, with a pod that waits": {on(with(services, nil, objects.Pod("b", "n9"), objects.Pod("a", "",
			unscheduled)), node1(gpu)),
			NodeUnschedulable, Empty, "0/0"},
		"tainted, with a pod that waits for another node": {on(with(services, nil, objects.Pod("b", "", unscheduled,
			daemon("n2"))), node1(gpu)), NodeUnschedulable, Empty, "0/0"},
		"waits for this node alone": {with(services, nil, objects.Pod("b", "", unscheduled, daemon("n1"))), PodsNotReady,
			Down,
			"0/0"},
		"its volume": {amid(with(services, nil, objects.Pod("a", "", unscheduled, claiming("data"))),
			Around{Events: []corev1.Event{
				event("ProvisioningFailed", "PersistentVolumeClaim", "data", `storageclass "fast" not found`),
				event("ProvisioningFailed", "PersistentVolumeClaim", "of-another", "x")}}), PodsNotReady, Down, "0/0"},
		"preempted": {amid(with(services, nil, objects.Pod("web-7", "", unscheduled, daemon("n1"), generated("web-"))),
			Around{Pods: []corev1.Pod{*objects.Pod("x", "n1"), {ObjectMeta: metav1.ObjectMeta{Name: "big", UID: "f-7"}}},
				Events: []corev1.Event{event(eventPreempted, "Pod", "web-3", "Preempted by pod f-7 on node n1"),
					event(eventPreempted, "Pod", "other-2", "x")}}), PodsNotReady, Down, "0/0"},
		"its host port": {amid(with(services, nil, objects.Pod("b", "", unscheduled, daemon("n1"), holding(9100))),
			Around{Pods: []corev1.Pod{*objects.Pod("x", "n2", holding(9100)), *objects.Pod("old", "n1", holding(9100)),
				*objects.Pod("y", "n1", holding(9101))}}), PodsNotReady, Down, "0/0"},
		"tainted, and no pod anywhere": {on(with(services, nil), node1(gpu)), NoPods, Empty, "0/0"},
		"down": {on(with(services, unready, objects.Pod("a", "n1", lost)), node1(down(40))),
			NodeNotReady, Down, "0/1"},
		"down, not noticed in the endpoints": {on(with(services, ready, objects.Pod("a", "n1")), node1(down(1))), "",
			Healthy, "1/1"},
		"down, without a pod": {on(with(services, nil, objects.Pod("b", "n9")), node1(down(3*60+20))),
			NodeNotReady, Empty, "0/0"},
	}
}

// find returns the list of a scenario, and what is found of its first name.
func (s scenario) find(t *testing.T) (*NodeList, *Node) {
	t.Helper()
	if s.in.LocalService == nil {
		s.in.LocalService = localService()
	}
	if s.in.Nodes == nil {
		s.in.Nodes = nodesWith("n1")
	}
	s.in.Now = now
	list := listOf(t, s.in)
	return list, list.Items[0]
}

// TestRules checks which rule applies. TestWords has the words of each.
func TestRules(t *testing.T) {
	for name, s := range scenarios() {
		t.Run(name, func(t *testing.T) {
			_, got := s.find(t)
			around := s.in.Around
			s.in.Around = Around{}
			if before, _ := s.find(t); len(around.Workloads)+len(around.Pods)+len(around.Events) > 0 && !before.AsksAround {
				t.Error("what is around would not be read")
			}
			if got.Reason != s.reason || got.State != s.state {
				t.Errorf("%s %q; want %s %q: %s", got.State, got.Reason, s.state, s.reason, got.Message)
			}
			if got := fmt.Sprintf("%d/%d", got.Endpoints.Ready, got.Endpoints.Total); got != s.endpoints {
				t.Errorf("endpoints %s; want %s", got, s.endpoints)
			}
		})
	}
}

// TestWords has the words of each rule, once for each of their forms, by the name of a scenario.
func TestWords(t *testing.T) {
	const unscheduled = "0/3 nodes are available: 3 Insufficient cpu."
	all := scenarios()
	for name, want := range map[string]string{
		"taken by nobody": "the name is taken by a Service without an owner (demo-n1); if it is for the pods on node n1, " +
			"have it adopted: kubectl patch service -n default demo-n1 --type=merge -p " +
			`'{"metadata":{"labels":{"owner":"demo"}},"spec":{"selector":{"vm/rack":"n1"}}}'; if nothing uses it, delete it; otherwise create this LocalService under ` +
			"another name",
		"taken by another LocalService": "the name is taken by a Service of LocalService demo-of (demo-n1); create this " +
			"LocalService under another name: deleting the Service does not help, as its owner would create it again",
		"missing, change not seen":      "no Service; the controller has not written it yet",
		"missing, refused":              `no Service; 1 write failed: exceeded\nquota`,
		"missing, LocalService deleted": "no Service; the LocalService is being deleted",
		"terminating":                   "the Service is being deleted",
		"selects something else": "the Service has another selector than the LocalService says; the controller has not " +
			"written it yet (app=demo)",
		"orphaned": "the Service differs from the LocalService in ownerReferences; the controller has not written it yet",
		"another port": "the Service differs from the LocalService in ports, sessionAffinity; the controller has not " +
			"written it yet",
		"pods with another label": "pods lack the label vm/rack, or have that of another node (a on n1 has n7, b on n1 has " +
			"none); see whether the controller labels pods (-label-pods) and has all permissions: kubectl logs -n " +
			"local-service-system POD",
		"pod without label, as the guard refuses it": "pods lack the label vm/rack, or have that of another node (a on n1 " +
			"has none); the guard names vm/rack",
		"pod without label, where no controller watches": "pods lack the label vm/rack, or have that of another node (a on " +
			"n1 has none); The controller of Lease / watches only namespaces shop, so LocalServices elsewhere are not kept up to " +
			"date. Ask the cluster's administrator to add their namespace to its -namespaces (Helm: namespaces)",
		"pods not ready": "CrashLoopBackOff (a, c, d and 2 more); see kubectl logs -n default a",
		"pods that wait": "ContainerCreating: it waits for its volumes, its image or the network (a); see kubectl describe " +
			"pod -n default a",
		"pods not ready for several causes": "CrashLoopBackOff (a, b: its readiness probe does not succeed); see kubectl " +
			"logs -n default a",
		"not published yet": "pods are ready, but not in the EndpointSlices; kube-controller-manager has not added them " +
			"yet (a)",
		"not published, as a quota is used up": "pods are ready, but not in the EndpointSlices; Error updating Endpoint " +
			`Slices for Service default/…: endpointslices "…" is forbidden: exceeded quota: objects (a); raise the quota, or correct what else that names`,
		"an endpoint too many, as that is not ready": "1 of 2 endpoints are ready, the others are of no pod here; see who " +
			"manages their EndpointSlice: kubectl get endpointslices -n default -l kubernetes.io/service-name=demo-n1 " +
			"--show-labels",
		"only terminating": "only terminating pods (a)",
		"only ended":       "only ended pods: Evicted (a, b: Succeeded)",
		"a Job": "only ended pods: Succeeded (a); a name needs pods that keep running, such as those of a Deployment or " +
			"DaemonSet: a Job ends",
		"no pod":                    "no matching pod here (app=demo)",
		"as many replicas as names": "no matching pod here (app=demo)",
		"a DaemonSet whose nodeSelector leaves out the node": "no matching pod here; the node is left out by the nodeSelector " +
			"or affinity of DaemonSet choosy (app=demo)",
		"a taint, and only a DaemonSet": "no matching pod here; the node is tainted with gpu=yes:NoSchedule, which its pods " +
			"do not tolerate (app=demo)",
		"a pod waits that could come here": "not scheduled: " + unscheduled + " (a); see kubectl describe pod -n default a",
		"fewer replicas than names": "no matching pod here (app=demo); Deployment web has 1 replica for 2 names: scale it, " +
			"by minReplicas if a HorizontalPodAutoscaler does, or use a DaemonSet",
		"cordoned": "no matching pod here; the node is cordoned (app=demo)",
		"tainted": "no matching pod here; the node is tainted with gpu=yes:NoSchedule, which its pods do not tolerate " +
			"(app=demo)",
		"tainted without a value": "no matching pod here; the node is tainted with a.b/c:NoExecute, which its pods do not " +
			"tolerate (app=demo)",
		"its volume": `not scheduled: its PersistentVolumeClaim is not bound, storageclass "fast" not found; ` +
			unscheduled + " (a); see kubectl describe pvc -n default data",
		"preempted": "not scheduled: a pod of a higher priority has its place; " + unscheduled + " (web-7); Preempted by " +
			"pod big on node n1: make room, or raise its priority",
		"its host port": "not scheduled: another pod has its host port 9100/TCP; " + unscheduled + " (b); remove pod old, or " +
			"change the hostPort of one",
		"down": "the node is NotReady (for 40s); see kubectl describe node n1",
	} {
		if _, got := all[name].find(t); got.Message != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got.Message, want)
		}
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
	if diff := cmp.Diff(want, got); diff != "" || grouped.Summary.Nodes != 2 {
		t.Errorf("%+v (-want +got):\n%s", grouped.Summary, diff)
	}
	if a, b := grouped.Items[1], grouped.Items[2]; a.ID() == b.ID() {
		t.Errorf("two items have the ID %s: a watch would print them again and again", a.ID())
	}
	for _, changes := range [][]func(*v1alpha1.LocalService){nil, {objects.HostnamesMode}} {
		got := map[string]string{}
		for _, n := range listOf(t, Input{LocalService: localService(changes...), Nodes: nodesWith("x.y", "x-y")}).Items {
			got[n.Node] = fmt.Sprintf("%t %t %s", n.Service != "", n.HasService, n.Message)
		}
		if want := "false false the name is that of node x-y; select only one of the two nodes"; got["x.y"] != want {
			t.Errorf("x.y: %s; want %s", got["x.y"], want)
		}
		if rival := got["x-y"]; !strings.HasPrefix(rival, "true false no Service") {
			t.Errorf("x-y: %s", rival)
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
	both := []v1alpha1.ServicePort{web, metrics}
	for name, c := range map[string]struct {
		clusterIP string
		wanted    []v1alpha1.ServicePort
		published [][]string // the ports of each EndpointSlice
		pod       *corev1.Pod
		want      string
	}{
		"published": {"", both, [][]string{{"web", "metrics"}}, objects.Pod("a", "n1", http), "Healthy 1 : "},
		"none": {"", both[:1], [][]string{{}}, objects.Pod("a", "n1"), "Down 0 PortsMissing: no container has a port " +
			`named "web" for port 80/TCP (they name none); correct targetPort, or name the container's port`},
		"one of two": {"", both, [][]string{{"metrics"}}, objects.Pod("a", "n1", http), "Down 0 PortsMissing: "},
		"each of two at another pod": {"", []v1alpha1.ServicePort{web, port("metrics", 90, intstr.FromString("metrics"))},
			[][]string{{"metrics"}, {"web"}}, objects.Pod("a", "n1", http), "Healthy 1 : "},
		"headless": {corev1.ClusterIPNone, both[:1], [][]string{{}}, objects.Pod("a", "n1", http),
			`Degraded 1 PortsMissing: no container has a port named "web" for port 80/TCP ("http" is 8080/TCP); `},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Nodes: nodesWith("n1"), Pods: []*corev1.Pod{c.pod},
				LocalService: localService(func(ls *v1alpha1.LocalService) {
					ls.Spec.Ports, ls.Spec.ClusterIP = c.wanted, c.clusterIP
				})}
			in.Services = []*corev1.Service{templates(in.LocalService)[0].Service("n1")}
			for _, names := range c.published {
				published := objects.EndpointSlice("demo-n1", "a")
				for _, name := range names {
					published.Ports = append(published.Ports, discoveryv1.EndpointPort{Name: &name})
				}
				in.EndpointSlices = append(in.EndpointSlices, published)
			}
			n := listOf(t, in).Items[0]
			if got := fmt.Sprintf("%s %d %s: %s", n.State, n.Endpoints.Ready, n.Reason, n.Message); !strings.HasPrefix(got,
				c.want) {
				t.Errorf("got %s\nwant %s", got, c.want)
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
		got := listOf(t, Input{LocalService: localService(objects.Reporting(metav1.ConditionFalse, c.reason, "x")),
			Nodes:    nodesWith("n1"),
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
