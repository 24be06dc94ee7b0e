package cache

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// byOwner is the index of Services by the LocalService that controls them.
const byOwner = "owner"

// Services caches Services. It is indexed by what plans ask for, so that an answer is exactly as new as the
// cache.
type Services struct{ *Store[*Service] }

// ownerKey returns the key of a LocalService in an index. The UID alone is not enough: a Service in another namespace
// may claim it, too.
func ownerKey(namespace string, uid types.UID) string { return namespace + "/" + string(uid) }

func indexOwner(service *Service) ([]string, error) {
	if controller := service.Controller(); controller.IsLocalService() {
		return []string{ownerKey(service.GetNamespace(), controller.UID)}, nil
	}
	return nil, nil
}

// Owned returns the Services that a LocalService controls, by name.
func (s *Services) Owned(ls *v1alpha1.LocalService) map[string]plan.Service {
	objs := s.byIndex(ls.Namespace, byOwner, ownerKey(ls.Namespace, ls.UID))
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
