package simulation

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ownRack is the value of the node label in the templates of workloads. No node has it as its name.
const ownRack = "rack1"

// mostPods is how many pods there may be, so that a history ends in which each new one is released and replaced.
const mostPods = 40

// cloneSet is a workload of a kind that the controllers do not know.
type cloneSet struct{ appsv1.ReplicaSet }

var cloneSetKind = schema.GroupVersionKind{Group: "apps.example.com", Version: "v1", Kind: "CloneSet"}

// DeepCopyObject hides that of the ReplicaSet, which would return a ReplicaSet.
func (c *cloneSet) DeepCopyObject() runtime.Object { return &cloneSet{*c.DeepCopy()} }

// workloadResources are the resources whose objects own pods.
var workloadResources = []string{"replicasets", "clonesets"}

// workloads returns all workloads. The lock of the API server must be held.
func workloads(s *APIServer) (out []Object) {
	for _, resource := range workloadResources {
		for _, e := range s.tables[resource].sorted() {
			out = append(out, e.object)
		}
	}
	return out
}

// specOf returns the spec of a workload.
func specOf(workload Object) *appsv1.ReplicaSetSpec {
	if c, ok := workload.(*cloneSet); ok {
		return &c.Spec
	}
	return &workload.(*appsv1.ReplicaSet).Spec
}

// newWorkload returns the workload of a step. Its name says of which kind it is. How is the number of its replicas, and
// what it has to do with the node label.
func newWorkload(s Step) Object {
	set := appsv1.ReplicaSet{ObjectMeta: metaOf(s.On)}
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
	if strings.HasPrefix(set.Name, "c") {
		return &cloneSet{set}
	}
	return &set
}

// scaleWorkload creates a workload, or changes the number of its replicas if it exists.
func scaleWorkload(w *world, s Step) error {
	workload := newWorkload(s)
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	t := w.server.tableOf(workload)
	if t.objects[keyOf(workload)] == nil {
		_, err := w.server.create(userName, t, workload, false)
		return err
	}
	_, err := w.server.update(update{table: t, by: userName, key: keyOf(workload)}, func(old Object) (Object, error) {
		scaled := old.DeepCopyObject().(Object)
		specOf(scaled).Replicas = specOf(workload).Replicas
		return scaled, nil
	})
	return err
}

// runWorkloads does what the controllers of workloads, the scheduler and kubelets do.
func (s *APIServer) runWorkloads() {
	for _, workload := range workloads(s) {
		if workload.GetDeletionTimestamp() == nil {
			s.runWorkload(workload)
		}
	}
	nodes := list[*corev1.Node](s)
	for _, pod := range list[*corev1.Pod](s) {
		if pod.Spec.NodeName == "" && len(nodes) > 0 {
			s.schedule(pod, nodes[hash(pod.Name)%uint64(len(nodes))].Name)
		}
	}
}

// runWorkload adopts and releases pods by their labels, as kube-controller-manager does, and then creates those that
// are missing, or deletes those that are too many.
func (s *APIServer) runWorkload(workload Object) {
	spec, t := specOf(workload), s.tables["pods"]
	ref := *metav1.NewControllerRef(workload, s.tableOf(workload).kind)
	selector, err := metav1.LabelSelectorAsSelector(spec.Selector)
	if err != nil {
		panic(err) // A mistake in newWorkload.
	}
	missing := int(*spec.Replicas)
	for _, pod := range list[*corev1.Pod](s) {
		if pod.Namespace != workload.GetNamespace() || !isActive(pod) {
			continue
		}
		isOwn, matches := metav1.IsControlledBy(pod, workload), selector.Matches(labels.Set(pod.Labels))
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
		pod := &corev1.Pod{ObjectMeta: *spec.Template.ObjectMeta.DeepCopy()}
		pod.Namespace, pod.GenerateName = workload.GetNamespace(), workload.GetName()+"-"
		pod.OwnerReferences = []metav1.OwnerReference{ref}
		_, _ = s.create(managerName, t, pod, false) // A namespace may be terminating.
	}
}

// isActive reports whether a pod counts as a replica of its workload.
func isActive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded &&
		pod.Status.Phase != corev1.PodFailed
}

// schedule binds a pod to a node, and runs it there.
func (s *APIServer) schedule(pod *corev1.Pod, node string) {
	s.uids++
	address := podIP(10000 + s.uids) // The first ones are for pods without a workload.
	s.edit(s.tables["pods"], pod, func(o Object) {
		pod := o.(*corev1.Pod)
		pod.Spec.NodeName = node
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address}
		setReady(pod, true)
	})
}
