package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// nodeLabel is the default node label.
const nodeLabel = v1alpha1.DefaultNodeLabelKey

// change is a change of a LocalService.
type change = framework.Change

// scene is a scene of the framework, with what only these tests do in it.
type scene struct{ *framework.Scene }

func newScene(t testing.TB, cluster *framework.Cluster, word string) *scene {
	t.Helper()
	return &scene{cluster.NewScene(t, word)}
}

// in returns the scene for a subtest that has none of its own.
func (s *scene) in(t testing.TB) *scene { return &scene{s.In(t)} }

// Fields of specs, as users write them.
const (
	headless  = "selector: {app: demo}, clusterIP: None, ports: [{name: http, port: 80, targetPort: 8080}]"
	addressed = "clusterIP: null" // where it was headless
)

// fieldsOf returns the fields of a spec that texts in YAML set. The later of two values of a field counts, and a null
// removes it.
func fieldsOf(texts ...string) map[string]any {
	fields := map[string]any{}
	for _, text := range texts {
		if err := yaml.Unmarshal([]byte("{"+text+"}"), &fields); err != nil {
			panic(fmt.Sprintf("%s: %v", text, err)) // A mistake in the test.
		}
	}
	maps.DeleteFunc(fields, func(_ string, value any) bool { return value == nil })
	return fields
}

// spec returns the change to a spec with the fields of texts in YAML. It selects the same nodes as before, unless they
// say otherwise.
func spec(texts ...string) change {
	data, err := json.Marshal(fieldsOf(texts...))
	if err != nil {
		panic(err)
	}
	return func(ls *v1alpha1.LocalService) {
		selected := ls.Spec.NodeSelector
		ls.Spec = v1alpha1.LocalServiceSpec{}
		if err := json.Unmarshal(data, &ls.Spec); err != nil {
			panic(fmt.Sprintf("%s: %v", data, err))
		}
		if ls.Spec.NodeSelector == nil {
			ls.Spec.NodeSelector = selected
		}
	}
}

// app is the label that LocalService demo selects pods by.
var app = map[string]string{"app": "demo"}

// setPodStatus does what a kubelet does: the pod is ready, or its container waits for a reason.
func (s *scene) setPodStatus(name, ip, waits string) {
	s.T.Helper()
	ready, state := corev1.ConditionTrue, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	restarts := int32(0)
	if waits != "" {
		ready = corev1.ConditionFalse
		state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: waits}}
	}
	if waits == "CrashLoopBackOff" {
		restarts = 7
	}
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: waits == "", State: state,
			RestartCount: restarts}},
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	s.Must(err)
	s.PatchPod(name, string(patch), "status")
}
