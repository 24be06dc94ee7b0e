package view

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
)

// TestLogs: the logs of which container, and of which run of it, say why a pod is not ready.
func TestLogs(t *testing.T) {
	const crashes = "CrashLoopBackOff"
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: crashes}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for name, c := range map[string]struct {
		reason         string
		state          corev1.ContainerState
		restarts       int32
		logs, previous bool
	}{
		"never ran":              {"ContainerCreating", corev1.ContainerState{}, 0, false, false},
		"has ended once":         {crashes, ended, 0, true, false},
		"has just ended again":   {crashes, ended, 3, true, false},
		"waits to run again":     {crashes, waits, 3, true, true},
		"has just started":       {crashes, runs, 3, true, true},
		"runs, and is not ready": {diagnose.ProbeFails, runs, 3, true, false},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{Name: "sidecar", Ready: true, State: runs}, {Name: "app", State: c.state, RestartCount: c.restarts}}}}
		if name == "never ran" {
			pod.Status.ContainerStatuses[0].State = c.state
		}
		got := NewPod(diagnose.Pod{Reason: c.reason, Container: "app"}, pod)
		if got.Logs != c.logs || got.Previous != c.previous ||
			got.Restarts != c.restarts {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
