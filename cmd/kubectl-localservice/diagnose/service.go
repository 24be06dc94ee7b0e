package diagnose

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// service holds the facts about a Service that a name needs.
type service struct {
	name       string
	purpose    plan.Purpose
	problem    serviceProblem
	controller plan.Controller // of a Service that is somebody else's
	// field is the one that differs from what the LocalService says.
	field, have, want string
}

// serviceProblem says what is wrong with a Service, "" if nothing is.
type serviceProblem string

const (
	missing     serviceProblem = "missing"
	taken       serviceProblem = "taken"
	earlier     serviceProblem = "earlier" // It is one of an earlier LocalService of that name.
	terminating serviceProblem = "terminating"
	differs     serviceProblem = "differs"
)

// addServices adds to a name the Service that it needs, or in mode Hostnames the first of both that has a problem.
func addServices(n *name) {
	if n.serviceName == "" {
		return
	}
	n.service = serviceOf(n.facts, n.purpose, n.node)
	n.hasService = n.service.problem != missing && n.service.problem != taken
	if n.hostnames != nil && n.service.problem == "" {
		n.service = serviceOf(n.facts, plan.Source, "")
	}
}

// serviceOf compares a Service with what the LocalService says. The node counts only if the purpose is plan.ForNode.
func serviceOf(f *facts, purpose plan.Purpose, node string) service {
	ls := f.LocalService
	s := service{name: plan.ServiceName(ls.Name, purpose, node), purpose: purpose}
	object := f.services[s.name]
	if object == nil {
		s.problem = missing
		return s
	}
	var selector labels.Set
	switch purpose {
	case plan.ForNode:
		selector = labels.Merge(ls.Spec.Selector, labels.Set{f.nodeLabelKey: naming.NodeLabelValue(node)})
	case plan.Source:
		selector = ls.Spec.Selector
	}
	groupBy := object.Annotations[v1alpha1.GroupByAnnotationKey]
	switch holder := plan.HolderOf(ls, purpose, node, f.nodeLabelKey, plan.FromAPI(object, f.nodeLabelKey)); {
	case holder == plan.Predecessor:
		s.problem = earlier
	case holder == plan.Foreign:
		s.problem, s.controller = taken, plan.ControllerOf(object)
	case object.DeletionTimestamp != nil:
		s.problem = terminating
	case holder == plan.Orphan:
		s.problem, s.field, s.want = differs, "owner", v1alpha1.Kind+" "+ls.Name
	case object.Labels[v1alpha1.OwnerLabelKey] != ls.Name:
		s.problem, s.field = differs, "label "+v1alpha1.OwnerLabelKey
		s.have, s.want = object.Labels[v1alpha1.OwnerLabelKey], ls.Name
	case !labels.Equals(object.Spec.Selector, selector):
		s.problem, s.field = differs, "selector"
		s.have, s.want = labels.FormatLabels(object.Spec.Selector), labels.FormatLabels(selector)
	case purpose == plan.Published && groupBy != ls.Spec.GroupBy:
		s.problem, s.field, s.have, s.want = differs, "groupBy", groupBy, ls.Spec.GroupBy
	}
	return s
}

// nodeLabelKey returns the key of the node label that the controller uses, from the selector of a Service of the
// LocalService; the default if there is none.
func nodeLabelKey(ls *v1alpha1.LocalService, services []*corev1.Service) string {
	for _, service := range services {
		node := service.Annotations[v1alpha1.NodeAnnotationKey]
		if node == "" || !metav1.IsControlledBy(service, ls) {
			continue
		}
		for key, value := range service.Spec.Selector {
			if _, own := ls.Spec.Selector[key]; !own && value == naming.NodeLabelValue(node) {
				return key
			}
		}
	}
	return v1alpha1.DefaultNodeLabelKey
}

// selectsOthers reports whether a Service selects other pods than the LocalService: nothing is known about those.
func selectsOthers(f *facts, service *corev1.Service) bool {
	if service == nil {
		return true
	}
	selector, own := maps.Clone(service.Spec.Selector), maps.Clone(f.LocalService.Spec.Selector)
	delete(selector, f.nodeLabelKey)
	delete(own, f.nodeLabelKey)
	return !maps.Equal(selector, own)
}

// addReach adds to a node how its name is reached, according to its Service. Addresses must be known already.
func addReach(n *Node, service *corev1.Service) {
	n.DNSAddresses = append(n.DNSAddresses, service.Spec.ClusterIPs...)
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		n.DNSAddresses = slices.Clone(n.Addresses)
	}
	for i := range service.Spec.Ports {
		port := &service.Spec.Ports[i]
		n.Ports = append(n.Ports, Port{Name: port.Name, Protocol: cmp.Or(port.Protocol, corev1.ProtocolTCP),
			Port: port.Port, NodePort: port.NodePort})
	}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		n.LoadBalancer = append(n.LoadBalancer, cmp.Or(ingress.IP, ingress.Hostname))
	}
}
