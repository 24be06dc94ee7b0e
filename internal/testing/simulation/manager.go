package simulation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// managerName is the name of the cluster's own controllers, and kubeletName that of who ends pods.
	managerName = "kube-controller-manager"
	kubeletName = "kubelet"
	// sliceManager manages the EndpointSlices of Services that select pods.
	sliceManager = "endpointslice-controller.k8s.io"
	// maxEndpoints is how many endpoints an EndpointSlice has at most: few, so that a Service has several of them.
	maxEndpoints = 2
)

// manage does, until ctx is done, what kube-controller-manager, the scheduler and kubelets do: garbage collection,
// EndpointSlices, the pods of ReplicaSets, and the end of pods.
func (s *APIServer) manage(ctx context.Context, seed uint64) {
	for round := 0; ; round++ {
		s.mu.Lock()
		changed := s.changed
		for range 10 { // One thing leads to another.
			before := s.version
			s.collectGarbage()
			s.publishEndpoints()
			s.runReplicaSets()
			s.endPods()
			s.oppose()
			if s.version == before {
				break
			}
			changed = s.changed
		}
		var ending <-chan time.Time
		if slices.ContainsFunc(list[*corev1.Pod](s), func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }) {
			ending = time.After(time.Second) // Pods end some time after they are deleted.
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-ending:
		}
		time.Sleep(10*time.Millisecond + time.Duration(hash(seed, "manager", round)%uint64(150*time.Millisecond)))
	}
}

// oppose changes, as another controller does that wants something else, what replicas have written.
func (s *APIServer) oppose() {
	if s.opponent == nil {
		return
	}
	for _, name := range []string{"services", "endpointslices"} {
		for _, e := range s.tables[name].sorted() {
			ref := metav1.GetControllerOf(e.object)
			isCopy := e.object.GetLabels()[discoveryv1.LabelManagedBy] == v1alpha1.EndpointSliceManager
			if !isCopy && (ref == nil || ref.Kind != v1alpha1.Kind) {
				continue
			}
			changed := e.object.DeepCopyObject().(Object)
			if s.opponent(changed); !apiequality.Semantic.DeepEqual(e.object, changed) {
				s.edit(s.tables[name], e.object, s.opponent)
			}
		}
	}
}

// concernsManager reports whether the cluster's own controllers may have something to do after a write: most writes are
// of statuses, events and leases.
func concernsManager(w *Write) bool {
	switch w.Resource {
	case "leases", "events":
		return false
	case "localservices":
		return w.After == nil || w.After.GetDeletionTimestamp() != nil
	}
	return true
}

// collected are the resources whose objects have owners here, or are owners.
var collected = []string{"services", "endpointslices", "localservices", "pods", "replicasets"}

// collectGarbage deletes what has lost all of its owners, and carries out the propagation policies of deletions.
func (s *APIServer) collectGarbage() {
	for _, name := range collected {
		t := s.tables[name]
		for _, e := range t.sorted() {
			s.collect(t, e.object)
		}
	}
}

func (s *APIServer) collect(t *table, object Object) {
	if object.GetDeletionTimestamp() != nil {
		s.finalize(t, object)
		return
	}
	refs := object.GetOwnerReferences()
	solid := slices.DeleteFunc(slices.Clone(refs), func(ref metav1.OwnerReference) bool {
		return s.owner(object.GetNamespace(), ref) == nil
	})
	switch {
	case len(refs) == 0:
	case len(solid) == 0:
		_ = s.delete(managerName, t, keyOf(object), &metav1.DeleteOptions{})
	case len(solid) < len(refs):
		s.edit(t, object, func(o Object) { o.SetOwnerReferences(solid) })
	}
}

// owner returns the object of an owner reference, nil if it does not exist.
func (s *APIServer) owner(namespace string, ref metav1.OwnerReference) Object {
	for _, t := range s.tables {
		e := t.objects[types.NamespacedName{Namespace: namespace, Name: ref.Name}]
		if t.kind.Kind == ref.Kind && t.kind.GroupVersion().String() == ref.APIVersion && e != nil &&
			e.object.GetUID() == ref.UID {
			return e.object
		}
	}
	return nil
}

// finalize does what the finalizers of the garbage collector ask for.
func (s *APIServer) finalize(t *table, object Object) {
	isOrphaning := slices.Contains(object.GetFinalizers(), metav1.FinalizerOrphanDependents)
	isForeground := slices.Contains(object.GetFinalizers(), metav1.FinalizerDeleteDependents)
	if !isOrphaning && !isForeground {
		return
	}
	left := 0
	for _, name := range collected {
		for _, e := range s.tables[name].sorted() {
			isOf := func(ref metav1.OwnerReference) bool { return ref.UID == object.GetUID() }
			if !slices.ContainsFunc(e.object.GetOwnerReferences(), isOf) {
				continue
			}
			if isOrphaning {
				s.edit(s.tables[name], e.object, func(o Object) {
					o.SetOwnerReferences(slices.DeleteFunc(o.GetOwnerReferences(), isOf))
				})
			} else {
				left++
				_ = s.delete(managerName, s.tables[name], keyOf(e.object), &metav1.DeleteOptions{})
			}
		}
	}
	if left == 0 {
		s.edit(t, object, func(o Object) { o.SetFinalizers(withoutPropagation(o)) })
	}
}

func (s *APIServer) edit(t *table, object Object, change func(Object)) {
	u := update{table: t, by: managerName, key: keyOf(object)}
	_, _ = s.update(u, func(old Object) (Object, error) { // What is refused is tried again at the next change.
		changed := old.DeepCopyObject().(Object)
		change(changed)
		return changed, nil
	})
}

// publishEndpoints maintains the EndpointSlices of all Services that select pods.
func (s *APIServer) publishEndpoints() {
	byService := map[types.NamespacedName][]*discoveryv1.EndpointSlice{}
	for _, slice := range list[*discoveryv1.EndpointSlice](s) {
		if slice.Labels[discoveryv1.LabelManagedBy] == sliceManager {
			key := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
			byService[key] = append(byService[key], slice)
		}
	}
	pods := list[*corev1.Pod](s)
	for _, service := range list[*corev1.Service](s) {
		if len(service.Spec.Selector) > 0 && service.DeletionTimestamp == nil {
			s.publishService(service, pods, byService[keyOf(service)])
		}
	}
}

func (s *APIServer) publishService(service *corev1.Service, pods []*corev1.Pod, have []*discoveryv1.EndpointSlice) {
	selector := labels.SelectorFromSet(service.Spec.Selector)
	var endpoints []discoveryv1.Endpoint
	for _, pod := range pods {
		if pod.Namespace == service.Namespace && selector.Matches(labels.Set(pod.Labels)) && isPublished(pod) {
			endpoints = append(endpoints, endpointOf(pod, service.Spec.PublishNotReadyAddresses))
		}
	}
	chunks := slices.Collect(slices.Chunk(endpoints, maxEndpoints))
	if len(chunks) == 0 {
		chunks = [][]discoveryv1.Endpoint{nil} // Kubernetes keeps an empty one, too.
	}
	for i, chunk := range chunks {
		want := sliceOf(service, chunk)
		if i >= len(have) {
			_, _ = s.create(managerName, s.tables["endpointslices"], want, false)
			continue
		}
		current := have[i]
		if !apiequality.Semantic.DeepEqual(current.Endpoints, want.Endpoints) ||
			!apiequality.Semantic.DeepEqual(current.Ports, want.Ports) || !maps.Equal(current.Labels, want.Labels) ||
			!metav1.IsControlledBy(current, service) {
			s.edit(s.tables["endpointslices"], current, func(o Object) {
				slice := o.(*discoveryv1.EndpointSlice)
				slice.Endpoints, slice.Ports, slice.Labels = want.Endpoints, want.Ports, want.Labels
				slice.OwnerReferences = want.OwnerReferences
			})
		}
	}
	for i := len(chunks); i < len(have); i++ {
		_ = s.delete(managerName, s.tables["endpointslices"], keyOf(have[i]), &metav1.DeleteOptions{})
	}
}

// isPublished reports whether a pod is an endpoint of the Services that select it.
func isPublished(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Status.PodIP != "" &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// isReady reports whether a pod is an endpoint that is ready.
func isReady(pod *corev1.Pod) bool {
	return isPublished(pod) && pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

func endpointOf(pod *corev1.Pod, publishNotReady bool) discoveryv1.Endpoint {
	ready, node := isReady(pod), pod.Spec.NodeName
	return discoveryv1.Endpoint{Addresses: []string{pod.Status.PodIP}, NodeName: &node,
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Conditions: discoveryv1.EndpointConditions{Ready: new(ready || publishNotReady), Serving: &ready}}
}

func sliceOf(service *corev1.Service, endpoints []discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints}
	slice.Namespace, slice.GenerateName = service.Namespace, service.Name+"-"
	slice.Labels = maps.Clone(service.Labels)
	if slice.Labels == nil {
		slice.Labels = map[string]string{}
	}
	slice.Labels[discoveryv1.LabelServiceName], slice.Labels[discoveryv1.LabelManagedBy] = service.Name, sliceManager
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		slice.Labels[corev1.IsHeadlessService] = ""
	}
	slice.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(service,
		corev1.SchemeGroupVersion.WithKind("Service"))}
	for _, port := range service.Spec.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new(port.Name), Port: new(port.Port),
			Protocol: new(port.Protocol)})
	}
	return slice
}

// endPods removes the pods whose grace period is over, and those of nodes that are gone.
func (s *APIServer) endPods() {
	for _, pod := range list[*corev1.Pod](s) {
		isLost := pod.Spec.NodeName != "" &&
			s.tables["nodes"].objects[types.NamespacedName{Name: pod.Spec.NodeName}] == nil
		if isLost || pod.DeletionTimestamp != nil && time.Now().After(pod.DeletionTimestamp.Time) {
			_ = s.delete(kubeletName, s.tables["pods"], keyOf(pod), &metav1.DeleteOptions{GracePeriodSeconds: new(
				int64(0))})
		}
	}
}

// podIP returns the address of a pod, which no other pod has.
func podIP(n int) string { return fmt.Sprintf("10.244.%d.%d", n/250, n%250+2) }
