package cache

import (
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// trimEndpointSlice keeps what is read of the EndpointSlice of a generated Service: its Service, its LocalService, its
// ports, and whether its endpoints answer.
func trimEndpointSlice(s *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	s.ObjectMeta = metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, ResourceVersion: s.ResourceVersion,
		Labels: map[string]string{discoveryv1.LabelServiceName: s.Labels[discoveryv1.LabelServiceName],
			v1alpha1.OwnerLabelKey: s.Labels[v1alpha1.OwnerLabelKey]}}
	for i := range s.Endpoints {
		s.Endpoints[i] = discoveryv1.Endpoint{Conditions: s.Endpoints[i].Conditions}
	}
	return s, nil
}

// IsReady reports whether at least one endpoint of an EndpointSlice is ready, as its pod is.
func IsReady(slice *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return plan.Answers(&e) })
}

// trimHostnameSlice drops what is not read of an EndpointSlice of mode Hostnames. Kubernetes changes an annotation with
// every change of a pod.
func trimHostnameSlice(s *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	s.ManagedFields = nil
	maps.DeleteFunc(s.Annotations, func(key, _ string) bool { return key != v1alpha1.AppliedMetadataAnnotationKey })
	return s, nil
}
