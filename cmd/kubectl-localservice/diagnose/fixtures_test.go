package diagnose

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// nodesWith returns nodes with labels, such as n1 or n1:zone=a.
func nodesWith(names ...string) (all []*corev1.Node) {
	for _, name := range names {
		name, label, _ := strings.Cut(name, ":")
		all = append(all, objects.Node(name, strings.Fields(label)...))
	}
	return all
}

// listOf calls Nodes for nodes that may be listed. No object may be changed. A name where nothing answers always has a
// reason, and one without a reason has all its endpoints ready.
func listOf(t *testing.T, in Input) *NodeList {
	t.Helper()
	if in.Nodes != nil {
		in.AllNodes = true
	}
	in.Kubectl = "kubectl"
	kept := in
	kept.Pods, kept.Nodes, kept.Services = copiesOf(in.Pods), copiesOf(in.Nodes), copiesOf(in.Services)
	kept.EndpointSlices, kept.LocalService = copiesOf(in.EndpointSlices), in.LocalService.DeepCopy()
	list := Nodes(in)
	if diff := cmp.Diff(kept, in); diff != "" {
		t.Fatalf("the input has been changed:\n%s", diff)
	}
	for _, n := range list.Items {
		isWell, answers := n.State == Healthy, n.Endpoints.Ready > 0
		if isWell && (!answers || n.Endpoints.Ready < n.Endpoints.Total) || answers && n.State != Degraded && !isWell {
			t.Errorf("%s is %s with %d of %d endpoints", n.Node, n.State, n.Endpoints.Ready, n.Endpoints.Total)
		}
		if isWell != (n.Reason == "") || isWell != (n.Message == "") {
			t.Errorf("%s is %s with the reason %q: %s", n.Node, n.State, n.Reason, n.Message)
		}
	}
	return list
}

func copiesOf[T interface{ DeepCopy() T }](objects []T) (copies []T) {
	for _, object := range objects {
		copies = append(copies, object.DeepCopy())
	}
	return copies
}

// localService returns LocalService demo with cluster IPs and without ports, as the controller has observed it, edited.
func localService(edit ...func(*v1alpha1.LocalService)) *v1alpha1.LocalService {
	return objects.Edit(objects.LocalService(func(ls *v1alpha1.LocalService) {
		ls.Spec.ClusterIP, ls.Spec.Ports = "", nil
	}, objects.Reporting(metav1.ConditionTrue, "", "")), edit...)
}

// aService returns the Service that the controller generates from localService for a node, edited.
func aService(node string, edit ...func(*corev1.Service)) *corev1.Service {
	return objects.Edit(templates(localService())[0].Service(node), edit...)
}

func templates(ls *v1alpha1.LocalService) plan.Templates {
	all, err := plan.NewTemplates(ls, nodeLabel, nil)
	if err != nil {
		panic(err)
	}
	return all
}

// other returns a Service of somebody else.
func other(name string, owners []metav1.OwnerReference) []*corev1.Service {
	return []*corev1.Service{objects.Service(name, func(s *corev1.Service) { s.OwnerReferences = owners })}
}

var running = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}

func terminated(reason string, exitCode int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: exitCode}}
}

func madeBy(kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.OwnerReferences = objects.ControlledBy("v1", kind, name) }
}

func labelled(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[nodeLabel] = value }
}

func phase(phase corev1.PodPhase, reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = phase, reason }
}

func node1(edit ...func(*corev1.Node)) *corev1.Node { return objects.Edit(objects.Node("n1"), edit...) }

func taint(key, value string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	}
}

var gpu = taint("gpu", "yes", corev1.TaintEffectNoSchedule)

func cordoned(n *corev1.Node) {
	n.Spec.Unschedulable = true
	taint("node.kubernetes.io/unschedulable", "", corev1.TaintEffectNoSchedule)(n)
}

// down makes a node one that is not ready for some seconds.
func down(seconds int) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
			LastTransitionTime: metav1.Time{Time: now.Add(-time.Duration(seconds) * time.Second)}}}
		taint("node.kubernetes.io/unreachable", "", corev1.TaintEffectNoExecute)(n)
	}
}

// lost makes a pod one of which nobody has heard.
func lost(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

func unscheduled(p *corev1.Pod) {
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable",
		Message: "0/3 nodes are available: 3 Insufficient cpu."}}}
}

func inPool(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"pool": name} }
}

// maker is what makes pods with these labels.
func maker(kind, name string, set map[string]string, replicas int32, changes ...func(*corev1.PodSpec)) Workload {
	w := Workload{Kind: kind, Name: name, Replicas: replicas}
	w.Labels = set
	for _, change := range changes {
		change(&w.Spec)
	}
	return w
}

func containing(ports ...corev1.ContainerPort) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers = []corev1.Container{{Ports: ports}} }
}

func port(name string, number int32, target intstr.IntOrString) v1alpha1.ServicePort {
	return v1alpha1.ServicePort{Name: name, Port: number, TargetPort: target}
}
