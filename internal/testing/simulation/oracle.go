package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// oracle says what is not as it should be, once everything has come to rest.
type oracle struct {
	*snapshot
	namespace string // that is being checked
	found     []problem
}

type problem struct{ namespace, kind, what string }

// problems returns what is wrong now. The lock of the API server must be held.
func problems(server *APIServer) []problem {
	o := &oracle{snapshot: newSnapshot(server)}
	for _, ls := range o.locals {
		o.namespace = ls.Namespace
		o.checkLocalService(ls)
	}
	for key, service := range o.services {
		o.namespace = key.Namespace
		if ls := o.owner(service); ls != nil && !o.mayStay(ls, service) {
			o.fail("a Service that nobody wants", "%s", key)
		}
	}
	for _, pod := range o.pods {
		o.namespace = pod.Namespace
		o.checkPod(pod)
	}
	slices.SortFunc(o.found, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.what, b.what))
	})
	return o.found
}

func (o *oracle) fail(kind, format string, args ...any) {
	o.found = append(o.found, problem{o.namespace, kind, fmt.Sprintf(format, args...)})
}

func (o *oracle) checkLocalService(ls *v1alpha1.LocalService) {
	if o.isInvalid(ls) {
		o.checkInvalid(ls)
		return
	}
	conflicts, ready, names := 0, 0, o.names(ls)
	for name, node := range names {
		key := types.NamespacedName{Namespace: ls.Namespace, Name: name}
		service := o.services[key]
		switch {
		case service == nil:
			o.fail("a Service is missing", "%s, which LocalService %s wants", key, ls.Name)
		case !metav1.IsControlledBy(service, ls):
			conflicts++
			if isOrphan(ls, service, node) {
				o.fail("an orphan is not adopted", "%s", key)
			}
		default:
			o.checkService(ls, service, node)
			answers := func(p *corev1.Pod) bool { return isLabelled(p) && isReady(p) }
			if slices.ContainsFunc(o.answering(ls, node), answers) {
				ready++
			}
		}
	}
	nodes, services, rivals := len(names), len(names)-conflicts, o.rivals(ls)
	if ls.Spec.Mode == v1alpha1.ModeHostnames {
		nodes, ready = o.checkHostnames(ls, conflicts)
	}
	o.checkStatus(ls, nodes+rivals, services, ready, conflicts+rivals)
}

// isOrphan reports whether a Service was generated for a node of a LocalService, and nothing controls it.
func isOrphan(ls *v1alpha1.LocalService, service *corev1.Service, node string) bool {
	return metav1.GetControllerOf(service) == nil && service.Labels[v1alpha1.OwnerLabelKey] == ls.Name &&
		node != "" && service.Spec.Selector[rack] == naming.NodeLabelValue(node)
}

// checkService compares a Service with what the API server would make from the wanted one.
func (o *oracle) checkService(ls *v1alpha1.LocalService, have *corev1.Service, node string) {
	name, want := keyOf(have), o.serviceOf(ls, have.Name, node)
	have = have.DeepCopy()
	for _, s := range []*corev1.Service{want, have} {
		s.Spec.ClusterIPs, s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = nil, nil, nil
		if s.Spec.ClusterIP != corev1.ClusterIPNone {
			s.Spec.ClusterIP = ""
		}
		for i := range s.Spec.Ports {
			s.Spec.Ports[i].NodePort = 0
		}
	}
	isLeft := func(key string) bool { return have.Annotations[key] != "" && want.Annotations[key] == "" }
	team := have.Labels["team"]
	if isLeft("example.com/note") || isLeft(publishKey) ||
		team != "" && team != teamByPolicy && want.Labels["team"] == "" {
		o.fail("a Service with metadata of before", "%s", name)
	}
	have = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: shared(have.Labels, want.Labels),
		Annotations: shared(have.Annotations, want.Annotations)}, Spec: have.Spec}
	if !apiequality.Semantic.DeepEqual(want, have) {
		o.fail("a Service that is not as it should be", "%s: %s", name, differences(want, have))
	}
}

// checkHostnames compares what is published with the pods, and returns how many names exist, and how many answer.
func (o *oracle) checkHostnames(ls *v1alpha1.LocalService, conflicts int) (names, ready int) {
	want, answers := o.endpoints(ls)
	have, resolves := map[string]bool{}, map[string]bool{}
	// Without a node, Services that have lost their owner are not adopted, and their copies are left alone.
	hasBoth := !slices.ContainsFunc([]string{ls.Name, sourceName(ls.Name)}, func(name string) bool {
		service := o.services[types.NamespacedName{Namespace: ls.Namespace, Name: name}]
		return service == nil || !metav1.IsControlledBy(service, ls)
	})
	for _, slice := range o.slices {
		isSource := slice.Labels[discoveryv1.LabelManagedBy] == sliceManager
		hasSource := slices.ContainsFunc(o.slices, func(s *discoveryv1.EndpointSlice) bool {
			return s.Namespace == slice.Namespace && s.Name+"-named" == slice.Name
		})
		isHidden := slice.Labels[v1alpha1.HostnamesLabelKey] == "" && (isSource || !hasSource)
		if slice.Namespace != ls.Namespace || isHidden ||
			slice.Labels[discoveryv1.LabelServiceName] != ls.Name || metav1.GetControllerOfNoCopy(slice) == nil {
			continue // Users have removed the owner or the label, and nothing leads to it any more.
		}
		if isCopy := slice.Labels[discoveryv1.LabelManagedBy] == v1alpha1.EndpointSliceManager; isCopy && hasSource &&
			hasBoth && conflicts == 0 && slice.Labels["team"] != teamOf(ls) {
			o.fail("a copy with other labels", "%s: %v", slice.Name, slice.Labels)
		}
		for _, e := range slice.Endpoints {
			have[fmt.Sprint(ptr.Deref(e.Hostname, ""), e.Addresses[0], *e.Conditions.Ready)] = true
			isReady := *e.Conditions.Ready && ptr.Deref(e.Conditions.Serving, true)
			resolves[ptr.Deref(e.Hostname, "")] = isReady || resolves[ptr.Deref(e.Hostname, "")]
		}
	}
	source := o.services[types.NamespacedName{Namespace: ls.Namespace, Name: sourceName(ls.Name)}]
	// Until then, no copy is deleted.
	if source != nil && time.Since(source.CreationTimestamp.Time) < settling+promptly {
		maps.DeleteFunc(have, func(endpoint string, _ bool) bool { return !want[endpoint] })
		for name := range answers {
			answers[name] = answers[name] || resolves[name]
		}
	}
	if conflicts == 0 && len(o.names(ls)) > 0 && !maps.Equal(want, have) {
		o.fail("names that are not as the pods", "%s: %v instead of %v", ls.Name, have, want)
	}
	for _, is := range answers {
		if is {
			ready++
		}
	}
	if o.selectsNothing(ls) {
		return 0, 0
	}
	return len(answers), ready
}

// teamOf returns the value of a label that serviceMetadata gives, "" for none.
func teamOf(ls *v1alpha1.LocalService) string {
	if ls.Spec.ServiceMetadata == nil {
		return ""
	}
	return ls.Spec.ServiceMetadata.Labels["team"]
}

func (o *oracle) checkStatus(ls *v1alpha1.LocalService, nodes, services, ready, conflicts int) {
	status, text := ls.Status, fmt.Sprintf("%d/%d", ready, nodes)
	if status.ObservedGeneration != ls.Generation {
		o.fail("a status of another generation", "%s: %d, not %d", ls.Name, status.ObservedGeneration, ls.Generation)
		return
	}
	isHostnames, isConflicted := ls.Spec.Mode == v1alpha1.ModeHostnames, conflicts > 0
	if int(status.Nodes) != nodes || int(status.Services) != services ||
		!(isHostnames && isConflicted) && status.Ready != text {
		o.fail("a status with other numbers", "%s: %d nodes, %d Services, ready %s, instead of %d, %d, %s", ls.Name,
			status.Nodes, status.Services, status.Ready, nodes, services, text)
	}
	want := map[string]bool{v1alpha1.ConditionReady: !isConflicted && nodes > 0,
		v1alpha1.ConditionConflicted: isConflicted,
		v1alpha1.ConditionContested:  false, v1alpha1.ConditionStalled: isConflicted}
	if !isConflicted {
		want[v1alpha1.ConditionProgressing] = false
	}
	for kind, is := range want {
		if meta.IsStatusConditionTrue(status.Conditions, kind) != is {
			o.fail("a condition that is not true", "%s: %s should be %t: %s", ls.Name, kind, is, encodeJSON(status))
		}
	}
}

// checkInvalid checks that the status says that the spec is invalid. Its numbers are the previous ones.
func (o *oracle) checkInvalid(ls *v1alpha1.LocalService) {
	ready := meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != v1alpha1.ReasonInvalidSpec ||
		ready.ObservedGeneration != ls.Generation || ls.Status.ObservedGeneration != ls.Generation ||
		!meta.IsStatusConditionTrue(ls.Status.Conditions, v1alpha1.ConditionStalled) {
		o.fail("an invalid spec is not reported", "%s: %s", ls.Name, encodeJSON(ls.Status))
	}
}
