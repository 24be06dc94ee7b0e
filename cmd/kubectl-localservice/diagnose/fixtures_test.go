package diagnose

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// nodesWith returns nodes with labels, such as n1 or n1:zone=a.
func nodesWith(names ...string) (all []*corev1.Node) {
	for _, name := range names {
		name, label, hasLabel := strings.Cut(name, ":")
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if key, value, _ := strings.Cut(label, "="); hasLabel {
			node.Labels = map[string]string{key: value}
		}
		all = append(all, node)
	}
	return all
}

// listOf calls Nodes for nodes that may be listed. No object may be changed. A name where nothing answers always has a reason, and one without a reason has all its endpoints ready.
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
		if isWell && (!answers || n.Endpoints.Ready < n.Endpoints.Total) || answers && n.State != Degraded && !isWell ||
			isWell != (n.Reason == "") || isWell != (n.Message == "") {
			t.Errorf("the state, the reason and the endpoints do not fit: %+v", n)
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

func localService(changes ...func(*v1alpha1.LocalService)) *v1alpha1.LocalService {
	ls := &v1alpha1.LocalService{
		ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "default", UID: "uid-of-demo", Generation: 2},
		Spec:       v1alpha1.LocalServiceSpec{Selector: map[string]string{"app": "demo"}},
		Status: v1alpha1.LocalServiceStatus{
			ObservedGeneration: 2,
			Conditions:         []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}},
		},
	}
	for _, change := range changes {
		change(ls)
	}
	return ls
}

// readyCondition lets the controller say that a LocalService is not ready.
func readyCondition(reason, message string) func(*v1alpha1.LocalService) {
	return func(ls *v1alpha1.LocalService) {
		ls.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse,
			Reason: reason, Message: message}}
	}
}

func controlledBy(apiVersion, kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID("uid-of-" + name),
		Controller: new(true)}}
}

func controlledByLocalService(name string) []metav1.OwnerReference {
	return controlledBy(v1alpha1.SchemeGroupVersion.String(), v1alpha1.Kind, name)
}

// service returns the Service that the controller generates from localService for a node, with some changes.
func aService(node string, changes ...func(*corev1.Service)) *corev1.Service {
	s := templates(localService())[0].Service(node)
	for _, change := range changes {
		change(s)
	}
	return s
}

func templates(ls *v1alpha1.LocalService) plan.Templates {
	all, err := plan.NewTemplates(ls, nodeLabel, nil)
	if err != nil {
		panic(err)
	}
	return all
}

// other returns a Service of somebody else, without the label owner=demo.
func other(name string, owners []metav1.OwnerReference) []*corev1.Service {
	return []*corev1.Service{{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", OwnerReferences: owners}}}
}

// addresses lists those of the pods in these tests, by name, unless a test gives them others.
var addresses = map[string]string{"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3", "d": "10.0.0.4",
	"w": "10.0.0.4", "x": "10.0.0.1", "y": "10.0.0.3", "z": "10.0.0.1"}

// pod returns a ready pod of localService with the right label, with some changes.
func aPod(name, node string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": "demo"}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Phase:             corev1.PodRunning,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true, Started: new(true), State: running}},
		},
	}
	if node != "" {
		p.Status.PodIPs = []corev1.PodIP{{IP: addresses[name]}}
		p.Labels[nodeLabel] = naming.NodeLabelValue(node)
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

var running = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func terminated(reason string, exitCode int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: exitCode}}
}

// notReady makes a pod unready, with its container in some state.
func notReady(state corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		p.Status.Conditions[0].Message = "containers with unready status: [app]"
		p.Status.ContainerStatuses[0].Ready = false
		p.Status.ContainerStatuses[0].State = state
	}
}

func madeBy(kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.OwnerReferences = controlledBy("v1", kind, name) }
}

func withoutLabel(p *corev1.Pod) { delete(p.Labels, nodeLabel) }

func labelled(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[nodeLabel] = value }
}

func ending(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }

func phase(phase corev1.PodPhase, reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = phase, reason }
}

// slice returns an EndpointSlice of a node's Service.
func slice(node string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: map[string]string{
			discoveryv1.LabelServiceName: naming.ServiceName("demo", node),
			discoveryv1.LabelManagedBy:   plan.KubernetesSliceManager,
			v1alpha1.OwnerLabelKey:       "demo",
		}},
		Endpoints: endpoints,
	}
}

func anEndpoint(pod, address string, ready bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
	if pod != "" {
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: pod}
	}
	return e
}

func endingEndpoint(e discoveryv1.Endpoint) discoveryv1.Endpoint {
	e.Conditions.Terminating = new(true)
	return e
}

// node1 returns node n1 with some changes.
func node1(changes ...func(*corev1.Node)) *corev1.Node {
	n := nodesWith("n1")[0]
	for _, change := range changes {
		change(n)
	}
	return n
}

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

func containing(ports ...corev1.ContainerPort) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers = []corev1.Container{{Ports: ports}} }
}

func port(name string, number int32, target intstr.IntOrString) v1alpha1.ServicePort {
	return v1alpha1.ServicePort{Name: name, Port: number, TargetPort: target}
}

func hostnamesMode(ls *v1alpha1.LocalService) { ls.Spec.Mode = v1alpha1.ModeHostnames }
