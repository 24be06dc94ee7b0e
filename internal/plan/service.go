package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// ownNode stands for the node in the node label and the selector of a Content. No label can have this value.
const ownNode = "\x00"

// Service provides what a plan reads of an existing Service.
type Service interface {
	GetNamespace() string
	GetName() string
	GetUID() types.UID
	GetResourceVersion() string
	Created() time.Time
	// Node returns the node that the Service's annotation names; "" if there is none.
	Node() string
	// Controller returns the object that controls the Service; the zero value if none does.
	Controller() Controller
	Terminating() bool
	// ClusterIPs returns the addresses that the API server has allocated, or None.
	ClusterIPs() []string
	// Content returns everything else. Services for different nodes may have the same.
	Content() SharedContent
}

// SharedContent provides a Content that many Services may share. Two that are == have equal Contents.
type SharedContent interface {
	Get() *Content
}

// Content holds what Services for different nodes can have in common: all of a Service except its identity, its
// addresses, and its node, which ownNode stands for. A decision about a Content applies to all Services that share
// it.
type Content struct {
	Labels          map[string]string
	Annotations     map[string]string // without those of the node and of kubectl apply
	OwnerReferences []metav1.OwnerReference
	Spec            corev1.ServiceSpec // ClusterIP is None or empty, ClusterIPs are empty
}

// ContentOf returns the Content of a Service. It does not change the Service.
func ContentOf(service *corev1.Service, nodeLabelKey string) *Content {
	value := naming.NodeLabelValue(service.Annotations[v1alpha1.NodeAnnotationKey])
	c := &Content{
		Labels:          replaceValue(service.Labels, nodeLabelKey, value, ownNode),
		Annotations:     maps.Clone(service.Annotations),
		OwnerReferences: service.OwnerReferences,
		Spec:            service.Spec,
	}
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
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Labels:          replaceValue(c.Labels, nodeLabelKey, ownNode, value),
			Annotations:     maps.Clone(c.Annotations),
			OwnerReferences: slices.Clone(c.OwnerReferences),
		},
		Spec: c.Spec,
	}
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
func Whole(s Service, nodeLabelKey string) *corev1.Service {
	return s.Content().Get().whole(s, s.Node(), nodeLabelKey)
}

// whole returns an existing Service if it had this Content and node.
func (c *Content) whole(s Service, node, nodeLabelKey string) *corev1.Service {
	whole := c.service(node, nodeLabelKey)
	whole.Namespace, whole.Name = s.GetNamespace(), s.GetName()
	whole.UID, whole.ResourceVersion = s.GetUID(), s.GetResourceVersion()
	if ips := s.ClusterIPs(); len(ips) > 0 {
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
func (c *Controller) IsLocalService() bool {
	return c.Kind == v1alpha1.Kind && c.APIVersion == v1alpha1.SchemeGroupVersion.String()
}

// apiService wraps a Service that the API server returned.
type apiService struct {
	*corev1.Service
	content *Content
}

// FromAPI wraps a Service that the API server returned. The caller must not change it afterwards.
func FromAPI(service *corev1.Service, nodeLabelKey string) Service {
	return apiService{service, ContentOf(service, nodeLabelKey)}
}

func (s apiService) Created() time.Time     { return s.CreationTimestamp.Time }
func (s apiService) Node() string           { return s.Annotations[v1alpha1.NodeAnnotationKey] }
func (s apiService) Controller() Controller { return ControllerOf(s.Service) }
func (s apiService) Terminating() bool      { return s.DeletionTimestamp != nil }
func (s apiService) Content() SharedContent { return s.content }
func (s apiService) ClusterIPs() []string   { return s.Spec.ClusterIPs }

// Get returns the Content itself, so that a Content is a SharedContent that is not shared.
func (c *Content) Get() *Content { return c }

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
func HolderOf(ls *v1alpha1.LocalService, purpose Purpose, node, nodeLabelKey string, service Service) Holder {
	if service == nil {
		return Nobody
	}
	controller := service.Controller()
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
	content := service.Content().Get()
	has, wants := content.Labels[v1alpha1.HostnamesLabelKey], string(purpose)
	if purpose == ForNode {
		has, wants = content.Spec.Selector[nodeLabelKey], naming.NodeLabelValue(node)
		if has == ownNode {
			has = naming.NodeLabelValue(service.Node())
		}
	}
	if content.Labels[v1alpha1.OwnerLabelKey] == ls.Name && has == wants {
		return Orphan
	}
	return Foreign
}

// Description names the controller for people: "LocalService a", "Deployment b (apps/v1)". It escapes the text,
// because anybody can write anything into an owner reference.
func (c *Controller) Description() string {
	if c.IsLocalService() {
		return words.Printable(v1alpha1.Kind + " " + c.Name)
	}
	return words.Printable(cmp.Or(c.Kind, "object") + " " + c.Name + " (" + c.APIVersion + ")")
}
