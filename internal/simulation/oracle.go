package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

const rack = v1alpha1.DefaultNodeLabelKey

// oracle knows what should be there, from LocalServices, nodes and pods alone: what docs/reference/behaviour.md
// promises.
type oracle struct {
	locals   []*v1alpha1.LocalService
	nodes    []*corev1.Node
	pods     []*corev1.Pod
	services map[types.NamespacedName]*corev1.Service
	slices   []*discoveryv1.EndpointSlice
	wanted   map[types.NamespacedName][]want
	found    []problem
}

// want is that a LocalService wants a Service: of a node or, with mode Hostnames, of none.
type want struct {
	ls   *v1alpha1.LocalService
	node string
}

type problem struct{ kind, what string }

// newOracle looks at what is stored. The lock of the API server must be held.
func newOracle(s *APIServer) *oracle {
	o := &oracle{locals: list[*v1alpha1.LocalService](s), nodes: list[*corev1.Node](s), pods: list[*corev1.Pod](s),
		slices:   list[*discoveryv1.EndpointSlice](s),
		services: map[types.NamespacedName]*corev1.Service{}, wanted: map[types.NamespacedName][]want{}}
	for _, service := range list[*corev1.Service](s) {
		o.services[keyOf(service)] = service
	}
	for _, ls := range o.locals {
		if ls.DeletionTimestamp == nil {
			for name, node := range o.names(ls) {
				key := types.NamespacedName{Namespace: ls.Namespace, Name: name}
				o.wanted[key] = append(o.wanted[key], want{ls, node})
			}
		}
	}
	return o
}

// selected are the nodes that have a name in a LocalService.
func (o *oracle) selected(ls *v1alpha1.LocalService) (out []*corev1.Node) {
	for _, node := range o.nodes {
		if labels.SelectorFromSet(ls.Spec.NodeSelector).Matches(labels.Set(node.Labels)) {
			out = append(out, node)
		}
	}
	return out
}

// names are those of the Services that a LocalService wants, with their nodes.
func (o *oracle) names(ls *v1alpha1.LocalService) map[string]string {
	names := map[string]string{}
	if ls.Spec.Mode == v1alpha1.ModeHostnames {
		both := map[string]string{ls.Name: "", naming.ServiceName(ls.Name, "/hostnames"): ""}
		for name := range both {
			service := o.services[types.NamespacedName{Namespace: ls.Namespace, Name: name}]
			if !o.selectsNothing(ls) || service != nil && metav1.IsControlledBy(service, ls) {
				return both
			}
		}
		return names
	}
	for _, node := range o.selected(ls) {
		names[naming.ServiceName(ls.Name, node.Name)] = node.Name
	}
	return names
}

// selectsNothing reports whether a nodeSelector matches no node: then nothing of a node that exists is deleted.
func (o *oracle) selectsNothing(ls *v1alpha1.LocalService) bool {
	return len(ls.Spec.NodeSelector) > 0 && len(o.selected(ls)) == 0
}

// isKept reports whether a Service that no node wants is to stay because its LocalService selects nothing.
func (o *oracle) isKept(uid types.UID, service *corev1.Service) bool {
	node := service.Annotations[v1alpha1.NodeAnnotationKey]
	exists := slices.ContainsFunc(o.nodes, func(n *corev1.Node) bool { return n.Name == node })
	return o.selectsNothing(o.ls(uid)) && (node == "" || exists)
}

// hostname is the name that a node has with mode Hostnames, "" for none.
func (o *oracle) hostname(ls *v1alpha1.LocalService, node *corev1.Node) string {
	if ls.Spec.GroupBy != "" {
		if node.Labels[ls.Spec.GroupBy] == "" {
			return ""
		}
		return naming.Hostname(node.Labels[ls.Spec.GroupBy])
	}
	return naming.Hostname(node.Name)
}

func (o *oracle) fail(kind, format string, args ...any) {
	o.found = append(o.found, problem{kind, fmt.Sprintf(format, args...)})
}

// problems are what is not as it should be when all has come to rest.
func (o *oracle) problems() []problem {
	for _, ls := range o.locals {
		if ls.DeletionTimestamp == nil {
			o.checkLocalService(ls)
		}
	}
	for key, service := range o.services {
		ref := metav1.GetControllerOf(service)
		isOurs := func(w want) bool { return ref != nil && w.ls.UID == ref.UID }
		isOf := func(ls *v1alpha1.LocalService) bool {
			return ref != nil && ls.UID == ref.UID && ls.Namespace == key.Namespace
		}
		if slices.ContainsFunc(o.locals, isOf) && !slices.ContainsFunc(o.wanted[key], isOurs) &&
			!o.isKept(ref.UID, service) &&
			!(isOfMode(ref.Name, service) != o.mode(ref.UID) && (o.isTaken(ref.UID) || o.hasOwnPods(ref.UID))) {
			o.fail("a Service that nobody wants", "%s", key)
		}
	}
	for _, pod := range o.pods {
		o.checkPod(pod)
	}
	slices.SortFunc(o.found, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.what,
			b.what))
	})
	return o.found
}

// isTaken reports whether a name that a LocalService wants is taken: as long as it is, the names of the mode that it
// had before stay.
func (o *oracle) isTaken(uid types.UID) bool {
	for key, wants := range o.wanted {
		for _, w := range wants {
			if service := o.services[key]; w.ls.UID == uid && service != nil && !metav1.IsControlledBy(service, w.ls) {
				return true
			}
		}
	}
	return false
}

// hasOwnPods reports whether one of the Services of the mode that a LocalService had before publishes other pods than
// that does now: it answers, and no new name does for it, as long as there are such. They go together.
func (o *oracle) hasOwnPods(uid types.UID) bool {
	spec := &o.ls(uid).Spec
	for _, service := range o.services {
		ref, selector := metav1.GetControllerOf(service), maps.Clone(service.Spec.Selector)
		delete(selector, rack)
		if ref != nil && ref.UID == uid && isOfMode(ref.Name, service) != o.mode(uid) &&
			(!maps.Equal(selector, spec.Selector) ||
				service.Spec.PublishNotReadyAddresses != spec.PublishNotReadyAddresses) {
			return true
		}
	}
	return false
}

func (o *oracle) ls(uid types.UID) *v1alpha1.LocalService {
	return o.locals[slices.IndexFunc(o.locals, func(ls *v1alpha1.LocalService) bool { return ls.UID == uid })]
}

func (o *oracle) mode(uid types.UID) v1alpha1.Mode {
	return cmp.Or(o.ls(uid).Spec.Mode, v1alpha1.ModeServices)
}

func isOfMode(owner string, service *corev1.Service) v1alpha1.Mode {
	if service.Name == owner || service.Name == naming.ServiceName(owner, "/hostnames") {
		return v1alpha1.ModeHostnames
	}
	return v1alpha1.ModeServices
}

func (o *oracle) checkLocalService(ls *v1alpha1.LocalService) {
	conflicts, ready := 0, 0
	for name, node := range o.names(ls) {
		key := types.NamespacedName{Namespace: ls.Namespace, Name: name}
		service := o.services[key]
		switch {
		case service == nil:
			o.fail("a Service is missing", "%s, which LocalService %s wants", key, ls.Name)
		case !metav1.IsControlledBy(service, ls):
			conflicts++
			if metav1.GetControllerOf(service) == nil && service.Labels[v1alpha1.OwnerLabelKey] == ls.Name &&
				node != "" && service.Spec.Selector[rack] == naming.NodeLabelValue(node) {
				o.fail("an orphan is not adopted", "%s", key)
			}
		default:
			o.checkService(ls, service, node)
			if o.answers(ls, node) {
				ready++
			}
		}
	}
	nodes, services := len(o.names(ls)), len(o.names(ls))-conflicts
	if ls.Spec.Mode == v1alpha1.ModeHostnames {
		nodes, ready = o.checkHostnames(ls, conflicts)
	}
	o.checkStatus(ls, nodes, services, ready, conflicts)
}

// answers reports whether a pod answers by the name of a node.
func (o *oracle) answers(ls *v1alpha1.LocalService, node string) bool {
	return slices.ContainsFunc(o.pods, func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName == node && o.selects(ls, pod) && o.isReady(ls, pod)
	})
}

func (o *oracle) selects(ls *v1alpha1.LocalService, pod *corev1.Pod) bool {
	return pod.Namespace == ls.Namespace && labels.SelectorFromSet(ls.Spec.Selector).Matches(labels.Set(pod.Labels))
}

func (o *oracle) isReady(ls *v1alpha1.LocalService, pod *corev1.Pod) bool {
	return isReady(pod) || ls.Spec.PublishNotReadyAddresses && isPublished(pod)
}

func (o *oracle) checkService(ls *v1alpha1.LocalService, service *corev1.Service, node string) {
	selector := maps.Clone(ls.Spec.Selector)
	wantLabels := map[string]string{v1alpha1.OwnerLabelKey: ls.Name}
	isHeadless := ls.Spec.ClusterIP == corev1.ClusterIPNone || ls.Spec.Mode == v1alpha1.ModeHostnames
	if node != "" {
		selector[rack], wantLabels[rack] = naming.NodeLabelValue(node), naming.NodeLabelValue(node)
	} else if service.Name == ls.Name {
		selector = nil
	}
	if m := ls.Spec.ServiceMetadata; m != nil && (node != "" || service.Name == ls.Name) {
		maps.Copy(wantLabels, m.Labels)
		if !contains(service.Annotations, m.Annotations) {
			o.fail("a Service without its annotations", "%s: %v", service.Name, service.Annotations)
		}
	}
	spec := service.Spec
	affinity := cmp.Or(ls.Spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch {
	case !maps.Equal(spec.Selector, selector):
		o.fail("a Service with another selector", "%s: %v instead of %v", service.Name, spec.Selector, selector)
	case !contains(service.Labels, wantLabels):
		o.fail("a Service without its labels", "%s: %v instead of %v", service.Name, service.Labels, wantLabels)
	case ls.Spec.ServiceMetadata == nil && service.Annotations["example.com/note"] != "":
		o.fail("a Service with metadata of before", "%s: %v", service.Name, service.Annotations)
	case service.Annotations[v1alpha1.NodeAnnotationKey] != node:
		o.fail("a Service that names another node", "%s: %v", service.Name, service.Annotations)
	case spec.Type != cmp.Or(ls.Spec.Type, corev1.ServiceTypeClusterIP),
		isHeadless != (spec.ClusterIP == corev1.ClusterIPNone):
		o.fail("a Service of another type", "%s: %s %s", service.Name, spec.Type, spec.ClusterIP)
	case portsOf(ls.Spec.Ports) != storedPorts(spec.Ports):
		o.fail("a Service with other ports", "%s: %s instead of %s", service.Name, storedPorts(spec.Ports), portsOf(
			ls.Spec.Ports))
	case spec.PublishNotReadyAddresses != ls.Spec.PublishNotReadyAddresses, spec.SessionAffinity != affinity,
		spec.InternalTrafficPolicy == nil || *spec.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyCluster:
		o.fail("a Service with other options", "%s: %v", service.Name, spec)
	}
}

func portsOf(ports []v1alpha1.ServicePort) (out string) {
	for _, p := range ports {
		target := cmp.Or(p.TargetPort, intstr.FromInt32(p.Port))
		out += fmt.Sprintf("%s %d %s %s;", p.Name, p.Port, cmp.Or(p.Protocol, corev1.ProtocolTCP), &target)
	}
	return out
}

func storedPorts(ports []corev1.ServicePort) (out string) {
	for _, p := range ports {
		out += fmt.Sprintf("%s %d %s %s;", p.Name, p.Port, p.Protocol, &p.TargetPort)
	}
	return out
}

func contains(all, part map[string]string) bool {
	for key, value := range part {
		if got, found := all[key]; !found || got != value {
			return false
		}
	}
	return true
}

// checkHostnames compares what is published with the pods, and returns how many names there are, and answer.
func (o *oracle) checkHostnames(ls *v1alpha1.LocalService, conflicts int) (names, ready int) {
	all, answer, want, have := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	named := o.selected(ls)
	if o.selectsNothing(ls) && len(o.names(ls)) > 0 {
		named = o.nodes
	}
	for _, node := range named {
		hostname := o.hostname(ls, node)
		if hostname == "" {
			continue
		}
		all[hostname] = true
		for _, pod := range o.pods {
			if pod.Spec.NodeName == node.Name && o.selects(ls, pod) && isPublished(pod) {
				want[fmt.Sprint(hostname, pod.Status.PodIP, o.isReady(ls, pod))] = true
				answer[hostname] = answer[hostname] || o.isReady(ls, pod)
			}
		}
	}
	for _, slice := range o.slices {
		if slice.Namespace != ls.Namespace || slice.Labels[discoveryv1.LabelServiceName] != ls.Name ||
			metav1.GetControllerOfNoCopy(slice) == nil {
			continue // What nobody controls, somebody has made so.
		}
		for _, e := range slice.Endpoints {
			have[fmt.Sprint(valueOf(e.Hostname), e.Addresses[0], *e.Conditions.Ready)] = true
		}
	}
	if conflicts == 0 && len(o.names(ls)) > 0 && !maps.Equal(want, have) {
		o.fail("names that are not as the pods", "%s: %v instead of %v", ls.Name, have, want)
	}
	maps.DeleteFunc(answer, func(_ string, is bool) bool { return !is })
	if o.selectsNothing(ls) {
		return 0, 0
	}
	return len(all), len(answer)
}

func valueOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (o *oracle) checkStatus(ls *v1alpha1.LocalService, nodes, services, ready, conflicts int) {
	status := ls.Status
	if status.ObservedGeneration != ls.Generation {
		o.fail("a status of another generation", "%s: %d instead of %d", ls.Name, status.ObservedGeneration,
			ls.Generation)
		return
	}
	text := fmt.Sprintf("%d/%d", ready, nodes)
	isHostnames := ls.Spec.Mode == v1alpha1.ModeHostnames
	if int(status.Nodes) != nodes || int(status.Services) != services ||
		!(isHostnames && conflicts > 0) && status.Ready != text {
		o.fail("a status with other numbers", "%s: %d nodes, %d Services, ready %s, instead of %d, %d, %s", ls.Name,
			status.Nodes, status.Services, status.Ready, nodes, services, text)
	}
	for kind, is := range map[string]bool{v1alpha1.ConditionReady: conflicts == 0 && nodes > 0,
		v1alpha1.ConditionConflicted: conflicts > 0, v1alpha1.ConditionContested: false,
		v1alpha1.ConditionStalled: conflicts > 0, v1alpha1.ConditionProgressing: false} {
		isRetiring := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionRetiring) != nil
		if (conflicts > 0 || isRetiring) && kind == v1alpha1.ConditionProgressing {
			continue // The Services of another mode may still be there.
		}
		if meta.IsStatusConditionTrue(status.Conditions, kind) != is {
			var all []string
			for _, c := range status.Conditions {
				all = append(all, fmt.Sprintf("%s=%s (%s: %s)", c.Type, c.Status, c.Reason, c.Message))
			}
			o.fail("a condition that is not true", "%s: %s should be %t: %s", ls.Name, kind, is, strings.Join(all,
				"; "))
		}
	}
}

// checkPod checks that a pod has its node label if a LocalService needs that.
func (o *oracle) checkPod(pod *corev1.Pod) {
	isNeeded := slices.ContainsFunc(o.locals, func(ls *v1alpha1.LocalService) bool {
		return ls.DeletionTimestamp == nil && ls.Spec.Mode != v1alpha1.ModeHostnames && o.selects(ls, pod)
	})
	if isNeeded && isPublished(pod) && pod.Labels[rack] != naming.NodeLabelValue(pod.Spec.NodeName) {
		o.fail("a pod without its node label", "%s: %v on %s", pod.Name, pod.Labels, pod.Spec.NodeName)
	}
}
