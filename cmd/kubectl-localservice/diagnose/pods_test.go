package diagnose

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
)

// TestWhyNotReady: the states that a cause goes through have the same word and cause.
func TestWhyNotReady(t *testing.T) {
	initState := func(state corev1.ContainerState) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			objects.NotReady(objects.Waiting("PodInitializing"))(p)
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: running, Ready: true},
				{Name: "init", State: state}}
		}
	}
	ago := func(seconds int) metav1.Time { return metav1.NewTime(now.Add(-time.Duration(seconds) * time.Second)) }
	// crashed makes a container one that has ended before.
	crashed := func(state, last corev1.ContainerState, restarts int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			objects.NotReady(state)(p)
			p.Status.ContainerStatuses[0].LastTerminationState = last
			p.Status.ContainerStatuses[0].RestartCount = restarts
		}
	}
	runs := func(seconds int) corev1.ContainerState {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(seconds)}}
	}
	exit := func(reason string, code int32, message string, ran int) corev1.ContainerState {
		ended := terminated(reason, code)
		ended.Terminated.Message, ended.Terminated.StartedAt = message, ago(10000)
		ended.Terminated.FinishedAt = metav1.NewTime(ended.Terminated.StartedAt.Add(time.Duration(ran) * time.Second))
		return ended
	}
	notStarted := exit("StartError", 128, "exec: \"/no\":\n stat /no: no such file", 0)
	notStarted.Terminated.StartedAt = metav1.Time{}
	waitingFor := func(reason, message string) corev1.ContainerState {
		state := objects.Waiting(reason)
		state.Waiting.Message = message
		return state
	}
	image := func(state string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			objects.NotReady(objects.Waiting(state))(p)
			p.Status.ContainerStatuses[0].Image = "app:2"
		}
	}
	const probe = "its readiness probe does not succeed"
	readyAgain := func(seconds int, restarts int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			ready := slices.Clone(p.Status.Conditions)
			crashed(runs(seconds), exit("Error", 1, "", 5), restarts)(p)
			p.Status.Conditions, p.Status.ContainerStatuses[0].Ready = ready, true
		}
	}
	for name, c := range map[string]struct {
		change     func(*corev1.Pod)
		word, text string
	}{
		"ready":           {func(*corev1.Pod) {}, "", ""},
		"evicted":         {phase(corev1.PodFailed, "Evicted"), "Evicted", "Evicted"},
		"deleted":         {objects.Ending, "Terminating", "Terminating"},
		"image, at first": {image("ErrImagePull"), "ImagePullBackOff", "cannot pull image app:2"},
		"image, later":    {image("ImagePullBackOff"), "ImagePullBackOff", "cannot pull image app:2"},
		"image, never":    {objects.NotReady(waitingFor("ErrImageNeverPull", "image app:2 is not present")), "ErrImageNeverPull", "image app:2 is not present"},
		"creating": {objects.NotReady(objects.Waiting("ContainerCreating")), "ContainerCreating",
			"ContainerCreating: it waits for its volumes, its image or the network"},
		"names of pods":      {objects.NotReady(waitingFor("CreateContainerError", "name app_a_default_uid-1_0 is reserved")), "CreateContainerError", "name app_…_…_0 is reserved"},
		"ended, and says so": {objects.NotReady(exit("Error", 1, "no\x1b[31m disk\n", 5)), "CrashLoopBackOff", `exit code 1: no\x1b[31m disk`},
		"ended well":         {objects.NotReady(exit("Completed", 0, "", 5)), "CrashLoopBackOff", "exit code 0"},
		"ended as its probe fails, perhaps": {func(p *corev1.Pod) {
			objects.NotReady(exit("Completed", 0, "", 5))(p)
			p.Spec.Containers = []corev1.Container{{Name: "app", LivenessProbe: &corev1.Probe{}}}
		}, "CrashLoopBackOff", "exit code 0, by itself or as its liveness or startup probe fails"},
		"no program": {crashed(objects.Waiting("CrashLoopBackOff"), notStarted, 2), "CrashLoopBackOff", `exec: "/no": stat /no: no such file (2 restarts)`},
		"waits to run again": {crashed(objects.Waiting("CrashLoopBackOff"), exit("Error", 1, "", 5), 1), "CrashLoopBackOff",
			"exit code 1 (1 restart)"},
		"is ready again": {readyAgain(3, 1), "CrashLoopBackOff", "exit code 1 (1 restart)"},
		"is ready, but has ended often": {func(p *corev1.Pod) {
			readyAgain(61, 2)(p)
			p.Status.ContainerStatuses[0].LastTerminationState = exit("Error", 1, "", 80)
		}, "CrashLoopBackOff", "exit code 1 (2 restarts)"},
		"is ready again after a reboot": {func(p *corev1.Pod) {
			readyAgain(3, 1)(p)
			p.Status.ContainerStatuses[0].LastTerminationState = terminated("ContainerStatusUnknown", 137)
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated.Message = "The container could not be located"
		}, "", ""},
		"is ready for longer than before": {readyAgain(16, 5), "", ""},
		"runs again":                      {crashed(runs(3), exit("Error", 1, "", 5), 5), "CrashLoopBackOff", "exit code 1 (5 restarts)"},
		"runs for longer than before": {crashed(runs(240), exit("Error", 1, "", 5), 1), probeFails,
			probe + " (has run for 4m, before: exit code 1, 1 restart)"},
		"runs for a minute": {crashed(runs(61), exit("Error", 137, "", 300), 1), probeFails,
			probe + " (has run for 61s, before: exit code 137, 1 restart)"},
		"runs after a reboot": {crashed(runs(60), exit("Unknown", 255, "", 9000), 1), probeFails,
			probe + " (has run for 60s, before: exit code 255, 1 restart)"},
		"out of memory": {crashed(objects.Waiting("CrashLoopBackOff"), terminated("OOMKilled", 137), 2), "OOMKilled",
			"OOMKilled (2 restarts)"},
		"crashes, nobody knows how": {objects.NotReady(objects.Waiting("CrashLoopBackOff")), "CrashLoopBackOff", "CrashLoopBackOff"},
		"init container crashes": {initState(objects.Waiting("CrashLoopBackOff")), "CrashLoopBackOff",
			"init container init: CrashLoopBackOff"},
		"init container runs again": {func(p *corev1.Pod) {
			initState(runs(3))(p)
			p.Status.InitContainerStatuses[1].RestartCount = 1
			p.Status.InitContainerStatuses[1].LastTerminationState = exit("Error", 5, "", 15)
		}, "CrashLoopBackOff", "init container init: exit code 5 (1 restart)"},
		"init container runs": {initState(runs(240)), "PodInitializing",
			"init container init: the other containers wait for it (has run for 4m)"},
		"sidecar does not start": {func(p *corev1.Pod) {
			objects.NotReady(objects.Waiting("PodInitializing"))(p)
			p.Spec.InitContainers = []corev1.Container{{Name: "proxy", StartupProbe: &corev1.Probe{},
				RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "proxy", Started: new(false), State: running}}
		}, probeFails, "init container proxy: its startup probe has not succeeded"},
		"sidecar ended as it did not start in time, perhaps": {func(p *corev1.Pod) {
			objects.NotReady(objects.Waiting("PodInitializing"))(p)
			p.Spec.InitContainers = []corev1.Container{{Name: "proxy", StartupProbe: &corev1.Probe{}}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "proxy", State: exit("Error", 137, "", 5)}}
		}, "CrashLoopBackOff", "init container proxy: exit code 137, by itself or as its liveness or startup probe fails"},
		"sidecar is not ready": {func(p *corev1.Pod) {
			lost(p)
			p.Spec.InitContainers = []corev1.Container{{Name: "proxy",
				RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "proxy", State: running}}
		}, probeFails, "init container proxy: " + probe},
		"init container is done": {initState(terminated("Completed", 0)), "PodInitializing", "PodInitializing"},
		"readiness probe":        {objects.NotReady(running), probeFails, probe},
		"startup probe": {func(p *corev1.Pod) {
			objects.NotReady(running)(p)
			p.Status.ContainerStatuses[0].Started = new(false)
		}, probeFails, "its startup probe has not succeeded"},
		"one of two containers": {func(p *corev1.Pod) {
			objects.NotReady(exit("Error", 1, "", 5))(p)
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Ready: true})
		}, "CrashLoopBackOff", "container app: exit code 1"},
		"readiness gate": {func(p *corev1.Pod) {
			lost(p)
			p.Status.Conditions[0].Reason, p.Status.Conditions[0].Message = "ReadinessGatesNotReady", "gate x is False"
		}, "ReadinessGatesNotReady", "gate x is False"},
		"readiness gate that nothing sets": {func(p *corev1.Pod) {
			lost(p)
			p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/balanced"}}
			p.Status.Conditions[0].Reason = "ReadinessGatesNotReady"
		}, "ReadinessGatesNotReady", "nothing sets its readiness gate example.com/balanced: does the controller run that should?"},
		"lost":                     {func(p *corev1.Pod) { p.Status = corev1.PodStatus{Reason: "NodeLost"} }, "NodeLost", "NodeLost"},
		"the kubelet says nothing": {func(p *corev1.Pod) { p.Status = corev1.PodStatus{} }, "NotReady", "not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{LocalService: localService(), Nodes: nodesWith("n1"),
				Services: []*corev1.Service{aService("n1")},
				Pods:     []*corev1.Pod{objects.Pod("a", "n1", c.change)}, Now: now}
			in.Pods[0].UID = "uid-1"
			got := listOf(t, in).Items[0].Pods[0]
			if got.Reason != c.word || got.Message != c.text || got.Ready != (c.word == "") {
				t.Errorf("got  %q: %s\nwant %q: %s", got.Reason, got.Message, c.word, c.text)
			}
		})
	}
	in := Input{LocalService: localService(), Nodes: []*corev1.Node{node1(down(40))},
		Pods: []*corev1.Pod{objects.Pod("a", "n1", lost)},
		Now:  now, Stable: true}
	const want = "its node n1 is NotReady (since 2026-01-02 03:03:25 UTC)"
	if got := listOf(t, in).Items[0].Pods[0].Message; got != want {
		t.Errorf("in a watch: %s; want %s", got, want)
	}
}

// TestLog: the log of which container, and of which run of it, says why a pod is not ready.
func TestLog(t *testing.T) {
	const logs, events = "see kubectl logs -n default a -c app", "see kubectl describe pod -n default a"
	ended := terminated("Error", 1)
	ended.Terminated.StartedAt = metav1.NewTime(now)
	ended.Terminated.FinishedAt = metav1.NewTime(now)
	justStarted := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now)}}
	noProgram := terminated("StartError", 128)
	noProgram.Terminated.Message = "no such file"
	for name, c := range map[string]struct {
		container   string
		state, last corev1.ContainerState
		restarts    int32
		log         string
		act         string
	}{
		"of a name that is not in the specification": {"x; rm", ended, corev1.ContainerState{}, 0, LogCurrent, "see kubectl logs -n default a"},
		"never ran":                      {"app", objects.Waiting("ContainerCreating"), corev1.ContainerState{}, 0, "", events},
		"no such program":                {"app", objects.Waiting("CrashLoopBackOff"), noProgram, 2, "", ""},
		"has ended once":                 {"app", ended, corev1.ContainerState{}, 0, LogCurrent, logs},
		"has just ended again":           {"app", ended, ended, 3, LogCurrent, logs},
		"waits to run again":             {"app", objects.Waiting("CrashLoopBackOff"), ended, 3, LogCurrent, logs},
		"runs, and is not ready":         {"app", running, ended, 3, LogCurrent, events},
		"runs, most likely not for long": {"app", justStarted, ended, 3, LogPrevious, logs + " --previous"},
	} {
		pod := objects.Pod("a", "n1", objects.NotReady(c.state), func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{Name: "app"}}
			s := &p.Status.ContainerStatuses[0]
			s.Name, s.LastTerminationState, s.RestartCount = c.container, c.last, c.restarts
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "sidecar"})
		})
		got := listOf(t, Input{LocalService: localService(), Nodes: nodesWith("n1"), Pods: []*corev1.Pod{pod}, Now: now,
			Services: []*corev1.Service{aService("n1")}}).Items[0]
		if p := got.Pods[0]; p.Log != c.log || p.Restarts != c.restarts || got.Act != c.act {
			t.Errorf("%s: %q: %+v", name, got.Act, p)
		}
	}
}
