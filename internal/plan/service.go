package plan

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// NodeOf returns the node of a Service, from its annotation; "" if there is none.
func NodeOf(service *corev1.Service) string { return service.Annotations[v1alpha1.NodeAnnotationKey] }

// MayBeOurs reports whether a LocalService controls a Service, or may adopt it. Plans read only the identity and the
// controller of the others, to find conflicts.
func MayBeOurs(service *corev1.Service) bool {
	controller := ControllerOf(service)
	return controller.IsLocalService() || controller == Controller{} && service.Labels[v1alpha1.OwnerLabelKey] != ""
}

// Purpose tells apart the Services of a LocalService.
type Purpose string

const (
	// ForNode marks a Service that selects the pods of one node: mode Services.
	ForNode Purpose = ""
	// Source marks the Service that selects the pods of all nodes, so that Kubernetes publishes them: mode Hostnames.
	Source Purpose = v1alpha1.HostnamesSource
	// Published marks the Service that has the names of the nodes: mode Hostnames. It selects nothing, because
	// Kubernetes would otherwise publish the pods there again, without the names.
	Published Purpose = v1alpha1.HostnamesPublished
)

// ServiceName returns the name of the Service that a LocalService has for a purpose. node is "" unless the purpose is
// ForNode.
func ServiceName(localService string, purpose Purpose, node string) string {
	switch purpose {
	case Source:
		return naming.ServiceName(localService, "/hostnames") // No node has a name with a '/'.
	case Published:
		return localService
	}
	return naming.ServiceName(localService, node)
}

// Controller identifies the object that controls another object, by its controller reference.
type Controller struct {
	APIVersion, Kind, Name string
	UID                    types.UID
}

// ControllerOf returns the controller of an object; the zero value if it has none.
func ControllerOf(object metav1.Object) Controller {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil {
		return Controller{}
	}
	return Controller{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: ref.UID}
}

// IsLocalService reports whether the controller is a LocalService.
func (c Controller) IsLocalService() bool {
	return c.Kind == v1alpha1.Kind && c.APIVersion == v1alpha1.SchemeGroupVersion.String()
}

// Holder describes who holds the Service name that a node of a LocalService needs.
type Holder string

const (
	// Nobody means that the name is free.
	Nobody Holder = "Nobody"
	// Ours means that the LocalService controls the Service.
	Ours Holder = "Ours"
	// Orphan means that the Service was generated for the LocalService and the node, but nothing controls it any
	// more, as after `kubectl delete localservice --cascade=orphan`. It is adopted.
	Orphan Holder = "Orphan"
	// Predecessor means that an earlier LocalService of the same name controls the Service. That was deleted, so the
	// garbage collector will delete the Service, or has orphaned it, which the cache has not observed yet.
	Predecessor Holder = "Predecessor"
	// Foreign means that the Service belongs to somebody else.
	Foreign Holder = "Foreign"
)

// HolderOf reports who holds the name of a LocalService's Service for a purpose. node is "" unless the purpose is
// ForNode, and service is nil if the name is free. HolderOf relies on the UID in the controller reference, never on a
// name or label alone, which anybody can write.
func HolderOf(ls *v1alpha1.LocalService, purpose Purpose, node, nodeLabelKey string, service *corev1.Service) Holder {
	if service == nil {
		return Nobody
	}
	controller := ControllerOf(service)
	switch {
	case service.Namespace != ls.Namespace:
		return Foreign
	case controller.IsLocalService() && controller.UID != "" && controller.UID == ls.UID:
		return Ours
	case controller.IsLocalService() && controller.Name == ls.Name:
		return Predecessor
	case controller != Controller{}:
		return Foreign // Also if it says that the LocalService is of another version.
	}
	has, wants := service.Labels[v1alpha1.HostnamesLabelKey], string(purpose)
	if purpose == ForNode {
		has, wants = service.Spec.Selector[nodeLabelKey], naming.NodeLabelValue(node)
	}
	if service.Labels[v1alpha1.OwnerLabelKey] == ls.Name && has == wants {
		return Orphan
	}
	return Foreign
}

// Action names what a plan does about one Service.
type Action string

const (
	// Create creates a missing Service.
	Create Action = "Create"
	// Update changes a Service in place.
	Update Action = "Update"
	// Adopt makes the LocalService the controller of a Service that was generated for it and that nothing controls
	// any more, and updates the Service.
	Adopt Action = "Adopt"
	// Delete deletes a Service that no selected node wants.
	Delete Action = "Delete"
	// Wait leaves a Service unchanged that is being deleted, or soon will be. Its name is free afterwards.
	Wait Action = "Wait"
	// Blocked leaves a Service unchanged that differs in a field which Kubernetes does not let change.
	Blocked Action = "Blocked"
	// Conflict leaves a Service unchanged whose name a node wants, but which belongs to somebody else or to another
	// node that wants the same name.
	Conflict Action = "Conflict"
)
