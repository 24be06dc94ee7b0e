package cache

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// byOwner is the index of Services by the LocalService that controls them.
const byOwner = "owner"

// Services is the cache of Services. It is indexed by what plans ask for, so that an answer is exactly as new as the
// cache. It counts them, because to list the keys of 500,000 Services takes 30 ms, more than the rest of a sync.
type Services struct {
	*Store[Service]

	mu     sync.Mutex
	counts map[string]counts // by namespace, and under metav1.NamespaceAll of all; none is zero
}

// counts are numbers of Services.
type counts struct{ all, withClusterIP int }

// changed counts a change of a Service.
func (s *Services) changed(before, after *Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(before, -1)
	s.add(after, 1)
}

func (s *Services) add(service *Service, n int) {
	if service == nil {
		return
	}
	for _, namespace := range []string{metav1.NamespaceAll, service.GetNamespace()} {
		c := s.counts[namespace]
		c.all += n
		if service.hasClusterIP() {
			c.withClusterIP += n
		}
		if s.counts[namespace] = c; c == (counts{}) {
			delete(s.counts, namespace)
		}
	}
}

// ownerKey is a LocalService in an index. The UID alone is not enough: whoever may write a Service in another namespace
// may claim it.
func ownerKey(namespace string, uid types.UID) string { return namespace + "/" + string(uid) }

func indexOwner(obj any) ([]string, error) {
	service := obj.(*Service)
	if controller := service.Controller(); controller.IsLocalService() {
		return []string{ownerKey(service.GetNamespace(), controller.UID)}, nil
	}
	return nil, nil
}

// Owned returns the Services that a LocalService controls, by name.
func (s *Services) Owned(ls *v1alpha1.LocalService) map[string]plan.Service {
	objs := s.byIndex(ls.Namespace, byOwner, ownerKey(ls.Namespace, ls.UID))
	owned := make(map[string]plan.Service, len(objs))
	for service := range typed[Service](objs) {
		owned[service.GetName()] = service
	}
	return owned
}

// Lookup returns the Service of a name, nil if there is none.
func (s *Services) Lookup(namespace, name string) plan.Service {
	if service := s.Get(namespace, name); service != nil {
		return service
	}
	return nil // and not a plan.Service that holds a nil pointer
}

// Capacity returns how many Services there will be when a LocalService has so many more. So it is the same all the time
// while they come.
func (s *Services) Capacity(ls *v1alpha1.LocalService, more int) plan.Capacity {
	s.mu.Lock()
	defer s.mu.Unlock()
	inNamespace := s.counts[ls.Namespace]
	_, isWhole := s.watched[metav1.NamespaceAll]
	out := plan.Capacity{InCluster: s.counts[metav1.NamespaceAll].all + more, InNamespace: inNamespace.all + more,
		IsPartial: !isWhole}
	if ls.Spec.ClusterIP != corev1.ClusterIPNone && ls.Spec.Mode != v1alpha1.ModeHostnames {
		out.ClusterIPsInNamespace = inNamespace.withClusterIP + more
	}
	return out
}
