package cache

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
)

// trimService drops what nobody reads of a Service; of one of somebody else, all but its identity and its owners.
func trimService(s *corev1.Service) (*corev1.Service, error) {
	s.ManagedFields, s.Status = nil, corev1.ServiceStatus{}
	if !plan.MayBeOurs(s) {
		s.Labels, s.Annotations, s.Spec = nil, nil, corev1.ServiceSpec{}
	}
	return s, nil
}
