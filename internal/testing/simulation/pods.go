package simulation

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// addPod creates a pod that is bound to a node and runs there. Its template may have a false node label.
func addPod(w *world, s Step) error {
	node, flaw, _ := strings.Cut(s.How, ",")
	w.pods++
	pod := &corev1.Pod{ObjectMeta: metaOf(s.On), Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: podIP(w.pods)}}
	pod.Labels = map[string]string{"app": "demo"}
	switch flaw {
	case "stale":
		pod.Labels[v1alpha1.DefaultNodeLabelKey] = nodes[0]
	case "other":
		pod.Labels["app"] = "other"
	}
	setReady(pod, flaw != "starting")
	_ = w.server.Delete(kubeletName, pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}) // if it exists
	return w.server.Create(userName, pod)
}

func setReady(pod *corev1.Pod, ready bool) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
}

func readyPod(w *world, s Step) error {
	key := metaOf(s.On)
	return Update(w.server, kubeletName, key.Namespace, key.Name,
		func(pod *corev1.Pod) { setReady(pod, s.How != "no") }, "status")
}

func completePod(w *world, s Step) error {
	key := some[*corev1.Pod](w, s.On)
	return Update(w.server, kubeletName, key.Namespace, key.Name, func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodSucceeded
		setReady(pod, false)
	}, "status")
}

func removePod(w *world, s Step) error {
	return w.remove(&corev1.Pod{ObjectMeta: some[*corev1.Pod](w, s.On)})
}
