package simulation

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// meshName is the name of a controller that publishes endpoints of another cluster in EndpointSlices of its own, as
	// Cilium ClusterMesh does, and meshManager is how it marks them.
	meshName    = "mesh"
	meshManager = "endpointslice-mesh-controller.example.com"
)

// isForeign reports whether an EndpointSlice is managed neither by the controllers nor by Kubernetes.
func isForeign(slice *discoveryv1.EndpointSlice) bool {
	return slice.Labels[discoveryv1.LabelManagedBy] == meshManager
}

// foreignSlice returns an EndpointSlice of a Service with the endpoints of another cluster. It has the labels of the
// Service, which controls it.
func foreignSlice(service *corev1.Service, ready bool) *discoveryv1.EndpointSlice {
	slice := sliceOf(service, []discoveryv1.Endpoint{{
		Addresses:  []string{fmt.Sprintf("10.245.0.%d", 1+hash(service.Name)%250)},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready}}})
	slice.Labels[discoveryv1.LabelManagedBy] = meshManager
	slice.GenerateName, slice.Name = "", service.Name+"-"+meshName
	return slice
}

// followPorts gives the EndpointSlice of the mesh the ports of its Service.
func (s *APIServer) followPorts(service *corev1.Service) {
	t, want := s.tables["endpointslices"], foreignSlice(service, true)
	if e := t.objects[keyOf(want)]; e != nil {
		s.edit(t, e.object, func(o Object) { o.(*discoveryv1.EndpointSlice).Ports = want.Ports })
	}
}

// setMesh makes the mesh publish an endpoint of a Service: How is ready, or something else. Without How, it no longer
// does.
func setMesh(w *world, s Step) error {
	key := some[*corev1.Service](w, s.On)
	service := Get[*corev1.Service](w.server, key.Namespace, key.Name)
	if service == nil {
		return fmt.Errorf("no Service %s", s.On)
	}
	slice := foreignSlice(service, s.How == "ready")
	_ = w.server.Delete(meshName, slice, metav1.DeleteOptions{}) // There may be none.
	if s.How == "" {
		return nil
	}
	return w.server.Create(meshName, slice)
}

// copySuffix ends the names of copies.
const copySuffix = "-named"

// hasTakenName reports whether an EndpointSlice has the name of a copy.
func hasTakenName(slice *discoveryv1.EndpointSlice) bool {
	return isForeign(slice) && strings.HasSuffix(slice.Name, copySuffix)
}

// takeName gives the name of a copy to an EndpointSlice of the mesh; or without How, gives it back.
func takeName(w *world, s Step) error {
	key := metaOf(s.On)
	published := Get[*corev1.Service](w.server, key.Namespace, key.Name)
	for _, slice := range List[*discoveryv1.EndpointSlice](w.server) {
		isTaken := isForeign(slice)
		if slice.Namespace != key.Namespace || !strings.HasPrefix(slice.Name, sourceName(key.Name)+"-") ||
			!strings.HasSuffix(slice.Name, copySuffix) || !isTaken && (s.How == "" || published == nil) {
			continue
		}
		if err := w.server.Delete(meshName, slice, metav1.DeleteOptions{}); err != nil || isTaken {
			return err
		}
		foreign := foreignSlice(published, true)
		if foreign.Name = slice.Name; s.How == "alien" {
			foreign.OwnerReferences = nil
			delete(foreign.Labels, v1alpha1.HostnamesLabelKey)
		}
		return w.server.Create(meshName, foreign)
	}
	return nil
}

// isReadyByMesh reports whether a Service has a ready endpoint of the mesh, in an EndpointSlice with the labels of the
// Service.
func (s *snapshot) isReadyByMesh(service *corev1.Service) bool {
	return slices.ContainsFunc(s.slices, func(slice *discoveryv1.EndpointSlice) bool {
		return isForeign(slice) && slice.Namespace == service.Namespace &&
			slice.Labels[discoveryv1.LabelServiceName] == service.Name &&
			slice.Labels[v1alpha1.OwnerLabelKey] != "" && slice.Labels[rack] != "" &&
			*slice.Endpoints[0].Conditions.Ready
	})
}
