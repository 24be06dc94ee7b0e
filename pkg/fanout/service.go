package fanout

import (
	"cmp"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/pkg/slim"
)

// nodeValue stands for the node label's value of a Service's own node, where a shape has it. No label can have this value.
const nodeValue = "\x00"

// Service is what a cache keeps of a Service: all that plans and counts read, in a tenth of the memory. It never changes.
type Service struct {
	slim.Identity

	uid         types.UID
	node        string // from the annotation; "" if there is none
	controller  unique.Handle[controller]
	clusterIPs  unique.Handle[string] // separated by commas; "None" or "" for none
	terminating bool
	shape       shape
}

// shape is what the Services of a LocalService usually have in common, as protobuf: the whole object but for who it is,
// its node and its addresses. It is empty for the Services of others.
type shape = unique.Handle[string]

// controller is the controller of a Service, if it has one.
type controller struct {
	exists         bool
	isLocalService bool
	name           string
	uid            types.UID
}

// NewService returns what a cache keeps of a Service. Of one that a LocalService neither controls nor may adopt that is
// who it is, who controls it, to find conflicts, and its addresses, to count them. It may change its argument.
func NewService(full *corev1.Service, nodeLabelKey string) (*Service, error) {
	s := &Service{
		Identity:    slim.IdentityOf(full),
		uid:         full.UID,
		controller:  unique.Make(controllerOf(full)),
		clusterIPs:  unique.Make(cmp.Or(strings.Join(full.Spec.ClusterIPs, ","), full.Spec.ClusterIP)),
		terminating: full.DeletionTimestamp != nil,
	}
	if s.controller.Value().exists && !s.controller.Value().isLocalService ||
		!s.controller.Value().exists && full.Labels[v1alpha1.OwnerLabelKey] == "" {
		s.shape = unique.Make("")
		return s, nil
	}
	s.node = full.Annotations[v1alpha1.NodeAnnotationKey]
	full.ObjectMeta = metav1.ObjectMeta{Labels: full.Labels, Annotations: full.Annotations, OwnerReferences: full.OwnerReferences}
	delete(full.Annotations, v1alpha1.NodeAnnotationKey)
	delete(full.Annotations, corev1.LastAppliedConfigAnnotation)
	exchange(full, nodeLabelKey, naming.NodeLabelValue(s.node), nodeValue)
	if full.Spec.ClusterIP != corev1.ClusterIPNone {
		full.Spec.ClusterIP = ""
	}
	full.Spec.ClusterIPs = nil
	full.Status = corev1.ServiceStatus{}
	encoded, err := full.Marshal()
	if err != nil {
		return nil, err
	}
	s.shape = unique.Make(string(encoded))
	return s, nil
}

// exchange gives another value to the node label and the node's place in the selector, where they have the value from.
func exchange(s *corev1.Service, nodeLabelKey, from, to string) {
	for _, m := range []map[string]string{s.Labels, s.Spec.Selector} {
		if m[nodeLabelKey] == from {
			m[nodeLabelKey] = to
		}
	}
}

// Full is the Service as the API server has it, but for what no plan reads: its times, its managed fields, its status.
func (s *Service) Full(nodeLabelKey string) *corev1.Service {
	full := &corev1.Service{}
	if err := full.Unmarshal([]byte(s.shape.Value())); err != nil {
		panic(err) // It was encoded by NewService.
	}
	full.Namespace, full.Name, full.UID, full.ResourceVersion = s.GetNamespace(), s.GetName(), s.uid, s.GetResourceVersion()
	if s.node != "" {
		metav1.SetMetaDataAnnotation(&full.ObjectMeta, v1alpha1.NodeAnnotationKey, s.node)
	}
	exchange(full, nodeLabelKey, nodeValue, naming.NodeLabelValue(s.node))
	if ips := s.clusterIPs.Value(); ips != "" {
		full.Spec.ClusterIPs = strings.Split(ips, ",")
		full.Spec.ClusterIP = full.Spec.ClusterIPs[0]
	}
	return full
}

// UID of the Service.
func (s *Service) UID() types.UID { return s.uid }

// Node is the name of the node that the Service says it is for, "" if it does not.
func (s *Service) Node() string { return s.node }

// LocalService is the name and UID of the LocalService that controls the Service. They are empty if none does.
func (s *Service) LocalService() (name string, uid types.UID) {
	if c := s.controller.Value(); c.isLocalService {
		return c.name, c.uid
	}
	return "", ""
}

// ControlledBy says whether a LocalService controls the Service: by the UID in its controller reference, never by a name
// or label, which anybody may write.
func (s *Service) ControlledBy(ls *v1alpha1.LocalService) bool {
	c := s.controller.Value()
	return c.exists && c.uid == ls.UID
}

// hasClusterIP says whether the Service has an address of its own.
func (s *Service) hasClusterIP() bool {
	return s.clusterIPs.Value() != "" && s.clusterIPs.Value() != corev1.ClusterIPNone
}

// DeepCopyObject makes it a runtime.Object, so that the cache mutation detector watches over it.
func (s *Service) DeepCopyObject() runtime.Object { return new(*s) }

// OwnedBy returns the LocalService that controls an object, or nil.
func OwnedBy(object metav1.Object) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || ref.Kind != v1alpha1.Kind || ref.APIVersion != v1alpha1.SchemeGroupVersion.String() {
		return nil
	}
	return ref
}

// IsPredecessors says whether an object is controlled by an earlier LocalService of the same name. That is gone, so the
// garbage collector deletes the object, or has left it without an owner, of which the cache has not heard yet.
func IsPredecessors(object metav1.Object, ls *v1alpha1.LocalService) bool {
	return controllerOf(object).precedes(ls)
}

func (c controller) precedes(ls *v1alpha1.LocalService) bool {
	return c.isLocalService && c.name == ls.Name && c.uid != ls.UID
}

func controllerOf(object metav1.Object) controller {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil {
		return controller{}
	}
	return controller{exists: true, isLocalService: OwnedBy(object) != nil, name: ref.Name, uid: ref.UID}
}
