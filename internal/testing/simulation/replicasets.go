package simulation

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// ownRack is the value of the node label in the templates of ReplicaSets. No node has it as its name.
const ownRack = "rack1"

// mostPods is how many pods there may be, so that a history ends in which each new one is released and replaced.
const mostPods = 40

// newReplicaSet returns the ReplicaSet of a step. How is the number of its replicas, and what it has to do with the
// node label.
func newReplicaSet(s Step) *appsv1.ReplicaSet {
	set := &appsv1.ReplicaSet{ObjectMeta: metaOf(s.On)}
	replicas, label, _ := strings.Cut(s.How, ",")
	n, _ := strconv.ParseInt(replicas, 10, 32) // 0 if it is no number.
	set.Spec.Replicas = new(int32(n))
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"run": set.Name}}
	set.Spec.Template.Labels = map[string]string{"app": "demo", "run": set.Name}
	if label != "" { // "stale" for a label in the template only
		set.Spec.Template.Labels[rack] = ownRack
	}
	switch label {
	case "selects":
		set.Spec.Selector.MatchLabels[rack] = ownRack
	case "exists":
		set.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: rack,
			Operator: metav1.LabelSelectorOpExists}}
	}
	return set
}

// scale creates a ReplicaSet, or changes the number of its replicas if it exists.
func scale(w *world, s Step) error {
	set := newReplicaSet(s)
	if Get[*appsv1.ReplicaSet](w.server, set.Namespace, set.Name) == nil {
		return w.server.Create(userName, set)
	}
	return Update(w.server, userName, set.Namespace, set.Name,
		func(stored *appsv1.ReplicaSet) { stored.Spec.Replicas = set.Spec.Replicas })
}

// runReplicaSets does what the controller of ReplicaSets, the scheduler and kubelets do.
func (s *APIServer) runReplicaSets() {
	for _, set := range list[*appsv1.ReplicaSet](s) {
		if set.DeletionTimestamp == nil {
			s.runReplicaSet(set)
		}
	}
	nodes := list[*corev1.Node](s)
	for _, pod := range list[*corev1.Pod](s) {
		if pod.Spec.NodeName == "" && len(nodes) > 0 {
			s.schedule(pod, nodes[hash(pod.Name)%uint64(len(nodes))].Name)
		}
	}
}

// runReplicaSet adopts and releases pods by their labels, as kube-controller-manager does, and then creates those that
// are missing, or deletes those that are too many.
func (s *APIServer) runReplicaSet(set *appsv1.ReplicaSet) {
	t := s.tables["pods"]
	ref := *metav1.NewControllerRef(set, s.tableOf(set).kind)
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		panic(err) // A mistake in newReplicaSet.
	}
	missing := int(*set.Spec.Replicas)
	for _, pod := range list[*corev1.Pod](s) {
		if pod.Namespace != set.Namespace || !isActive(pod) {
			continue
		}
		isOwn, matches := metav1.IsControlledBy(pod, set), selector.Matches(labels.Set(pod.Labels))
		switch {
		case isOwn && !matches:
			s.edit(t, pod, func(o Object) { o.SetOwnerReferences(nil) })
			continue
		case !isOwn && (!matches || metav1.GetControllerOf(pod) != nil):
			continue
		case !isOwn:
			s.edit(t, pod, func(o Object) { o.SetOwnerReferences([]metav1.OwnerReference{ref}) })
		}
		if missing--; missing < 0 {
			_ = s.delete(managerName, t, keyOf(pod), &metav1.DeleteOptions{}) // It was there a moment ago.
		}
	}
	for range min(missing, mostPods-len(list[*corev1.Pod](s))) {
		pod := &corev1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy()}
		pod.Namespace, pod.GenerateName = set.Namespace, set.Name+"-"
		pod.OwnerReferences = []metav1.OwnerReference{ref}
		_, _ = s.create(managerName, t, pod, false)
	}
}

// isActive reports whether a pod counts as a replica of its ReplicaSet.
func isActive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded &&
		pod.Status.Phase != corev1.PodFailed
}

// schedule binds a pod to a node, and runs it there.
func (s *APIServer) schedule(pod *corev1.Pod, node string) {
	s.uids++
	address := podIP(10000 + s.uids) // The first ones are for pods without a ReplicaSet.
	s.edit(s.tables["pods"], pod, func(o Object) {
		pod := o.(*corev1.Pod)
		pod.Spec.NodeName = node
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address}
		setReady(pod, true)
	})
}
