package simulation

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// specs are the changes that a step can make to the spec of a LocalService, by name.
var specs = map[string]func(*v1alpha1.LocalServiceSpec){
	"headless":  func(s *v1alpha1.LocalServiceSpec) { s.Type, s.ClusterIP = "", corev1.ClusterIPNone },
	"addresses": func(s *v1alpha1.LocalServiceSpec) { s.Type, s.ClusterIP = "", "" },
	"node-port": func(s *v1alpha1.LocalServiceSpec) { s.Type, s.ClusterIP = corev1.ServiceTypeNodePort, "" },
	"port-80":   func(s *v1alpha1.LocalServiceSpec) { s.Ports = []v1alpha1.ServicePort{{Port: 80}} },
	"port-81":   func(s *v1alpha1.LocalServiceSpec) { s.Ports = []v1alpha1.ServicePort{{Port: 81}} },
	"two-ports": func(s *v1alpha1.LocalServiceSpec) {
		s.Ports = []v1alpha1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("web")},
			{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}}
	},
	"affinity":    func(s *v1alpha1.LocalServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP },
	"no-affinity": func(s *v1alpha1.LocalServiceSpec) { s.SessionAffinity = "" },
	"metadata": func(s *v1alpha1.LocalServiceSpec) {
		s.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: map[string]string{"team": "a"},
			Annotations: map[string]string{"example.com/note": "a", publishKey: "a.example.com"}}
	},
	"variables": func(s *v1alpha1.LocalServiceSpec) {
		s.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: map[string]string{"team": "of-$(NODE_DNS_LABEL)"},
			Annotations: map[string]string{"example.com/note": "$(NODE_NAME) is not $$(NODE_NAME)"}}
	},
	"node-labels": func(s *v1alpha1.LocalServiceSpec) {
		s.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: map[string]string{"team": "in-$(NODE_LABEL['zone'])"},
			Annotations: map[string]string{"example.com/note": "$(NODE_NAME): $(NODE_LABEL['disk']), " +
				"$$(NODE_LABEL['zone'])"}}
	},
	"no-metadata": func(s *v1alpha1.LocalServiceSpec) { s.ServiceMetadata = nil },
	"not-ready":   func(s *v1alpha1.LocalServiceSpec) { s.PublishNotReadyAddresses = true },
	"only-ready":  func(s *v1alpha1.LocalServiceSpec) { s.PublishNotReadyAddresses = false },
	"ssd":         func(s *v1alpha1.LocalServiceSpec) { s.NodeSelector = map[string]string{"disk": "ssd"} },
	"hdd":         func(s *v1alpha1.LocalServiceSpec) { s.NodeSelector = map[string]string{"disk": "hdd"} },
	"all-nodes":   func(s *v1alpha1.LocalServiceSpec) { s.NodeSelector, s.NodeSelectorTerms = nil, nil },
	"not-east": func(s *v1alpha1.LocalServiceSpec) {
		s.NodeSelectorTerms = []v1alpha1.NodeSelectorTerm{{MatchExpressions: []v1alpha1.NodeLabelRequirement{
			{Key: "zone", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"east"}},
			{Key: "disk", Operator: corev1.NodeSelectorOpExists}}}}
	},
	"n0-or-no-disk": func(s *v1alpha1.LocalServiceSpec) {
		s.NodeSelectorTerms = []v1alpha1.NodeSelectorTerm{{MatchFields: []v1alpha1.NodeFieldRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n0"}}}},
			{MatchExpressions: []v1alpha1.NodeLabelRequirement{{Key: "disk",
				Operator: corev1.NodeSelectorOpDoesNotExist}}}}
	},
	"app-demo":  func(s *v1alpha1.LocalServiceSpec) { s.Selector = map[string]string{"app": "demo"} },
	"app-other": func(s *v1alpha1.LocalServiceSpec) { s.Selector = map[string]string{"app": "other"} },
	"ipv6": func(s *v1alpha1.LocalServiceSpec) {
		s.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} // The cluster has no IPv6: every creation is refused.
	},
	"ipv4": func(s *v1alpha1.LocalServiceSpec) { s.IPFamilies = nil },
	"hostnames": func(s *v1alpha1.LocalServiceSpec) {
		s.Mode, s.GroupBy, s.Type, s.SessionAffinity = v1alpha1.ModeHostnames, "", "", ""
	},
	"zones": func(s *v1alpha1.LocalServiceSpec) {
		s.Mode, s.GroupBy, s.Type, s.SessionAffinity = v1alpha1.ModeHostnames, "zone", "", ""
	},
	"services": func(s *v1alpha1.LocalServiceSpec) { s.Mode, s.GroupBy = v1alpha1.ModeServices, "" },
}

// publishKey is the key of an annotation that asks external-dns to publish a Service.
const publishKey = "external-dns.alpha.kubernetes.io/hostname"

// invalidSpecs are changes that only an older CustomResourceDefinition accepted, by name.
var invalidSpecs = map[string]func(*v1alpha1.LocalServiceSpec){
	"no-selector": func(s *v1alpha1.LocalServiceSpec) { s.Selector = nil },
	"own-label":   func(s *v1alpha1.LocalServiceSpec) { s.Selector = map[string]string{"app": "demo", rack: "n0"} },
	"owner-label": func(s *v1alpha1.LocalServiceSpec) {
		s.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: map[string]string{v1alpha1.OwnerLabelKey: "x"}}
	},
	"other-mode": func(s *v1alpha1.LocalServiceSpec) { // It stays valid if there is no Service yet.
		if s.GroupBy = ""; s.Mode == v1alpha1.ModeHostnames {
			s.Mode = v1alpha1.ModeServices
			return
		}
		s.Mode, s.Type, s.SessionAffinity, s.ServiceMetadata = v1alpha1.ModeHostnames, "", "", nil
	},
}

// isInvalid reports whether a LocalService has one of those, or Services of the mode that it does not have.
func (s *snapshot) isInvalid(ls *v1alpha1.LocalService) bool {
	_, hasOwnLabel := ls.Spec.Selector[rack]
	m := ls.Spec.ServiceMetadata
	hasOwner := m != nil && m.Labels[v1alpha1.OwnerLabelKey] != ""
	if len(ls.Spec.Selector) == 0 || hasOwnLabel || hasOwner {
		return true
	}
	for _, service := range s.services {
		if s.owner(service) == ls && isOfOtherMode(ls, service) {
			return true
		}
	}
	return false
}
