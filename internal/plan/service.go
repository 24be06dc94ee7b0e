package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// ownNode stands for the node in the node label and the selector of a Content. No label can have this value.
const ownNode = "\x00"

// Service keeps the fields of an existing Service that plans and counts read, in a tenth of the memory.
type Service struct {
	Identity

	UID        types.UID
	Node       unique.Handle[string] // from the annotation; "" if there is none
	Controller unique.Handle[Controller]

	clusterIPs  unique.Handle[string] // separated by commas; "None" or "" for none
	created     int64                 // in seconds since 1970
	terminating bool
	content     unique.Handle[string] // a Content as protobuf, stored once for all Services that have it
}

// FromAPI keeps only the fields of a Service that are read. Of one that a LocalService neither controls nor may adopt,
// these are its identity and its controller, to find conflicts.
func FromAPI(full *corev1.Service, nodeLabelKey string) *Service {
	controller := ControllerOf(full)
	s := &Service{
		Identity:    IdentityOf(full),
		UID:         full.UID,
		Node:        unique.Make(""),
		Controller:  unique.Make(controller),
		clusterIPs:  unique.Make(""),
		created:     full.CreationTimestamp.Unix(),
		terminating: full.DeletionTimestamp != nil,
		content:     unique.Make(""),
	}
	ofOthers := controller != Controller{} && !controller.IsLocalService()
	if ofOthers || controller == (Controller{}) && full.Labels[v1alpha1.OwnerLabelKey] == "" {
		return s
	}
	s.Node = unique.Make(full.Annotations[v1alpha1.NodeAnnotationKey])
	s.clusterIPs = unique.Make(cmp.Or(strings.Join(full.Spec.ClusterIPs, ","), full.Spec.ClusterIP))
	encoded, err := (*corev1.Service)(ContentOf(full, nodeLabelKey)).Marshal()
	if err != nil {
		panic(err) // It has been decoded.
	}
	s.content = unique.Make(string(encoded))
	return s
}

// Content decodes what Services for different nodes can have in common. It is empty for Services of others.
func (s *Service) Content() *Content {
	content := &Content{}
	if err := (*corev1.Service)(content).Unmarshal([]byte(s.content.Value())); err != nil {
		panic(err) // It was encoded by FromAPI.
	}
	return content
}

// Same reports whether two states of a Service differ only in the resource version.
func (s *Service) Same(other *Service) bool {
	a := *s
	a.Identity = other.Identity
	return a == *other
}

// Content is what Services for different nodes can have in common: the spec, labels, annotations and owners of a
// Service, without its addresses (ClusterIP is None or empty), what kubectl apply has recorded, and its node, which
// ownNode stands for. A decision about a Content applies to all Services that share it.
type Content corev1.Service

// ContentOf returns the Content of a Service. It does not change the Service.
func ContentOf(service *corev1.Service, nodeLabelKey string) *Content {
	value := naming.NodeLabelValue(service.Annotations[v1alpha1.NodeAnnotationKey])
	c := &Content{Spec: service.Spec}
	c.Labels = replaceValue(service.Labels, nodeLabelKey, value, ownNode)
	c.Annotations, c.OwnerReferences = maps.Clone(service.Annotations), service.OwnerReferences
	delete(c.Annotations, v1alpha1.NodeAnnotationKey)
	delete(c.Annotations, corev1.LastAppliedConfigAnnotation)
	c.Spec.Selector = replaceValue(c.Spec.Selector, nodeLabelKey, value, ownNode)
	if c.Spec.ClusterIP != corev1.ClusterIPNone {
		c.Spec.ClusterIP = ""
	}
	c.Spec.ClusterIPs = nil
	return c
}

// service returns a node's Service with this Content. The caller adds its identity and addresses.
func (c *Content) service(node, nodeLabelKey string) *corev1.Service {
	value := naming.NodeLabelValue(node)
	s := new(corev1.Service(*c))
	s.Labels = replaceValue(c.Labels, nodeLabelKey, ownNode, value)
	s.Annotations, s.OwnerReferences = maps.Clone(c.Annotations), slices.Clone(c.OwnerReferences)
	s.Spec.Selector = replaceValue(c.Spec.Selector, nodeLabelKey, ownNode, value)
	if node != "" {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, v1alpha1.NodeAnnotationKey, node)
	}
	return s
}

// replaceValue returns a copy of m in which the value of key is to, if it was from.
func replaceValue(m map[string]string, key, from, to string) map[string]string {
	out := maps.Clone(m)
	if value, found := m[key]; found && value == from {
		out[key] = to
	}
	return out
}

// Whole returns a Service as the API server has it, without what no plan reads: times, managed fields and status.
func Whole(s *Service, nodeLabelKey string) *corev1.Service {
	return s.Content().whole(s, s.Node.Value(), nodeLabelKey)
}

// whole returns an existing Service if it had this Content and node.
func (c *Content) whole(s *Service, node, nodeLabelKey string) *corev1.Service {
	whole := c.service(node, nodeLabelKey)
	whole.Namespace, whole.Name = s.GetNamespace(), s.GetName()
	whole.UID, whole.ResourceVersion = s.UID, s.GetResourceVersion()
	if s.clusterIPs.Value() != "" {
		ips := strings.Split(s.clusterIPs.Value(), ",")
		if ptr.Deref(c.Spec.IPFamilyPolicy, "") == corev1.IPFamilyPolicySingleStack {
			ips = ips[:1]
		}
		whole.Spec.ClusterIPs, whole.Spec.ClusterIP = ips, ips[0]
	}
	return whole
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
func HolderOf(ls *v1alpha1.LocalService, purpose Purpose, node, nodeLabelKey string, service *Service) Holder {
	if service == nil {
		return Nobody
	}
	controller := service.Controller.Value()
	switch {
	case service.GetNamespace() != ls.Namespace:
		return Foreign
	case controller.UID != "" && controller.UID == ls.UID:
		return Ours
	case controller.IsLocalService() && controller.Name == ls.Name:
		return Predecessor
	case controller != Controller{}:
		return Foreign
	}
	content := service.Content()
	has, wants := content.Labels[v1alpha1.HostnamesLabelKey], string(purpose)
	if purpose == ForNode {
		has, wants = content.Spec.Selector[nodeLabelKey], naming.NodeLabelValue(node)
		if has == ownNode {
			has = naming.NodeLabelValue(service.Node.Value())
		}
	}
	if content.Labels[v1alpha1.OwnerLabelKey] == ls.Name && has == wants {
		return Orphan
	}
	return Foreign
}
