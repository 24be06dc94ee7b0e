package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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

// TestPodsFromBefore tests a controller that is started in a cluster with running pods: the API server accepts the
// label of each kind of pod that a LocalService selects, by one write, and no other pods are written. Static pods are
// tested with a kubelet, in test/e2e.
func TestPodsFromBefore(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "before")
	nodes := s.AddNodes("a", "b", "ip-10-0-0-3.ec2.internal", strings.Repeat("x", 70)+".example.com")
	s.Create("demo")
	labelled := map[string]string{} // the pods to label, each with its node
	create := func(name, node string, labels map[string]string, changes ...func(*corev1.Pod)) {
		s.CreatePod(name, node, labels, changes...)
		labelled[name] = node
	}
	for i := range 30 {
		create(fmt.Sprintf("pod-%d", i), nodes[i%len(nodes)], app)
	}
	create("host-network", nodes[1], app, func(pod *corev1.Pod) {
		pod.Spec.HostNetwork = true
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 8080}}
	})
	create("stale", nodes[0], map[string]string{"app": "demo", nodeLabel: nodes[1]})
	create("running", nodes[1], app)
	s.PatchPod("running", `{"status":{"phase":"Running"}}`, "status")
	create("terminating", nodes[2], app, func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/hold"} })
	s.Must(s.PodClient().Delete(s.Ctx(), "terminating", metav1.DeleteOptions{}))
	create("bound", "", app)
	s.BindPod("bound", nodes[0], nil)
	labelled["bound"] = nodes[0]
	for _, phase := range []string{"Succeeded", "Failed"} {
		name := strings.ToLower(phase)
		s.CreatePod(name, nodes[0], app)
		s.PatchPod(name, fmt.Sprintf(`{"status":{"phase":%q}}`, phase), "status")
	}
	s.CreatePod("right", nodes[0], map[string]string{"app": "demo", nodeLabel: nodes[0]})
	s.CreatePod("not-selected", nodes[0], map[string]string{"app": "other"})
	s.CreatePod("not-scheduled", "", app)

	s.ResetCount()
	s.NewController(t)
	for name, node := range labelled {
		s.WaitLabelled(name, node)
	}
	s.WaitReady("demo")
	f := s.newFence()
	f.passPods()
	f.passLocalServices()
	s.WantWrites("pods", fmt.Sprintf("%d patch pods 200", len(labelled)))
	if reads := s.Requests().Resource("pods").Verb("get", "list", "watch"); len(reads) > 0 {
		t.Errorf("beside filling its cache, the controller also read: %s", reads)
	}
}
