package simulation

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	slice.GenerateName = service.Name + "-" + meshName + "-"
	return slice
}

// publishMesh maintains an EndpointSlice of each Service in the mesh. s.mesh says whether its endpoint is ready.
func (s *APIServer) publishMesh() {
	have := map[types.NamespacedName]*discoveryv1.EndpointSlice{}
	t := s.tables["endpointslices"]
	for _, slice := range list[*discoveryv1.EndpointSlice](s) {
		service := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		_, isMesh := s.mesh[service]
		switch {
		case !isForeign(slice) || hasTakenName(slice):
		case isMesh && have[service] == nil:
			have[service] = slice
		default:
			_ = s.delete(meshName, t, keyOf(slice), &metav1.DeleteOptions{})
		}
	}
	for key, ready := range s.mesh {
		stored := s.tables["services"].objects[key]
		if stored == nil || stored.object.GetDeletionTimestamp() != nil {
			continue
		}
		want, current := foreignSlice(stored.object.(*corev1.Service), ready), have[key]
		switch {
		case current == nil:
			_, _ = s.create(meshName, t, want, false) // A namespace may be terminating.
		case !apiequality.Semantic.DeepEqual(current.Endpoints, want.Endpoints) ||
			!maps.Equal(current.Labels, want.Labels) || !apiequality.Semantic.DeepEqual(current.Ports, want.Ports) ||
			!apiequality.Semantic.DeepEqual(current.OwnerReferences, want.OwnerReferences):
			_, _ = s.update(update{table: t, by: meshName, key: keyOf(current)}, func(old Object) (Object, error) {
				slice := old.DeepCopyObject().(*discoveryv1.EndpointSlice)
				slice.Endpoints, slice.Ports = want.Endpoints, want.Ports
				slice.Labels, slice.OwnerReferences = want.Labels, want.OwnerReferences
				return slice, nil
			})
		}
	}
}

// setMesh makes a Service part of the mesh: How is ready, or something else. Without How, it no longer is.
func setMesh(w *world, s Step) error {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	meta := metaOf(s.On)
	if key := keyOf(&meta); s.How == "" {
		delete(w.server.mesh, key)
	} else {
		w.server.mesh[key] = s.How == "ready"
	}
	w.server.wakeManager()
	return nil
}

// copySuffix ends the names of copies.
const copySuffix = "-named"

// hasTakenName reports whether an EndpointSlice has the name of a copy.
func hasTakenName(slice *discoveryv1.EndpointSlice) bool {
	return isForeign(slice) && strings.HasSuffix(slice.Name, copySuffix)
}

// takeName gives the name of a copy to an EndpointSlice of the mesh; or without How, gives it back.
func takeName(w *world, s Step) error {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	meta, t := metaOf(s.On), w.server.tables["endpointslices"]
	published := w.server.tables["services"].objects[keyOf(&meta)]
	for _, slice := range list[*discoveryv1.EndpointSlice](w.server) {
		if slice.Namespace != meta.Namespace || !strings.HasPrefix(slice.Name, sourceName(meta.Name)+"-") ||
			!strings.HasSuffix(slice.Name, copySuffix) {
			continue
		}
		if isForeign(slice) {
			return w.server.delete(meshName, t, keyOf(slice), &metav1.DeleteOptions{})
		}
		if s.How == "" || published == nil {
			continue
		}
		if err := w.server.delete(meshName, t, keyOf(slice), &metav1.DeleteOptions{}); err != nil {
			return err
		}
		foreign := foreignSlice(published.object.(*corev1.Service), true)
		if foreign.Name = slice.Name; s.How == "alien" {
			foreign.OwnerReferences = nil
			delete(foreign.Labels, v1alpha1.HostnamesLabelKey)
		}
		_, err := w.server.create(meshName, t, foreign, false)
		return err
	}
	return nil
}

// isReadyByMesh reports whether a Service has a ready endpoint of the mesh, in an EndpointSlice with the labels of the
// Service.
func (s *snapshot) isReadyByMesh(service *corev1.Service) bool {
	for _, slice := range s.slices {
		if isForeign(slice) && slice.Namespace == service.Namespace &&
			slice.Labels[discoveryv1.LabelServiceName] == service.Name &&
			slice.Labels[v1alpha1.OwnerLabelKey] != "" && slice.Labels[rack] != "" &&
			*slice.Endpoints[0].Conditions.Ready {
			return true
		}
	}
	return false
}
