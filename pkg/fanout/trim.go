package fanout

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Trim returns what a cache needs to keep of a Service: all that plans read of those that LocalServices control or may
// adopt; of every other one only who it is, who controls it, to find conflicts, and whether it has an address, to count
// those. It may change its argument, and trimming twice is the same as once.
func Trim(service *corev1.Service) *corev1.Service {
	adoptable := metav1.GetControllerOfNoCopy(service) == nil && service.Labels[v1alpha1.OwnerLabelKey] != ""
	if OwnedBy(service) == nil && !adoptable {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Name:              service.Name,
			Namespace:         service.Namespace,
			UID:               service.UID,
			ResourceVersion:   service.ResourceVersion,
			DeletionTimestamp: service.DeletionTimestamp,
			OwnerReferences:   service.OwnerReferences,
		}, Spec: corev1.ServiceSpec{ClusterIP: service.Spec.ClusterIP, ClusterIPs: service.Spec.ClusterIPs}}
	}
	service.ManagedFields = nil
	delete(service.Annotations, corev1.LastAppliedConfigAnnotation)
	service.Status = corev1.ServiceStatus{}
	return service
}
