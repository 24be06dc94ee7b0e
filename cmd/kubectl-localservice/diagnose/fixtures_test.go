package diagnose

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// nodes returns nodes with labels, such as n1 or n1:zone=a.
func nodes(names ...string) map[string]labels.Set {
	all := map[string]labels.Set{}
	for _, name := range names {
		name, label, _ := strings.Cut(name, ":")
		key, value, _ := strings.Cut(label, "=")
		all[name] = labels.Set{key: value}
	}
	return all
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

// readyCondition has the controller say that a LocalService is not ready.
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
func service(node string, changes ...func(*corev1.Service)) *corev1.Service {
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

// addresses are those of the pods in these tests, by name, unless a test gives them others.
var addresses = map[string]string{"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3", "d": "10.0.0.4",
	"w": "10.0.0.4", "x": "10.0.0.1", "y": "10.0.0.3", "z": "10.0.0.1"}

// at gives a pod addresses.
func at(addresses ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.PodIPs = nil
		for _, address := range addresses {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: address})
		}
	}
}

// pod returns a ready pod of localService with the right label, with some changes.
func pod(name, node string, changes ...func(*corev1.Pod)) *corev1.Pod {
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

func unlabelled(p *corev1.Pod) { delete(p.Labels, nodeLabel) }

func labelled(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[nodeLabel] = value }
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }

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

func endpoint(pod, address string, ready bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
	if pod != "" {
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: pod}
	}
	return e
}

func terminatingEndpoint(e discoveryv1.Endpoint) discoveryv1.Endpoint {
	e.Conditions.Terminating = new(true)
	return e
}
