package fanout

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// field is one thing that a Template decides about a Service. Comparing and setting stand side by side so that they
// cannot disagree: a field that never matches would be written for ever.
type field struct {
	name    string
	matches func(t *Template, s *corev1.Service, node string) bool
	set     func(t *Template, s *corev1.Service, node string)
}

// fields are all that a Template decides. What is not here (addresses and ports that the API server allocates,
// labels and annotations of others, fields newer than this program) is never written.
var fields = []field{
	{
		name: "controller",
		matches: func(t *Template, s *corev1.Service, _ string) bool {
			return metav1.IsControlledBy(s, t.owner)
		},
		set: func(t *Template, s *corev1.Service, _ string) {
			others := slices.DeleteFunc(s.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == t.owner.UID })
			s.OwnerReferences = append(others, *metav1.NewControllerRef(t.owner, v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.Kind)))
		},
	},
	{name: "labels", matches: labelsMatch, set: setLabels},
	{name: "annotations", matches: annotationsMatch, set: setAnnotations},
	{
		name:    "type",
		matches: func(t *Template, s *corev1.Service, _ string) bool { return s.Spec.Type == t.spec.Type },
		set: func(t *Template, s *corev1.Service, _ string) {
			if s.Spec.Type == corev1.ServiceTypeExternalName {
				s.Spec.ExternalName, s.Spec.ClusterIP = "", t.spec.ClusterIP
			}
			s.Spec.Type = t.spec.Type
			if t.spec.Type == corev1.ServiceTypeClusterIP {
				s.Spec.ExternalTrafficPolicy = ""
				s.Spec.HealthCheckNodePort = 0
				for i := range s.Spec.Ports {
					s.Spec.Ports[i].NodePort = 0
				}
			}
		},
	},
	{
		name:    "ports",
		matches: func(t *Template, s *corev1.Service, _ string) bool { return samePorts(t.spec.Ports, s.Spec.Ports) },
		set: func(t *Template, s *corev1.Service, _ string) {
			ports := slices.Clone(t.spec.Ports)
			for i := range ports {
				if j := findPort(s.Spec.Ports, &ports[i]); j >= 0 {
					ports[i].NodePort = s.Spec.Ports[j].NodePort // Clients know it: keep what was allocated.
				}
			}
			s.Spec.Ports = ports
		},
	},
	{
		name: "selector",
		matches: func(t *Template, s *corev1.Service, node string) bool {
			return len(s.Spec.Selector) == len(t.spec.Selector)+1 &&
				s.Spec.Selector[t.nodeLabelKey] == naming.NodeLabelValue(node) && subset(t.spec.Selector, labels.Set(s.Spec.Selector))
		},
		set: func(t *Template, s *corev1.Service, node string) {
			s.Spec.Selector = maps.Clone(t.spec.Selector)
			s.Spec.Selector[t.nodeLabelKey] = naming.NodeLabelValue(node)
		},
	},
	{
		name: "sessionAffinity",
		matches: func(t *Template, s *corev1.Service, _ string) bool {
			return s.Spec.SessionAffinity == t.spec.SessionAffinity &&
				sameAffinityConfig(t.spec.SessionAffinityConfig, s.Spec.SessionAffinityConfig)
		},
		set: func(t *Template, s *corev1.Service, _ string) {
			s.Spec.SessionAffinity = t.spec.SessionAffinity
			s.Spec.SessionAffinityConfig = t.spec.SessionAffinityConfig.DeepCopy()
		},
	},
	{
		name: "publishNotReadyAddresses",
		matches: func(t *Template, s *corev1.Service, _ string) bool {
			return s.Spec.PublishNotReadyAddresses == t.spec.PublishNotReadyAddresses
		},
		set: func(t *Template, s *corev1.Service, _ string) {
			s.Spec.PublishNotReadyAddresses = t.spec.PublishNotReadyAddresses
		},
	},
	{
		name: "internalTrafficPolicy",
		matches: func(t *Template, s *corev1.Service, _ string) bool {
			return equalPtr(s.Spec.InternalTrafficPolicy, t.spec.InternalTrafficPolicy)
		},
		set: func(t *Template, s *corev1.Service, _ string) {
			s.Spec.InternalTrafficPolicy = clonePtr(t.spec.InternalTrafficPolicy)
		},
	},
	{
		// On a Service of type ClusterIP it belongs to others: the API server sets it there when somebody adds externalIPs.
		name: "externalTrafficPolicy",
		matches: func(t *Template, s *corev1.Service, _ string) bool {
			return t.spec.Type == corev1.ServiceTypeClusterIP || s.Spec.ExternalTrafficPolicy == t.spec.ExternalTrafficPolicy
		},
		set: func(t *Template, s *corev1.Service, _ string) {
			s.Spec.ExternalTrafficPolicy = t.spec.ExternalTrafficPolicy
		},
	},
	{
		// With no families chosen the API server's stay; a second one that it added for PreferDualStack stays, too.
		name: "ipFamilies",
		matches: func(t *Template, s *corev1.Service, _ string) bool {
			return len(t.spec.IPFamilies) <= len(s.Spec.IPFamilies) &&
				slices.Equal(t.spec.IPFamilies, s.Spec.IPFamilies[:len(t.spec.IPFamilies)])
		},
		set: func(t *Template, s *corev1.Service, _ string) { s.Spec.IPFamilies = slices.Clone(t.spec.IPFamilies) },
	},
	{
		name: "ipFamilyPolicy",
		matches: func(t *Template, s *corev1.Service, _ string) bool {
			return equalPtr(s.Spec.IPFamilyPolicy, t.spec.IPFamilyPolicy)
		},
		set: func(t *Template, s *corev1.Service, _ string) {
			s.Spec.IPFamilyPolicy = clonePtr(t.spec.IPFamilyPolicy)
			if *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack {
				s.Spec.IPFamilies = firstOnly(s.Spec.IPFamilies)
				s.Spec.ClusterIPs = firstOnly(s.Spec.ClusterIPs)
			}
		},
	},
	{
		name: "trafficDistribution",
		matches: func(t *Template, s *corev1.Service, _ string) bool {
			return equalPtr(s.Spec.TrafficDistribution, t.spec.TrafficDistribution)
		},
		set: func(t *Template, s *corev1.Service, _ string) {
			s.Spec.TrafficDistribution = clonePtr(t.spec.TrafficDistribution)
		},
	},
	{
		name: "loadBalancerClass",
		matches: func(t *Template, s *corev1.Service, _ string) bool {
			return equalPtr(s.Spec.LoadBalancerClass, t.spec.LoadBalancerClass)
		},
		set: func(t *Template, s *corev1.Service, _ string) {
			s.Spec.LoadBalancerClass = clonePtr(t.spec.LoadBalancerClass)
		},
	},
	{
		name: "loadBalancerSourceRanges",
		matches: func(t *Template, s *corev1.Service, _ string) bool {
			return slices.Equal(s.Spec.LoadBalancerSourceRanges, t.spec.LoadBalancerSourceRanges)
		},
		set: func(t *Template, s *corev1.Service, _ string) {
			s.Spec.LoadBalancerSourceRanges = slices.Clone(t.spec.LoadBalancerSourceRanges)
		},
	},
	{
		name: "allocateLoadBalancerNodePorts",
		matches: func(t *Template, s *corev1.Service, _ string) bool {
			return equalPtr(s.Spec.AllocateLoadBalancerNodePorts, t.spec.AllocateLoadBalancerNodePorts)
		},
		set: func(t *Template, s *corev1.Service, _ string) {
			s.Spec.AllocateLoadBalancerNodePorts = clonePtr(t.spec.AllocateLoadBalancerNodePorts)
		},
	},
}

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

func firstOnly[T any](s []T) []T {
	return s[:min(len(s), 1)]
}

func labelsMatch(t *Template, s *corev1.Service, node string) bool {
	return s.Labels[t.nodeLabelKey] == naming.NodeLabelValue(node) && subset(t.labels, labels.Set(s.Labels))
}

// setLabels goes with setAnnotations, which drops the record of the labels to remove.
func setLabels(t *Template, s *corev1.Service, node string) {
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	maps.Copy(s.Labels, t.labels)
	s.Labels[t.nodeLabelKey] = naming.NodeLabelValue(node)
}

func annotationsMatch(t *Template, s *corev1.Service, node string) bool {
	return s.Annotations[v1alpha1.NodeAnnotationKey] == node &&
		s.Annotations[v1alpha1.AppliedMetadataAnnotationKey] == t.applied && subset(t.annotations, labels.Set(s.Annotations))
}

// setAnnotations also removes the labels and annotations that an earlier spec.serviceMetadata has put there and this
// one has not.
func setAnnotations(t *Template, s *corev1.Service, node string) {
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	var before appliedMetadata
	// A record that somebody has broken is as good as none: nothing is removed, and it is written anew.
	_ = json.Unmarshal([]byte(s.Annotations[v1alpha1.AppliedMetadataAnnotationKey]), &before)
	for _, key := range before.Labels {
		if _, keep := t.labels[key]; !keep && key != t.nodeLabelKey {
			delete(s.Labels, key)
		}
	}
	for _, key := range before.Annotations {
		delete(s.Annotations, key)
	}
	maps.Copy(s.Annotations, t.annotations)
	s.Annotations[v1alpha1.NodeAnnotationKey] = node
	if t.applied == "" {
		delete(s.Annotations, v1alpha1.AppliedMetadataAnnotationKey)
	} else {
		s.Annotations[v1alpha1.AppliedMetadataAnnotationKey] = t.applied
	}
}
