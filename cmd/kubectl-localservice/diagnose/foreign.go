package diagnose

import (
	"fmt"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// IsForeign reports whether an EndpointSlice is neither one that Kubernetes makes for a Service's pods nor one of the
// controller.
func IsForeign(slice *discoveryv1.EndpointSlice) bool {
	manager := slice.Labels[discoveryv1.LabelManagedBy]
	return manager != plan.KubernetesSliceManager && manager != v1alpha1.EndpointSliceManager
}

// foreignSlices says which objects of somebody else publish addresses under the names of a LocalService, and which to
// delete. Such an object is left over, for example, from a Service that had the name: Kubernetes mirrors its Endpoints.
func (v *view) foreignSlices() (messages []string) {
	toDelete := map[string][]string{} // addresses, by what to delete
	for _, slice := range v.EndpointSlices {
		service := v.services[slice.Labels[discoveryv1.LabelServiceName]]
		if service == nil || !metav1.IsControlledBy(service, v.LocalService) || !IsForeign(slice) {
			continue
		}
		object := "endpointslice " + slice.Name
		if owner := metav1.GetControllerOfNoCopy(slice); owner != nil && owner.Kind == "Endpoints" {
			object = "endpoints " + owner.Name
		}
		for _, e := range slice.Endpoints {
			toDelete[object] = append(toDelete[object], e.Addresses...)
		}
	}
	for object, addresses := range toDelete {
		slices.Sort(addresses)
		if len(addresses) > 0 {
			messages = append(messages, fmt.Sprintf("Something else publishes %s under this name, too. If nothing "+
				"needs it, delete it: kubectl delete %s -n %s", firstOf(slices.Compact(addresses)), object,
				v.LocalService.Namespace))
		}
	}
	slices.Sort(messages)
	return messages
}
