package diagnose

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// ended says whether no traffic goes to a pod any more.
func ended(pod *corev1.Pod) bool {
	return completed(pod) || pod.DeletionTimestamp != nil
}

func completed(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// whyNotReady says in a few words why a pod is not ready, much as `kubectl get pods` does; "" if it is.
func whyNotReady(pod *corev1.Pod) string {
	ready := podCondition(pod, corev1.PodReady)
	switch {
	case completed(pod) && pod.Status.Reason != "":
		return pod.Status.Reason // Evicted
	case completed(pod):
		return string(pod.Status.Phase)
	case pod.DeletionTimestamp != nil:
		return "Terminating"
	case ready != nil && ready.Status == corev1.ConditionTrue:
		return ""
	}
	if reason := whyInitContainers(pod); reason != "" {
		return reason
	}
	if reason := whyContainers(pod.Status.ContainerStatuses); reason != "" {
		return reason
	}
	for _, gate := range pod.Spec.ReadinessGates {
		if c := podCondition(pod, gate.ConditionType); c == nil || c.Status != corev1.ConditionTrue {
			return "readiness gate " + string(gate.ConditionType)
		}
	}
	switch {
	case pod.Status.Reason != "":
		return pod.Status.Reason // NodeLost
	case len(pod.Status.ContainerStatuses) == 0:
		return "the kubelet has not started it"
	case ready == nil:
		return "starting"
	}
	// All containers are ready, and still the pod is not: so says the node controller when a node is lost.
	return "is its node down?"
}

// whyInitContainers says what keeps the init containers from having ended.
func whyInitContainers(pod *corev1.Pod) string {
	for i := range pod.Status.InitContainerStatuses {
		c := &pod.Status.InitContainerStatuses[i]
		switch reason := stopped(c); {
		case sidecar(pod, c.Name):
			if reason != "" {
				return "Init:" + reason
			}
		case c.State.Terminated != nil && c.State.Terminated.ExitCode == 0: // As it should be.
		case reason != "":
			return "Init:" + reason
		case c.State.Running != nil:
			return "init container " + c.Name + " is running"
		}
	}
	return ""
}

func sidecar(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
}

// whyContainers says what the first container that is not ready waits for.
func whyContainers(statuses []corev1.ContainerStatus) string {
	for i := range statuses {
		c := &statuses[i]
		switch reason := stopped(c); {
		case reason != "":
			return reason
		case c.State.Running != nil && c.Started != nil && !*c.Started:
			return "startup probe not passed"
		case c.State.Running != nil && !c.Ready:
			return "readiness probe not passed"
		}
	}
	return ""
}

// stopped says why a container does not run; "" if it does.
func stopped(c *corev1.ContainerStatus) string {
	switch {
	case c.State.Waiting != nil:
		return c.State.Waiting.Reason // CrashLoopBackOff, ImagePullBackOff, ContainerCreating
	case c.State.Terminated != nil && c.State.Terminated.Reason != "":
		return c.State.Terminated.Reason // OOMKilled, Error
	case c.State.Terminated != nil:
		return fmt.Sprintf("ExitCode:%d", c.State.Terminated.ExitCode)
	}
	return ""
}

func podCondition(pod *corev1.Pod, conditionType corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == conditionType {
			return c
		}
	}
	return nil
}
