package simulation

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Admission is an admission plug-in: it may change an object that a replica creates or updates.
type Admission func(object Object)

// Oppose sets what changes the Services and EndpointSlices that replicas have written some time later, nil for nothing.
func (s *APIServer) Oppose(opponent Admission) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opponent = opponent
	close(s.changed)
	s.changed = make(chan struct{})
}

// Admit sets the admission plug-in that changes what replicas write, nil for none. It replaces the previous one.
func (s *APIServer) Admit(plugin Admission) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admission = plugin
}

// admit calls the plug-in for an object that is to be stored. The cluster's own controllers and users are exempt.
func (s *APIServer) admit(t *table, by string, object Object) {
	if s.admission != nil && isReplica(by) && t.name != "leases" && t.name != "events" {
		s.admission(object)
	}
}

// teamByPolicy is the value that a plug-in gives a label.
const teamByPolicy = "platform"

// rackByPolicy is the value that a plug-in gives the node label of pods.
const rackByPolicy = "by-policy"

// plugins are admission plug-ins that change what is written, by name.
var plugins = map[string]Admission{
	"sets-affinity": on(func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }),
	"sets-policy": on(func(s *corev1.Service) {
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	}),
	"sets-protocol": on(func(s *corev1.Service) { // It changes a part of a field.
		for i := range s.Spec.Ports {
			s.Spec.Ports[i].AppProtocol = new("example.com/theirs")
		}
	}),
	"sets-label": on(func(s *corev1.Service) {
		metav1.SetMetaDataLabel(&s.ObjectMeta, "team", teamByPolicy)
	}),
	"strips-owner": on(func(s *corev1.Service) { s.OwnerReferences = nil }),
	"strips-and-counts": on(func(s *corev1.Service) { // Each write has an effect.
		s.OwnerReferences = nil
		writes, _ := strconv.Atoi(s.Annotations["writes"])
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, "writes", strconv.Itoa(writes+1))
	}),
	"sets-rack":   on(func(p *corev1.Pod) { p.Labels[rack] = rackByPolicy }),
	"strips-rack": on(func(p *corev1.Pod) { delete(p.Labels, rack) }),
	"counts-racks": on(func(p *corev1.Pod) { // Each write has an effect.
		p.Labels[rack] = rackByPolicy
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, "writes", time.Now().String())
	}),
	"strips-node":     on(func(s *corev1.Service) { delete(s.Annotations, v1alpha1.NodeAnnotationKey) }),
	"strips-labels":   on(func(s *corev1.Service) { s.Labels = map[string]string{} }),
	"strips-hostname": on(func(s *discoveryv1.EndpointSlice) { delete(s.Labels, v1alpha1.HostnamesLabelKey) }),
	"sets-zone": on(func(s *discoveryv1.EndpointSlice) {
		for i := range s.Endpoints {
			s.Endpoints[i].Zone = new("zone-by-policy")
		}
	}),
}

// on returns the plug-in that changes the objects of one type. All pods here have labels.
func on[T Object](change func(T)) Admission {
	return func(object Object) {
		if object, is := object.(T); is {
			change(object)
		}
	}
}
