package diagnose

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestMessage: the message is about all names.
func TestMessage(t *testing.T) {
	ports := func(clusterIP string, ports ...v1alpha1.ServicePort) func(*v1alpha1.LocalService) {
		return func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP, ls.Spec.Ports = clusterIP, ports }
	}
	onNode := func(change func(*v1alpha1.LocalService), pods ...*corev1.Pod) Input {
		return Input{LocalService: localService(change), Nodes: nodesWith("n1"), Pods: pods}
	}
	around := func(a Around) Input {
		in := onNode(func(*v1alpha1.LocalService) {})
		in.Around = a
		return in
	}
	makes := func(kind, app string, replicas int32) []Workload {
		return []Workload{maker(kind, "web", map[string]string{"app": app, "x": "y"}, replicas)}
	}
	pod := func(app string, changes ...func(*corev1.Pod)) corev1.Pod {
		p := objects.Pod("p", "n1", changes...)
		p.Labels["app"] = app
		return *p
	}
	named := objects.EndpointSlice("demo-n1", "a")
	named.Ports = []discoveryv1.EndpointPort{{Name: new("web"), Port: new(int32(8080))}}
	byName := onNode(ports("None", port("web", 80, intstr.FromString("web"))), objects.Pod("a", "n1"))
	byName.EndpointSlices = []*discoveryv1.EndpointSlice{named}
	const (
		no         = "No pod in namespace default has the labels app=demo."
		translated = "Clients must connect to port 8080 (not 80): a headless Service does not translate ports."
	)
	unobserved := onNode(func(ls *v1alpha1.LocalService) { ls.Generation++ })
	unobserved.Controller.Stopped = true
	eight := containing(corev1.ContainerPort{ContainerPort: 8080})
	for name, c := range map[string]struct {
		in   Input
		want string
	}{
		"not observed":                    {onNode(func(ls *v1alpha1.LocalService) { ls.Generation++ }), ""},
		"not observed, and no controller": {unobserved, no},
		"another port":                    {onNode(ports("None", port("", 80, intstr.FromInt32(8080))), objects.Pod("a", "n1")), translated},
		"another, by name":                {byName, translated},
		"no such port": {onNode(ports("", port("", 80, intstr.FromInt32(9999)), port("x", 8080, intstr.FromInt32(0))),
			objects.Pod("a", "n1", eight)), "No container declares port 9999/TCP (declared: 8080/TCP). If nothing listens there, " +
			"correct port, targetPort or protocol."},
		"no such port, headless": {onNode(ports("None", port("", 80, intstr.FromInt32(9999))), objects.Pod("a", "n1", eight)),
			"No container declares port 9999/TCP (declared: 8080/TCP). If nothing listens there, correct port, " +
				"targetPort or protocol."},
		"no such protocol": {onNode(ports("", v1alpha1.ServicePort{Protocol: corev1.ProtocolUDP, Port: 8080}),
			objects.Pod("a", "n1", eight)), "No container declares port 8080/UDP (declared: 8080/TCP). If nothing listens " +
			"there, correct port, targetPort or protocol."},
		"no port": {onNode(ports("", port("", 80, intstr.FromInt32(9999))), objects.Pod("a", "n1")), ""},
		"no pods": {around(Around{}), no},
		"no pods, and no names that the user may list": {Input{LocalService: localService(
			func(ls *v1alpha1.LocalService) { ls.Spec.Mode = v1alpha1.ModeHostnames })}, no},
		"no replicas":  {around(Around{Workloads: makes("Deployment", "demo", 0)}), no + " Deployment web makes such pods, and has 0 replicas: kubectl scale -n default deployment/web --replicas=1"},
		"not made yet": {around(Around{Workloads: makes("DaemonSet", "demo", 0)}), no + " DaemonSet web should make them: kubectl describe daemonset -n default web"},
		"no node fits": {func() Input {
			in := around(Around{Workloads: makes("DaemonSet", "demo", 0)})
			in.Services = []*corev1.Service{aService("n1")}
			in.AllNodes, in.Around.Workloads[0].Spec.NodeSelector = true, map[string]string{"disk": "ssd"}
			return in
		}(), ""}, // Its names say it.
		"no pods made":     {around(Around{Workloads: makes("StatefulSet", "demo", 2)}), no + " StatefulSet web should make them: kubectl describe statefulset -n default web"},
		"other namespaces": {around(Around{Namespaces: []string{"a", "b"}}), no + " Such pods are in other namespaces (a, b). If they are meant, create the LocalService there: it selects pods of its own namespace only"},
		"nothing alike": {around(Around{Pods: []corev1.Pod{pod("x"), pod("z", func(p *corev1.Pod) { p.Labels["pod-template-hash"] = "1" })}}),
			no + " The pods there have app=x: correct spec.selector, or their labels"},
		"a typo": {around(Around{Workloads: makes("Deployment", "demoo", 1), Pods: []corev1.Pod{pod("x"), pod("y")}}), no + " The pods there have app=demoo,x=y or app=x or app=y: correct spec.selector, or their labels"},
		"pods of two workloads": {onNode(ports(""), objects.Pod("a", "n1"), objects.Pod("b", "n1", madeBy("DaemonSet", "web")),
			objects.Pod("c", "n1", madeBy("ReplicaSet", "web-7c9"))), "The name of n1 leads to pods of DaemonSet web and " +
			"Deployment web. If only one of them is meant, add a label to spec.selector that only its pods have."},
		"two revisions of a Deployment, one of nobody, and an ended one": {onNode(ports(""),
			objects.Pod("a", "n1", madeBy("ReplicaSet", "web-7c9")), objects.Pod("b", "n1", madeBy("ReplicaSet", "web-5d8")),
			objects.Pod("c", "n1"), objects.Pod("d", "n1", madeBy("Job", "b-1"), phase(corev1.PodSucceeded, ""))), ""},
		"pods of two DaemonSets, on two nodes": {func() Input {
			in := onNode(ports(""), objects.Pod("a", "n1", madeBy("DaemonSet", "amd64")), objects.Pod("b", "n2",
				madeBy("DaemonSet", "arm64")))
			in.Nodes = nodesWith("n1", "n2")
			return in
		}(), ""},
		"Ready, but": {onNode(func(ls *v1alpha1.LocalService) {
			ls.Spec.ClusterIP, ls.Spec.Ports = "None", []v1alpha1.ServicePort{port("", 80, intstr.FromInt32(8080))}
			ls.Status.Conditions[0].Message = "every selected node has its Service, and 1 of 2 nodes answer: x says why; " +
				"clients must connect to port 8080 (not 80): a headless Service does not translate ports; the " +
				"CustomResourceDefinition is older"
		}, objects.Pod("a", "n1")), translated + "\nThe CustomResourceDefinition is older."},
		"not Ready": {onNode(objects.Reporting(metav1.ConditionFalse, v1alpha1.ReasonWriteFailed, "x; y"),
			objects.Pod("a", "n1")), ""},
		"a label of nodes": {onNode(func(ls *v1alpha1.LocalService) {
			ls.Spec.Selector = map[string]string{"kubernetes.io/hostname": "n1"}
		}), "No pod in namespace default has the labels kubernetes.io/hostname=n1. The label kubernetes.io/hostname " +
			"is one of nodes, and selector selects pods: choose nodes with nodeSelector."},
	} {
		if got := listOf(t, c.in).Message; got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
	// LocalServices that select no pod have the same problem, whatever their selectors are.
	a := listOf(t, around(Around{})).Notices
	b := listOf(t, onNode(func(ls *v1alpha1.LocalService) { ls.Spec.Selector = map[string]string{"app": "b"} })).Notices
	if len(a) != 1 || len(b) != 1 {
		t.Fatalf("%d and %d notices, want one each", len(a), len(b))
	}
	if a[0].Reason != NoPods || a[0].Cause != b[0].Cause || a[0].Message == b[0].Message {
		t.Errorf("two that select no pod: %+v, %+v", a, b)
	}
}

// TestController: a controller that does not run, or has not acted, is one line about the LocalService.
func TestController(t *testing.T) {
	runs := Controller{Namespace: "ops", Name: "lsc", Holder: "lsc-7-x", Renewed: now.Add(-90 * time.Second)}
	stopped, watches, another := runs, runs, runs
	stopped.Stopped = true
	watches.Namespaces, another.Namespaces = []string{"shop", "default"}, []string{"shop", "payments"}
	well := Input{LocalService: localService(), Nodes: nodesWith("n1"), Services: []*corev1.Service{aService("n1")},
		Pods: []*corev1.Pod{objects.Pod("a", "n1")}, Now: now,
		EndpointSlices: []*discoveryv1.EndpointSlice{objects.EndpointSlice("demo-n1", "a")}}
	const (
		stops = "The controller does not seem to run: Lease ops/lsc has not been renewed for 90s. See whether its pods " +
			"run, and in their log what they wait for: kubectl get deployments,pods -n ops"
		waits = "No controller has finished with the latest change in namespace default. Does one run, does it watch this " +
			"namespace (-namespaces), and has it all permissions? Its log says: kubectl logs -n "
		unwatched = "The controller of Lease ops/lsc watches only namespaces shop, payments, so LocalServices elsewhere are " +
			"not kept up to date. Ask the cluster's administrator to add their namespace to its -namespaces (Helm: namespaces)"
	)
	missing, unobserved, unlabelled, refused := well, well, well, well
	missing.Services = nil
	unobserved.LocalService = localService(func(ls *v1alpha1.LocalService) { ls.Generation++ })
	unlabelled.Pods = []*corev1.Pod{objects.Pod("a", "n1"), objects.Pod("b", "n1", objects.Unlabelled)}
	ago := metav1.NewTime(now.Add(-9 * time.Second))
	created := unobserved
	created.LocalService = localService(func(ls *v1alpha1.LocalService) {
		ls.Generation, ls.CreationTimestamp = ls.Generation+1, ago
	})
	refused.Services, refused.LocalService = nil, localService(objects.Reporting(metav1.ConditionFalse, v1alpha1.ReasonWriteFailed, "no"))
	for name, c := range map[string]struct {
		in         Input
		controller Controller
		want       string
	}{
		"all is well":              {well, runs, ""},
		"all is well, not known":   {well, Controller{}, ""},
		"all is still well":        {well, stopped, stops},
		"watched":                  {well, watches, ""},
		"not watched":              {well, another, unwatched},
		"missing":                  {missing, runs, waits + "ops lsc-7-x"},
		"missing, stopped":         {missing, stopped, stops},
		"missing, not known":       {missing, Controller{}, waits + "local-service-system POD"},
		"missing, refused":         {refused, runs, ""},
		"not acted on the change":  {unobserved, runs, waits + "ops lsc-7-x"},
		"created a moment ago":     {created, runs, ""},
		"created, stopped":         {created, stopped, stops},
		"pods without their label": {unlabelled, runs, ""},
	} {
		c.in.Controller = c.controller
		if got := listOf(t, c.in).Controller; got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
	if got := stopped.Stops("kubectl", time.Time{}); !strings.Contains(got, "has not been renewed since 2026-01-02 03:02:35 UTC.") {
		t.Errorf("in a watch: %s", got)
	}
}
