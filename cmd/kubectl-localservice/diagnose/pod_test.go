package diagnose

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWhyNotReady: the states that a cause goes through have the same word.
func TestWhyNotReady(t *testing.T) {
	initState := func(state corev1.ContainerState) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			notReady(waiting("PodInitializing"))(p)
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: running}, {State: state}}
		}
	}
	// crashing makes a container one that has ended before.
	crashing := func(state corev1.ContainerState, last *corev1.ContainerState, restarts int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			notReady(state)(p)
			p.Status.ContainerStatuses[0].LastTerminationState = *last
			p.Status.ContainerStatuses[0].RestartCount = restarts
		}
	}
	second := func(seconds int64) metav1.Time { return metav1.Unix(seconds, 0) }
	again := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: second(20)}}
	exit1, oom, none := terminated("Error", 1), terminated("OOMKilled", 137), corev1.ContainerState{}
	unreadySince := func(at int64, change func(*corev1.Pod)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			change(p)
			p.Status.Conditions[0].LastTransitionTime = second(at)
		}
	}
	image := func(state string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			notReady(waiting(state))(p)
			p.Status.ContainerStatuses[0].Image = "app:2"
		}
	}
	const unready = "containers with unready status: [app]"
	for name, c := range map[string]struct {
		change     func(*corev1.Pod)
		word, text string
	}{
		"ready":               {func(*corev1.Pod) {}, "", ""},
		"evicted":             {phase(corev1.PodFailed, "Evicted"), "Evicted", "Evicted"},
		"failed":              {phase(corev1.PodFailed, ""), "Failed", "Failed"},
		"deleted":             {terminating, "Terminating", "Terminating"},
		"image, at first":     {image("ErrImagePull"), "ImagePullBackOff", "cannot pull image app:2"},
		"image, later":        {image("ImagePullBackOff"), "ImagePullBackOff", "cannot pull image app:2"},
		"image, of its own":   {image("ErrImageNeverPull"), "ErrImageNeverPull", "ErrImageNeverPull"},
		"ended":               {notReady(exit1), "CrashLoopBackOff", "exit code 1"},
		"ended without error": {notReady(terminated("Completed", 0)), "CrashLoopBackOff", "exit code 0"},
		"waits to run again": {crashing(waiting("CrashLoopBackOff"), &exit1, 1), "CrashLoopBackOff",
			"exit code 1, 1 restart"},
		"runs again": {unreadySince(10, crashing(again, &exit1, 5)), "CrashLoopBackOff", "exit code 1, 5 restarts"},
		"was ready again": {unreadySince(30, crashing(again, &exit1, 5)), unready,
			"container app runs, but its readiness probe does not succeed"},
		"out of memory": {notReady(oom), "OOMKilled", "OOMKilled"},
		"out of memory, and waits": {crashing(waiting("CrashLoopBackOff"), &oom, 2), "OOMKilled",
			"OOMKilled, 2 restarts"},
		"crashes, nobody knows how": {crashing(waiting("CrashLoopBackOff"), &none, 0), "CrashLoopBackOff",
			"CrashLoopBackOff"},
		"init container crashes": {initState(waiting("CrashLoopBackOff")), "CrashLoopBackOff", "CrashLoopBackOff"},
		"init container is done": {initState(terminated("Completed", 0)), "PodInitializing", "PodInitializing"},
		"bad configuration": {notReady(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "CreateContainerConfigError", Message: `secret "s" not found`}}), "CreateContainerConfigError",
			`secret "s" not found`},
		"readiness probe": {notReady(running), unready, "container app runs, but its readiness probe does not succeed"},
		"startup probe": {func(p *corev1.Pod) {
			notReady(running)(p)
			p.Status.ContainerStatuses[0].Started = new(false)
		}, unready, "container app runs, but its startup probe has not succeeded"},
		"one of two containers": {func(p *corev1.Pod) {
			notReady(exit1)(p)
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Ready: true})
		}, "CrashLoopBackOff", "exit code 1 (container app)"},
		"lost":                     {func(p *corev1.Pod) { p.Status = corev1.PodStatus{Reason: "NodeLost"} }, "NodeLost", "NodeLost"},
		"the kubelet says nothing": {func(p *corev1.Pod) { p.Status = corev1.PodStatus{} }, "NotReady", ""},
	} {
		t.Run(name, func(t *testing.T) {
			full := pod("a", "n1", c.change)
			if got := whyNotReady(full); got != (trouble{c.word, c.text}) {
				t.Errorf("got %q; want %q, %q", got, c.word, c.text)
			}
			if got := whyNotReady(trimPod(full)); got != (trouble{c.word, c.text}) {
				t.Errorf("of the trimmed pod: %q", got)
			}
		})
	}
}
