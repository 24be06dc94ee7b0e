package cache

import (
	"cmp"
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Service keeps the fields of a Service that plans and counts read, in a tenth of the memory. It is a plan.Service.
type Service struct {
	Identity

	uid         types.UID
	node        unique.Handle[string] // from the annotation; "" if there is none
	controller  unique.Handle[plan.Controller]
	clusterIPs  unique.Handle[string] // separated by commas; "None" or "" for none
	created     int64                 // in seconds since 1970
	terminating bool
	content     sharedContent
}

// sharedContent is a plan.Content as protobuf, stored once for all Services that have it. It is empty for Services of
// others.
type sharedContent struct{ unique.Handle[string] }

// trimService keeps only the fields of a Service that are read. Of one that a LocalService neither controls nor may
// adopt, these are its identity and its controller, to find conflicts.
func trimService(full *corev1.Service, nodeLabelKey string) (*Service, error) {
	controller := plan.ControllerOf(full)
	s := &Service{
		Identity:    identityOf(full),
		uid:         full.UID,
		node:        unique.Make(""),
		controller:  unique.Make(controller),
		clusterIPs:  unique.Make(""),
		created:     full.CreationTimestamp.Unix(),
		terminating: full.DeletionTimestamp != nil,
		content:     sharedContent{unique.Make("")},
	}
	ofOthers := controller != plan.Controller{} && !controller.IsLocalService()
	if ofOthers || controller == (plan.Controller{}) && full.Labels[v1alpha1.OwnerLabelKey] == "" {
		return s, nil
	}
	s.node = unique.Make(full.Annotations[v1alpha1.NodeAnnotationKey])
	s.clusterIPs = unique.Make(cmp.Or(strings.Join(full.Spec.ClusterIPs, ","), full.Spec.ClusterIP))
	content := plan.ContentOf(full, nodeLabelKey)
	encoded, err := (&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Labels: content.Labels, Annotations: content.Annotations,
			OwnerReferences: content.OwnerReferences},
		Spec: content.Spec,
	}).Marshal()
	if err != nil {
		return nil, err
	}
	s.content = sharedContent{unique.Make(string(encoded))}
	return s, nil
}

// Get decodes the content.
func (c sharedContent) Get() *plan.Content {
	var s corev1.Service
	if err := s.Unmarshal([]byte(c.Value())); err != nil {
		panic(err) // It was encoded by trimService.
	}
	return &plan.Content{Labels: s.Labels, Annotations: s.Annotations, OwnerReferences: s.OwnerReferences, Spec: s.Spec}
}

// GetUID returns the UID of the Service.
func (s *Service) GetUID() types.UID { return s.uid }

// Created returns when the Service was created.
func (s *Service) Created() time.Time { return time.Unix(s.created, 0) }

// Node returns the name of the node that the Service's annotation names, "" if there is none.
func (s *Service) Node() string { return s.node.Value() }

// Controller returns the object that controls the Service, the zero value if none does.
func (s *Service) Controller() plan.Controller { return s.controller.Value() }

// Terminating reports whether the Service is being deleted.
func (s *Service) Terminating() bool { return s.terminating }

// Content returns what Services for different nodes can have in common.
func (s *Service) Content() plan.SharedContent { return s.content }

// ClusterIPs returns the addresses of the Service, or None.
func (s *Service) ClusterIPs() []string {
	if s.clusterIPs.Value() == "" {
		return nil
	}
	return strings.Split(s.clusterIPs.Value(), ",")
}

// same reports whether two states differ only in the resource version.
func (s *Service) same(other *Service) bool {
	a, b := *s, *other
	a.resourceVersion, b.resourceVersion = "", ""
	return a == b
}

// Services is the cache of Services.
type Services struct{ *Store[*Service] }

// Owned returns the Services that a LocalService controls, by name.
func (s *Services) Owned(ls *v1alpha1.LocalService) map[string]plan.Service {
	objs := s.indexed(ls.Namespace, string(ls.UID))
	owned := make(map[string]plan.Service, len(objs))
	for _, service := range objs {
		owned[service.GetName()] = service
	}
	return owned
}

// Lookup returns the Service with a name, nil if there is none.
func (s *Services) Lookup(namespace, name string) plan.Service {
	if service := s.Get(namespace, name); service != nil {
		return service
	}
	return nil // and not a plan.Service that holds a nil pointer
}
