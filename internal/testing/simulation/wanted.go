package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

const rack = v1alpha1.DefaultNodeLabelKey

// snapshot holds what is stored at one moment, and which Services LocalServices want at that moment: what
// docs/reference/behaviour.md promises, from LocalServices, nodes and pods alone.
type snapshot struct {
	locals   []*v1alpha1.LocalService // without those that are being deleted
	nodes    []*corev1.Node
	pods     []*corev1.Pod
	services map[types.NamespacedName]*corev1.Service
	slices   []*discoveryv1.EndpointSlice
	sets     []*appsv1.ReplicaSet
	wanted   map[types.NamespacedName][]want
}

// want is a Service that a LocalService wants: for a node or, in mode Hostnames, for none.
type want struct {
	ls   *v1alpha1.LocalService
	node string
}

// newSnapshot takes a snapshot. The lock of the API server must be held.
func newSnapshot(server *APIServer) *snapshot {
	s := &snapshot{locals: list[*v1alpha1.LocalService](server), nodes: list[*corev1.Node](server),
		pods: list[*corev1.Pod](server), slices: list[*discoveryv1.EndpointSlice](server),
		services: map[types.NamespacedName]*corev1.Service{}, wanted: map[types.NamespacedName][]want{},
		sets: list[*appsv1.ReplicaSet](server)}
	s.locals = slices.DeleteFunc(s.locals, func(ls *v1alpha1.LocalService) bool { return ls.DeletionTimestamp != nil })
	for _, service := range list[*corev1.Service](server) {
		s.services[keyOf(service)] = service
	}
	for _, ls := range s.locals {
		for name, node := range s.names(ls) {
			key := types.NamespacedName{Namespace: ls.Namespace, Name: name}
			s.wanted[key] = append(s.wanted[key], want{ls, node})
		}
	}
	return s
}

// owner returns the LocalService that controls an object, nil for none.
func (s *snapshot) owner(object Object) *v1alpha1.LocalService {
	i := slices.IndexFunc(s.locals, func(ls *v1alpha1.LocalService) bool {
		return ls.Namespace == object.GetNamespace() && metav1.IsControlledBy(object, ls)
	})
	if i < 0 {
		return nil
	}
	return s.locals[i]
}

// isSelected reports whether a node has a name in a LocalService: whether the scheduler would place a pod there whose
// nodeSelector and required node affinity are the same.
func isSelected(ls *v1alpha1.LocalService, node *corev1.Node) bool {
	isSelected, err := objects.IsScheduled(ls, node)
	utilruntime.Must(err)
	return isSelected
}

// names returns the names of the Services that a LocalService wants, with their nodes.
func (s *snapshot) names(ls *v1alpha1.LocalService) map[string]string {
	names := map[string]string{}
	if s.isInvalid(ls) {
		return names
	}
	if ls.Spec.Mode == v1alpha1.ModeHostnames {
		both := map[string]string{ls.Name: "", sourceName(ls.Name): ""}
		for name := range both {
			service := s.services[types.NamespacedName{Namespace: ls.Namespace, Name: name}]
			if !s.selectsNothing(ls) || service != nil && metav1.IsControlledBy(service, ls) {
				return both
			}
		}
		return names // They are created when a node is selected for the first time.
	}
	for _, node := range s.inOrder(ls) {
		name := naming.ServiceName(ls.Name, node.Name)
		if _, isTaken := names[name]; !isTaken && isSelected(ls, node) {
			names[name] = node.Name
		}
	}
	return names
}

var labelVariables = regexp.MustCompile(`\$\(NODE_LABEL\['([^']*)'\]\)`)

var dashes = strings.NewReplacer(".", "-", "_", "-")

// inOrder returns the nodes in the order in which they, or their groups, get a name that several want: first those that
// are that name.
func (s *snapshot) inOrder(ls *v1alpha1.LocalService) []*corev1.Node {
	isOther := func(value string) string { return fmt.Sprint(dashes.Replace(strings.ToLower(value)) != value) }
	return slices.SortedFunc(slices.Values(s.nodes), func(a, b *corev1.Node) int {
		one, two := valueOf(ls, a), valueOf(ls, b)
		return cmp.Or(cmp.Compare(isOther(one), isOther(two)), cmp.Compare(one, two))
	})
}

// valueOf returns what the name of a node is made of, "" for nothing.
func valueOf(ls *v1alpha1.LocalService, node *corev1.Node) string {
	if ls.Spec.GroupBy == "" {
		return node.Name
	}
	return node.Labels[ls.Spec.GroupBy]
}

// rivals returns how many selected nodes, or groups of them, do not have the name that they want, because another one
// has it.
func (s *snapshot) rivals(ls *v1alpha1.LocalService) int {
	values, names := map[string]bool{}, map[string]bool{}
	for _, node := range s.nodes {
		if value := valueOf(ls, node); value != "" && isSelected(ls, node) {
			values[value], names[dashes.Replace(strings.ToLower(value))] = true, true
		}
	}
	return len(values) - len(names)
}

// misfits returns the Services that cannot become what their LocalService wants, because Kubernetes does not let it
// change: they stay as they are until somebody deletes them.
func (s *snapshot) misfits() (out []*corev1.Service) {
	for key, wants := range s.wanted {
		for _, want := range wants {
			service := s.services[key]
			if service != nil && (metav1.IsControlledBy(service, want.ls) || isOrphan(want.ls, service, want.node)) &&
				isMisfit(want.ls, service) {
				out = append(out, service)
			}
		}
	}
	return out
}

// mayMisfit reports whether a Service cannot become what a LocalService of its namespace may want of it, while caches
// are late.
func (s *snapshot) mayMisfit(service *corev1.Service) bool {
	return slices.ContainsFunc(s.locals, func(ls *v1alpha1.LocalService) bool {
		return ls.Namespace == service.Namespace && strings.HasPrefix(service.Name, ls.Name) && isMisfit(ls, service)
	})
}

func isMisfit(ls *v1alpha1.LocalService, service *corev1.Service) bool {
	families := ls.Spec.IPFamilies
	isHeadless := ls.Spec.ClusterIP == corev1.ClusterIPNone || modeOf(ls) == v1alpha1.ModeHostnames
	return isHeadless != (service.Spec.ClusterIP == corev1.ClusterIPNone) ||
		!isHeadless && len(families) > 0 && families[0] != service.Spec.IPFamilies[0]
}

// sourceName returns the name of the Service that selects the pods in mode Hostnames. The other one has the name of its
// LocalService.
func sourceName(ls string) string { return naming.ServiceName(ls, "/hostnames") }

// serviceOf returns a Service that a LocalService wants.
func (s *snapshot) serviceOf(ls *v1alpha1.LocalService, name, node string) *corev1.Service {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.OwnerLabelKey: ls.Name},
		Annotations: map[string]string{}}}
	service.Spec = corev1.ServiceSpec{Type: ls.Spec.Type, ClusterIP: ls.Spec.ClusterIP, Selector: selectorOf(ls, node),
		SessionAffinity:          ls.Spec.SessionAffinity,
		PublishNotReadyAddresses: ls.Spec.PublishNotReadyAddresses}
	for _, p := range ls.Spec.Ports {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: p.Name, Port: p.Port,
			Protocol: p.Protocol, TargetPort: p.TargetPort})
	}
	if node != "" {
		service.Labels[rack], service.Annotations[v1alpha1.NodeAnnotationKey] = naming.NodeLabelValue(node), node
	} else {
		service.Spec.ClusterIP = corev1.ClusterIPNone
	}
	if name == ls.Name {
		service.Spec.Selector = nil
	}
	if m := ls.Spec.ServiceMetadata; m != nil {
		maps.Copy(service.Labels, s.expand(m.Labels, node))
		maps.Copy(service.Annotations, s.expand(m.Annotations, node))
	}
	if name == sourceName(ls.Name) {
		delete(service.Annotations, publishKey) // The other one has the names.
	}
	defaultService(service)
	return service
}

// expand replaces the variables in serviceMetadata with the name and the labels of a node. What has no value is left
// out.
func (s *snapshot) expand(metadata map[string]string, node string) map[string]string {
	labels := map[string]string{}
	for _, other := range s.nodes {
		if other.Name == node {
			labels = other.Labels
		}
	}
	out := map[string]string{}
	for key, value := range metadata {
		isMissing := func(variable []string) bool { _, exists := labels[variable[1]]; return !exists }
		unescaped := strings.ReplaceAll(value, "$$(", "")
		if slices.ContainsFunc(labelVariables.FindAllStringSubmatch(unescaped, -1), isMissing) {
			continue
		}
		parts := strings.Split(value, "$$(") // an escape, in which no variable begins
		for i, part := range parts {
			part = strings.ReplaceAll(part, "$(NODE_NAME)", node)
			part = strings.ReplaceAll(part, "$(NODE_DNS_LABEL)", naming.Hostname(node))
			parts[i] = labelVariables.ReplaceAllStringFunc(part, func(variable string) string {
				return labels[labelVariables.FindStringSubmatch(variable)[1]]
			})
		}
		out[key] = strings.Join(parts, "$(")
	}
	return out
}

// shared returns the pairs of all whose keys part has, too, even with another value.
func shared(all, part map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(key, _ string) bool { _, is := part[key]; return !is })
	return out
}

func selectorOf(ls *v1alpha1.LocalService, node string) map[string]string {
	out := maps.Clone(ls.Spec.Selector)
	if node != "" {
		out[rack] = naming.NodeLabelValue(node)
	}
	return out
}

func modeOf(ls *v1alpha1.LocalService) v1alpha1.Mode {
	return cmp.Or(ls.Spec.Mode, v1alpha1.ModeServices)
}

// isOfOtherMode reports whether a Service has the name and the mark of those of a LocalService in the other mode.
func isOfOtherMode(ls *v1alpha1.LocalService, service *corev1.Service) bool {
	mark := service.Labels[v1alpha1.HostnamesLabelKey]
	isPublished := service.Name == ls.Name && mark == v1alpha1.HostnamesPublished
	isSource := service.Name == sourceName(ls.Name) && mark == v1alpha1.HostnamesSource
	if modeOf(ls) == v1alpha1.ModeServices {
		return isPublished || isSource
	}
	return service.Name != ls.Name && service.Name != sourceName(ls.Name) &&
		service.Name == naming.ServiceName(ls.Name, service.Annotations[v1alpha1.NodeAnnotationKey])
}

// answering returns the pods to which the name of a node leads.
func (s *snapshot) answering(ls *v1alpha1.LocalService, node string) (out []*corev1.Pod) {
	for _, pod := range s.pods {
		if pod.Spec.NodeName == node && selects(ls, pod) && isEndpoint(ls, pod) {
			out = append(out, pod)
		}
	}
	return out
}

func selects(ls *v1alpha1.LocalService, pod *corev1.Pod) bool {
	return pod.Namespace == ls.Namespace && labels.SelectorFromSet(ls.Spec.Selector).Matches(labels.Set(pod.Labels))
}

// isEndpoint reports whether the name of its node leads to a pod that a LocalService selects.
func isEndpoint(ls *v1alpha1.LocalService, pod *corev1.Pod) bool {
	return isReady(pod) || ls.Spec.PublishNotReadyAddresses && isPublished(pod)
}

// endpoints returns what a LocalService publishes in mode Hostnames, and for each name whether a pod is ready.
func (s *snapshot) endpoints(ls *v1alpha1.LocalService) (published, answers map[string]bool) {
	published, answers = map[string]bool{}, map[string]bool{}
	names := s.hostnames(ls)
	for _, node := range s.nodes {
		name := names[node.Name]
		if name == "" {
			continue
		}
		answers[name] = answers[name] || slices.ContainsFunc(s.answering(ls, node.Name), isReady)
		for _, pod := range s.pods {
			if pod.Spec.NodeName == node.Name && selects(ls, pod) && isPublished(pod) {
				published[fmt.Sprint(name, pod.Status.PodIP, isEndpoint(ls, pod))] = true
			}
		}
	}
	return published, answers
}

// hostnames returns the hostnames that nodes have in a LocalService with mode Hostnames.
func (s *snapshot) hostnames(ls *v1alpha1.LocalService) map[string]string {
	keepsAll := s.selectsNothing(ls) && len(s.names(ls)) > 0
	names, holders := map[string]string{}, map[string]string{}
	for _, node := range s.inOrder(ls) {
		value := valueOf(ls, node)
		name := dashes.Replace(strings.ToLower(value))
		if value == "" || !isSelected(ls, node) && !keepsAll {
			continue
		}
		if holders[name] = cmp.Or(holders[name], value); holders[name] == value {
			names[node.Name] = name
		}
	}
	return names
}
