package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const appPort = 8080

// app is the label of all pods in a scene that its LocalServices select.
var app = map[string]string{"app": "demo"}

// scene is a scene of the framework with the demo app in it.
type scene struct{ *framework.Scene }

// newScene returns a scene in the shared cluster, until the test ends.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{cluster.NewScene(t, "e2e")}
	t.Cleanup(func() {
		err := s.Kube.CoreV1().Namespaces().Delete(context.Background(), s.Namespace, metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	return s
}

// in returns the scene for a subtest.
func (s *scene) in(t *testing.T) *scene { return &scene{s.In(t)} }

// localService makes a headless LocalService for the demo app on all nodes, with some changes.
func (s *scene) localService(name string, changes ...framework.Change) *v1alpha1.LocalService {
	s.T.Helper()
	forApp := func(ls *v1alpha1.LocalService) {
		ls.Spec.Selector, ls.Spec.NodeSelector = app, nil
		ls.Spec.Ports = []v1alpha1.ServicePort{{Name: "http", Port: appPort}}
	}
	return s.Create(name, append([]framework.Change{forApp}, changes...)...)
}

// hostnames makes a LocalService with mode Hostnames for the demo app on all nodes.
func (s *scene) hostnames(name string, changes ...framework.Change) *v1alpha1.LocalService {
	s.T.Helper()
	return s.localService(name, append([]framework.Change{framework.WithHostnames}, changes...)...)
}

// The demo app, in every kind of workload.

func podTemplate() corev1.PodTemplateSpec {
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	get := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(appPort)}}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(app)},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  new(false),
			TerminationGracePeriodSeconds: new(int64(2)),
			Containers: []corev1.Container{{
				Name:            "app",
				Image:           appImage,
				ImagePullPolicy: corev1.PullNever,
				Env: []corev1.EnvVar{
					{Name: "POD", ValueFrom: field("metadata.name")}, {Name: "NODE", ValueFrom: field("spec.nodeName")},
				},
				ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: get},
			}},
		},
	}
}

// deploy creates a Deployment, with the same number of pods on each node.
func (s *scene) deploy(replicas int32) {
	s.T.Helper()
	selector, template := &metav1.LabelSelector{MatchLabels: app}, podTemplate()
	template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		TopologyKey:       corev1.LabelHostname,
		MaxSkew:           1,
		WhenUnsatisfiable: corev1.DoNotSchedule,
		NodeTaintsPolicy:  new(corev1.NodeInclusionPolicyHonor),
		LabelSelector:     selector,
	}}
	_, err := s.Kube.AppsV1().Deployments(s.Namespace).Create(s.Ctx(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "demo"},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	s.Must(err)
}

// staticPod makes a node's kubelet run a pod of the demo app from a file until the test ends. It returns the name of
// its mirror pod.
func (s *scene) staticPod(node string, labels map[string]string) (name string) {
	s.T.Helper()
	pod := barePod("static", "", labels)
	pod.APIVersion, pod.Kind, pod.Namespace = "v1", "Pod", s.Namespace
	pod.Spec.SchedulerName = ""
	data, err := json.Marshal(pod)
	s.Must(err)
	manifest := filepath.Join(s.Dir(), "static-pods", node, s.Namespace+".json")
	s.Must(os.WriteFile(manifest, data, 0o600))
	s.T.Cleanup(func() {
		if err := os.Remove(manifest); err != nil {
			s.T.Error(err)
		}
	})
	return pod.Name + "-" + node
}

// podsByNode returns the names of the demo app's pods that are ready and not being deleted, by node.
func (s *scene) podsByNode(ctx context.Context) (map[string][]string, error) {
	list, err := s.PodClient().List(ctx, metav1.ListOptions{LabelSelector: labels.FormatLabels(app)})
	if err != nil {
		return nil, err
	}
	byNode := map[string][]string{}
	for i := range list.Items {
		if pod := &list.Items[i]; isReady(pod) && pod.DeletionTimestamp == nil {
			byNode[pod.Spec.NodeName] = append(byNode[pod.Spec.NodeName], pod.Name)
		}
	}
	return byNode, nil
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// waitForPods waits until a number of pods are ready on each of the nodes, and none elsewhere. It returns their names.
func (s *scene) waitForPods(perNode int, on ...string) map[string][]string {
	s.T.Helper()
	var byNode map[string][]string
	s.Eventually(fmt.Sprintf("%d pods are ready on each of %v", perNode, on), func(ctx context.Context) (err error) {
		if byNode, err = s.podsByNode(ctx); err != nil {
			return err
		}
		for _, node := range on {
			if len(byNode[node]) != perNode {
				return fmt.Errorf("there are %v", byNode)
			}
		}
		if len(byNode) != len(on) {
			return fmt.Errorf("there are %v", byNode)
		}
		return nil
	})
	return byNode
}

// wantServices waits until a LocalService has exactly the Services of these nodes, and reports that it is ready.
func (s *scene) wantServices(ls *v1alpha1.LocalService, of ...string) {
	s.T.Helper()
	names := make([]string, len(of))
	for i, node := range of {
		names[i] = naming.ServiceName(ls.Name, node)
	}
	s.WaitServices(ls, names...)
	s.WaitStatusNodes(ls.Name, len(of))
}
