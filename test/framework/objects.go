package framework

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Change is a change of a LocalService.
type Change = func(ls *v1alpha1.LocalService)

// NewLocalService returns a headless LocalService for the pods with the label app=name on all nodes, with some changes.
func NewLocalService(namespace, name string, changes ...Change) *v1alpha1.LocalService {
	ls := &v1alpha1.LocalService{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: v1alpha1.LocalServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Ports:     []v1alpha1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
			Selector:  map[string]string{"app": name},
		},
	}
	for _, c := range changes {
		c(ls)
	}
	return ls
}

// WithClusterIP is the change to Services with an address.
func WithClusterIP(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = "" }

// WithHostnames is the change to names in one Service.
func WithHostnames(ls *v1alpha1.LocalService) { ls.Spec.Mode = v1alpha1.ModeHostnames }

// NewNode returns a node with some labels.
func NewNode(name string, labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// NewPod returns a pod that is scheduled to a node, unless that is "", with some changes. Nothing can run it.
func NewPod(name, node string, labels map[string]string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "app", Image: "app"}},
			// Nothing runs it, so there is nothing to wait for when it is deleted.
			TerminationGracePeriodSeconds: new(int64),
		},
	}
	for _, c := range changes {
		c(pod)
	}
	return pod
}

// NewBinding returns the binding that schedules a pod to a node.
func NewBinding(pod, node string, labels map[string]string) *corev1.Binding {
	return &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod, Labels: labels},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
}

// NewForeignService returns a Service that has nothing to do with any LocalService.
func NewForeignService(name string, labels map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Selector:  map[string]string{"app": "somebody-elses"},
			Ports:     []corev1.ServicePort{{Port: 1234}},
		},
	}
}
