package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/internal/status"
)

// trouble is why a pod is not ready: in a word that stays the same while the cause does, and in words for people. Both
// are "" if the pod is ready.
type trouble struct{ word, text string }

const (
	crashes   = "CrashLoopBackOff"
	pullFails = "ImagePullBackOff"
)

// whyNotReady says why a pod is not ready. What it knows of the pod's node makes up for a kubelet that says nothing.
func (v *view) whyNotReady(pod *corev1.Pod) trouble {
	why := whyNotReady(pod)
	if why.text == "" && why.word != "" {
		why.text = "not ready"
		if state := v.States[pod.Spec.NodeName]; state.NotReady {
			why.text = "its node " + pod.Spec.NodeName + " is NotReady" + v.since(state)
		}
	}
	return why
}

// whyNotReady says why a pod is not ready, as far as the pod itself shows it: the text is "" if its kubelet does not
// say why.
func whyNotReady(pod *corev1.Pod) trouble {
	ready := podCondition(pod, corev1.PodReady)
	switch {
	case completed(pod):
		word := cmp.Or(pod.Status.Reason, string(pod.Status.Phase)) // Evicted
		return trouble{word, word}
	case pod.DeletionTimestamp != nil:
		return trouble{whyTerminating, whyTerminating}
	case ready.Status == corev1.ConditionTrue:
		return trouble{}
	}
	for i := range pod.Status.InitContainerStatuses {
		if why := containerTrouble(&pod.Status.InitContainerStatuses[i], &ready, true); why.word != "" {
			return why
		}
	}
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		why := containerTrouble(c, &ready, false)
		if why.word != "" && len(pod.Status.ContainerStatuses) > 1 {
			why.text += " (container " + c.Name + ")"
		}
		if why.word != "" {
			return why
		}
	}
	word := cmp.Or(ready.Message, pod.Status.Reason, "NotReady")
	for i := range pod.Status.ContainerStatuses {
		switch c := &pod.Status.ContainerStatuses[i]; {
		case c.Ready || c.State.Running == nil:
		case c.Started != nil && !*c.Started:
			return trouble{word, "container " + c.Name + " runs, but its startup probe has not succeeded"}
		default:
			return trouble{word, "container " + c.Name + " runs, but its readiness probe does not succeed"}
		}
	}
	return trouble{word, cmp.Or(ready.Message, pod.Status.Reason)} // Readiness gates are in the message.
}

// containerTrouble says why a container does not run. A container that crashes is at times waiting, at times running
// and at times terminated, and an image that cannot be pulled has two reasons: each is one cause.
func containerTrouble(c *corev1.ContainerStatus, ready *corev1.PodCondition, isInit bool) trouble {
	last := c.LastTerminationState.Terminated
	switch waiting, running, ended := c.State.Waiting, c.State.Running, c.State.Terminated; {
	case waiting != nil && (waiting.Reason == pullFails || waiting.Reason == "ErrImagePull"):
		return trouble{pullFails, strings.TrimSpace("cannot pull image " + c.Image)}
	case waiting != nil && waiting.Reason == crashes:
		return crash(c, last)
	case waiting != nil && waiting.Reason == "CreateContainerConfigError" && waiting.Message != "":
		return trouble{waiting.Reason, waiting.Message}
	case waiting != nil && waiting.Reason != "":
		return trouble{waiting.Reason, waiting.Reason} // ContainerCreating
	case ended != nil && (ended.ExitCode != 0 || !isInit):
		return crash(c, ended)
	case running != nil && !c.Ready && last != nil && !isInit && !running.StartedAt.Before(&ready.LastTransitionTime):
		return crash(c, last) // It was not ready since.
	}
	return trouble{}
}

// crash describes a container that has ended.
func crash(c *corev1.ContainerStatus, ended *corev1.ContainerStateTerminated) trouble {
	word, text := crashes, crashes
	switch {
	case ended != nil && ended.Reason == "OOMKilled":
		word, text = ended.Reason, ended.Reason
	case ended != nil:
		text = fmt.Sprintf("exit code %d", ended.ExitCode)
	}
	if c.RestartCount > 0 {
		text += ", " + status.Count(int(c.RestartCount), "restart")
	}
	return trouble{word, text}
}

// completed reports whether all containers of a pod have ended for good.
func completed(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// hasAddress reports whether one of a pod's addresses is in a set.
func hasAddress(pod *corev1.Pod, addresses sets.Set[string]) bool {
	return slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool { return addresses.Has(ip.IP) })
}

// podCondition returns a condition of a pod, the zero value if it is not there.
func podCondition(pod *corev1.Pod, conditionType corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == conditionType {
			return c
		}
	}
	return corev1.PodCondition{}
}
