package plan

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// KubernetesSliceManager manages the EndpointSlices in which Kubernetes publishes the pods of a Service.
const KubernetesSliceManager = "endpointslice-controller.k8s.io"

// ManagerOf returns who manages an EndpointSlice, from its label.
func ManagerOf(slice *discoveryv1.EndpointSlice) string {
	return slice.Labels[discoveryv1.LabelManagedBy]
}

// LocalServiceOf returns the key of the LocalService that an EndpointSlice claims to belong to. The Published Service
// has the name of its LocalService, so that a copy belongs to it even if labels are lost.
func LocalServiceOf(slice *discoveryv1.EndpointSlice) types.NamespacedName {
	key := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[v1alpha1.OwnerLabelKey]}
	if controller := ControllerOf(slice); controller.Name != "" && ManagerOf(slice) != KubernetesSliceManager {
		key.Name = controller.Name
	}
	return key
}

// encode returns what an EndpointSlice publishes, with other endpoints. It is the same if and only if that is.
func encode(slice *discoveryv1.EndpointSlice, endpoints []discoveryv1.Endpoint) []byte {
	content := discoveryv1.EndpointSlice{AddressType: slice.AddressType, Endpoints: endpoints, Ports: slice.Ports}
	encoded, err := content.Marshal()
	if err != nil {
		panic(err) // It has been decoded.
	}
	return encoded
}

// IsReady reports whether an endpoint is ready: clients are led to it. The API treats unknown as ready.
func IsReady(endpoint *discoveryv1.Endpoint) bool { return ptr.Deref(endpoint.Conditions.Ready, true) }

// Answers reports whether an endpoint is ready because its pod is. With publishNotReadyAddresses, all endpoints are.
func Answers(endpoint *discoveryv1.Endpoint) bool {
	return IsReady(endpoint) && ptr.Deref(endpoint.Conditions.Serving, true)
}
