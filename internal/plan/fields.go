package plan

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// field describes one field of a Service that a LocalService decides. The functions that compute, compare and set it
// stand side by side so that they cannot disagree: a field that never matches would be written forever.
type field struct {
	// name identifies the field in the spec of a Service.
	name string
	// fill sets the field in the spec of a Service to the value that a LocalService asks for, or to the API server's
	// default.
	fill    func(in *v1alpha1.LocalServiceSpec, out *corev1.ServiceSpec)
	matches func(want, have *corev1.Service) bool
	set     func(want, have *corev1.Service)
}

// plain returns a field that is copied from the LocalService. To add such a field, add a line to fields. equal compares
// two values: it runs for each node in each sync, where reflection would take most of the time.
func plain[T any](name string, equal func(a, b T) bool, from func(*v1alpha1.LocalServiceSpec) T,
	at func(*corev1.ServiceSpec) *T) field {
	return field{
		name:    name,
		fill:    func(in *v1alpha1.LocalServiceSpec, out *corev1.ServiceSpec) { *at(out) = from(in) },
		matches: func(want, have *corev1.Service) bool { return equal(*at(&want.Spec), *at(&have.Spec)) },
		set:     func(want, have *corev1.Service) { *at(&have.Spec) = *at(&want.Spec) },
	}
}

func same[T comparable](a, b T) bool { return a == b }

// fields lists all that a LocalService decides about the spec of a Service. Other fields are never written: addresses
// and ports that the API server allocates, and fields newer than this program.
var fields = []field{
	typeField,
	clusterIPField,
	portsField,
	plain("selector", maps.Equal, func(in *v1alpha1.LocalServiceSpec) map[string]string { return in.Selector },
		func(s *corev1.ServiceSpec) *map[string]string { return &s.Selector }),
	plain("sessionAffinity", same, func(in *v1alpha1.LocalServiceSpec) corev1.ServiceAffinity {
		return cmp.Or(in.SessionAffinity, corev1.ServiceAffinityNone)
	}, func(s *corev1.ServiceSpec) *corev1.ServiceAffinity { return &s.SessionAffinity }),
	plain("sessionAffinityConfig", func(a, b *corev1.SessionAffinityConfig) bool {
		return a == b || apiequality.Semantic.DeepEqual(a, b)
	}, sessionAffinityConfig, func(s *corev1.ServiceSpec) **corev1.SessionAffinityConfig {
		return &s.SessionAffinityConfig
	}),
	plain("publishNotReadyAddresses", same,
		func(in *v1alpha1.LocalServiceSpec) bool { return in.PublishNotReadyAddresses },
		func(s *corev1.ServiceSpec) *bool { return &s.PublishNotReadyAddresses }),
	plain("internalTrafficPolicy", ptr.Equal, func(in *v1alpha1.LocalServiceSpec) *corev1.ServiceInternalTrafficPolicy {
		return cmp.Or(in.InternalTrafficPolicy, new(corev1.ServiceInternalTrafficPolicyCluster))
	}, func(s *corev1.ServiceSpec) **corev1.ServiceInternalTrafficPolicy { return &s.InternalTrafficPolicy }),
	externalTrafficPolicyField,
	ipFamiliesField,
	ipFamilyPolicyField,
	plain("trafficDistribution", ptr.Equal, func(in *v1alpha1.LocalServiceSpec) *string { return in.TrafficDistribution },
		func(s *corev1.ServiceSpec) **string { return &s.TrafficDistribution }),
	loadBalancerClassField,
	plain("loadBalancerSourceRanges", slices.Equal, func(in *v1alpha1.LocalServiceSpec) []string {
		return ifLoadBalancer(in, in.LoadBalancerSourceRanges)
	}, func(s *corev1.ServiceSpec) *[]string { return &s.LoadBalancerSourceRanges }),
	plain("allocateLoadBalancerNodePorts", ptr.Equal, func(in *v1alpha1.LocalServiceSpec) *bool {
		return ifLoadBalancer(in, cmp.Or(in.AllocateLoadBalancerNodePorts, new(true)))
	}, func(s *corev1.ServiceSpec) **bool { return &s.AllocateLoadBalancerNodePorts }),
}

const controllerField, labelsField, annotationsField = "ownerReferences", "labels", "annotations"

// allFields lists all that a LocalService decides about a Service. Labels come before annotations, because setting the
// annotations drops the record of the labels to remove.
var allFields = append([]field{
	{name: controllerField, matches: controllerMatches, set: setController},
	{name: labelsField, matches: labelsMatch, set: setLabels},
	{name: annotationsField, matches: annotationsMatch, set: setAnnotations},
}, fields...)

// PathOf returns the path of a field in a Service.
func PathOf(field string) []string {
	switch field {
	case controllerField, labelsField, annotationsField:
		return []string{"metadata", field}
	}
	return []string{"spec", field}
}

func ifLoadBalancer[T any](in *v1alpha1.LocalServiceSpec, value T) T {
	if in.Type == corev1.ServiceTypeLoadBalancer {
		return value
	}
	var none T
	return none
}

var typeField = field{
	name: "type",
	fill: func(in *v1alpha1.LocalServiceSpec, out *corev1.ServiceSpec) {
		out.Type = cmp.Or(in.Type, corev1.ServiceTypeClusterIP)
	},
	matches: func(want, have *corev1.Service) bool { return want.Spec.Type == have.Spec.Type },
	set: func(want, have *corev1.Service) {
		have.Spec.Type, have.Spec.ExternalName = want.Spec.Type, ""
		if want.Spec.Type == corev1.ServiceTypeClusterIP {
			have.Spec.ExternalTrafficPolicy = ""
			have.Spec.HealthCheckNodePort = 0
			have.Spec.Ports = slices.Clone(have.Spec.Ports)
			for i := range have.Spec.Ports {
				have.Spec.Ports[i].NodePort = 0
			}
		}
	},
}

// clusterIPField ignores which address the API server allocated.
var clusterIPField = field{
	name:    "clusterIP",
	fill:    func(in *v1alpha1.LocalServiceSpec, out *corev1.ServiceSpec) { out.ClusterIP = in.ClusterIP },
	matches: func(want, have *corev1.Service) bool { return isHeadless(want) == isHeadless(have) },
	set:     func(want, have *corev1.Service) { have.Spec.ClusterIP = want.Spec.ClusterIP },
}

func isHeadless(service *corev1.Service) bool { return service.Spec.ClusterIP == corev1.ClusterIPNone }

// loadBalancerClassField does not change the class of a Service if the LocalService chooses none: in many clusters,
// admission sets one on every new Service.
var loadBalancerClassField = field{
	name: "loadBalancerClass",
	fill: func(in *v1alpha1.LocalServiceSpec, out *corev1.ServiceSpec) {
		out.LoadBalancerClass = ifLoadBalancer(in, in.LoadBalancerClass)
	},
	matches: func(want, have *corev1.Service) bool {
		asItIs := want.Spec.LoadBalancerClass == nil && want.Spec.Type == corev1.ServiceTypeLoadBalancer
		return asItIs || ptr.Equal(want.Spec.LoadBalancerClass, have.Spec.LoadBalancerClass)
	},
	set: func(want, have *corev1.Service) { have.Spec.LoadBalancerClass = want.Spec.LoadBalancerClass },
}

var portsField = field{
	name: "ports",
	fill: func(in *v1alpha1.LocalServiceSpec, out *corev1.ServiceSpec) {
		for i := range in.Ports {
			out.Ports = append(out.Ports, servicePort(&in.Ports[i]))
		}
	},
	matches: func(want, have *corev1.Service) bool {
		if slices.EqualFunc(want.Spec.Ports, have.Spec.Ports, equalPorts) {
			return true // Most have no node ports.
		}
		ports := withNodePorts(want, have)
		return slices.EqualFunc(ports, have.Spec.Ports, equalPorts) ||
			slices.EqualFunc(inOrder(ports), inOrder(have.Spec.Ports), equalPorts)
	},
	set: func(want, have *corev1.Service) { have.Spec.Ports = withNodePorts(want, have) },
}

func servicePort(in *v1alpha1.ServicePort) corev1.ServicePort {
	out := corev1.ServicePort{
		Name:        in.Name,
		Protocol:    cmp.Or(in.Protocol, corev1.ProtocolTCP),
		AppProtocol: in.AppProtocol,
		Port:        in.Port,
		TargetPort:  in.TargetPort,
	}
	if out.TargetPort == intstr.FromInt32(0) || out.TargetPort == intstr.FromString("") {
		out.TargetPort = intstr.FromInt32(in.Port)
	}
	return out
}

// withNodePorts returns the wanted ports with the node ports that the Service already has for them, because clients
// know those. Node ports that are no longer to be allocated are released, which the API server does not do by itself.
// Node ports that somebody sets later stay.
func withNodePorts(want, have *corev1.Service) []corev1.ServicePort {
	out := slices.Clone(want.Spec.Ports)
	if !ptr.Deref(want.Spec.AllocateLoadBalancerNodePorts, true) &&
		ptr.Deref(have.Spec.AllocateLoadBalancerNodePorts, true) {
		return out
	}
	for i := range out {
		for _, port := range have.Spec.Ports {
			if comparePorts(port, out[i]) == 0 {
				out[i].NodePort = port.NodePort
			}
		}
	}
	return out
}

func equalPorts(a, b corev1.ServicePort) bool {
	isSame := ptr.Equal(a.AppProtocol, b.AppProtocol)
	a.AppProtocol = b.AppProtocol
	return isSame && a == b
}

// inOrder sorts ports by what identifies a port in a Service.
func inOrder(ports []corev1.ServicePort) []corev1.ServicePort {
	return slices.SortedFunc(slices.Values(ports), comparePorts)
}

func comparePorts(a, b corev1.ServicePort) int {
	return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
}

func sessionAffinityConfig(in *v1alpha1.LocalServiceSpec) *corev1.SessionAffinityConfig {
	if in.SessionAffinity != corev1.ServiceAffinityClientIP {
		return nil
	}
	timeout := corev1.DefaultClientIPServiceAffinitySeconds
	if c := in.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		timeout = *c.ClientIP.TimeoutSeconds
	}
	return &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}}
}

// externalTrafficPolicyField ignores Services of type ClusterIP: the API server sets the policy when somebody adds
// externalIPs.
var externalTrafficPolicyField = field{
	name: "externalTrafficPolicy",
	fill: func(in *v1alpha1.LocalServiceSpec, out *corev1.ServiceSpec) {
		if in.Type == corev1.ServiceTypeNodePort || in.Type == corev1.ServiceTypeLoadBalancer {
			out.ExternalTrafficPolicy = cmp.Or(in.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
		}
	},
	matches: func(want, have *corev1.Service) bool {
		return want.Spec.Type == corev1.ServiceTypeClusterIP ||
			want.Spec.ExternalTrafficPolicy == have.Spec.ExternalTrafficPolicy
	},
	set: func(want, have *corev1.Service) { have.Spec.ExternalTrafficPolicy = want.Spec.ExternalTrafficPolicy },
}

// ipFamiliesField does not change the families that the API server chose if the LocalService chooses none, nor a
// second family that the API server added for PreferDualStack.
var ipFamiliesField = field{
	name: "ipFamilies",
	fill: func(in *v1alpha1.LocalServiceSpec, out *corev1.ServiceSpec) { out.IPFamilies = in.IPFamilies },
	matches: func(want, have *corev1.Service) bool {
		n := len(want.Spec.IPFamilies)
		return n <= len(have.Spec.IPFamilies) && slices.Equal(want.Spec.IPFamilies, have.Spec.IPFamilies[:n])
	},
	set: func(want, have *corev1.Service) { have.Spec.IPFamilies = want.Spec.IPFamilies },
}

var ipFamilyPolicyField = field{
	name: "ipFamilyPolicy",
	fill: func(in *v1alpha1.LocalServiceSpec, out *corev1.ServiceSpec) {
		out.IPFamilyPolicy = in.IPFamilyPolicy
		if out.IPFamilyPolicy == nil {
			out.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
			if len(in.IPFamilies) > 1 {
				out.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
			}
		}
	},
	matches: func(want, have *corev1.Service) bool {
		return ptr.Equal(want.Spec.IPFamilyPolicy, have.Spec.IPFamilyPolicy)
	},
	set: func(want, have *corev1.Service) {
		have.Spec.IPFamilyPolicy = want.Spec.IPFamilyPolicy
		if *have.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack {
			have.Spec.IPFamilies = have.Spec.IPFamilies[:min(len(have.Spec.IPFamilies), 1)]
			have.Spec.ClusterIPs = have.Spec.ClusterIPs[:min(len(have.Spec.ClusterIPs), 1)]
		}
	},
}

// immutable returns the field that keeps a Service from being updated to what is wanted, because Kubernetes does not let
// it change; "" if there is none. The CustomResourceDefinition refuses the same changes of a LocalService.
func immutable(want, have *corev1.Service) string {
	isBalanced := want.Spec.Type == corev1.ServiceTypeLoadBalancer && have.Spec.Type == corev1.ServiceTypeLoadBalancer
	switch families := want.Spec.IPFamilies; {
	case have.Spec.Type == corev1.ServiceTypeExternalName: // It has neither addresses nor families.
	case !clusterIPField.matches(want, have):
		return clusterIPField.name
	case isHeadless(have): // It has no address to allocate.
	case len(families) > 0 && len(have.Spec.IPFamilies) > 0 && families[0] != have.Spec.IPFamilies[0]:
		return ipFamiliesField.name
	case isBalanced && !loadBalancerClassField.matches(want, have):
		return loadBalancerClassField.name
	}
	return ""
}

func controllerMatches(want, have *corev1.Service) bool {
	ours := want.OwnerReferences[0]
	return slices.ContainsFunc(have.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.UID == ours.UID && ref.Controller != nil && *ref.Controller
	})
}

func setController(want, have *corev1.Service) {
	ours := want.OwnerReferences[0]
	others := slices.DeleteFunc(slices.Clone(have.OwnerReferences),
		func(ref metav1.OwnerReference) bool { return ref.UID == ours.UID })
	have.OwnerReferences = append(others, ours)
}

func labelsMatch(want, have *corev1.Service) bool {
	return subset(want.Labels, labels.Set(have.Labels))
}

func setLabels(want, have *corev1.Service) {
	if have.Labels == nil {
		have.Labels = map[string]string{}
	}
	maps.Copy(have.Labels, want.Labels)
}

// ownAnnotations are removed from a Service that should not have them.
var ownAnnotations = []string{v1alpha1.AppliedMetadataAnnotationKey, v1alpha1.NodeAnnotationKey}

func annotationsMatch(want, have *corev1.Service) bool {
	for _, key := range ownAnnotations {
		if have.Annotations[key] != want.Annotations[key] {
			return false
		}
	}
	return subset(want.Annotations, labels.Set(have.Annotations))
}

// setAnnotations sets the annotations. It also removes the labels and annotations that an earlier
// spec.serviceMetadata added and the current one lacks.
func setAnnotations(want, have *corev1.Service) {
	if have.Annotations == nil {
		have.Annotations = map[string]string{}
	}
	var before appliedMetadata
	// A record that cannot be decoded counts as empty: nothing is removed, and the record is rewritten.
	_ = json.Unmarshal([]byte(have.Annotations[v1alpha1.AppliedMetadataAnnotationKey]), &before)
	for _, key := range before.Labels {
		if _, keep := want.Labels[key]; !keep {
			delete(have.Labels, key)
		}
	}
	for _, key := range slices.Concat(before.Annotations, ownAnnotations) {
		delete(have.Annotations, key)
	}
	maps.Copy(have.Annotations, want.Annotations)
}

// difference is what an update has to change.
type difference struct {
	fields    []string
	immutable string // the one of them that Kubernetes does not let change
}

// compare returns how a Service differs from the desired one.
func compare(want, have *corev1.Service) (found difference) {
	for _, f := range allFields {
		if !f.matches(want, have) {
			found.fields = append(found.fields, f.name)
		}
	}
	found.immutable = immutable(want, have)
	return found
}

// recordOf returns the value of AppliedMetadataAnnotationKey for labels and annotations.
func recordOf(m *v1alpha1.ServiceMetadata) string {
	record, _ := json.Marshal(appliedMetadata{ // Strings always have a JSON form.
		Labels:      slices.Sorted(maps.Keys(m.Labels)),
		Annotations: slices.Sorted(maps.Keys(m.Annotations)),
	})
	return string(record)
}

// appliedMetadata is encoded in the value of AppliedMetadataAnnotationKey.
type appliedMetadata struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}
