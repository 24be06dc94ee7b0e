package cache

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Services is the cache of Services. It groups those of a LocalService, so that a sync finds them side by side, and
// counts all as they come and go, so that nobody has to count them.
type Services struct {
	*Store[Service]
	changed []func(before, after *Service)

	mu         sync.RWMutex
	owned      map[owner]*group
	total      int
	namespaces map[string]counts
}

// owner is a LocalService. The UID alone is not enough: whoever may write a Service in another namespace may claim it.
type owner struct {
	namespace string
	uid       types.UID
}

// group are the Services that a LocalService controls.
type group struct {
	byName     map[string]plan.Service
	clusterIPs int
}

type counts struct{ services, clusterIPs int }

func newServices(store *Store[Service]) (*Services, error) {
	s := &Services{Store: store, owned: map[owner]*group{}, namespaces: map[string]counts{}}
	return s, store.OnChange(func(before, after *Service) {
		s.change(before, after)
		if after == nil {
			s.gone(before)
		}
		for _, changed := range s.changed {
			changed(before, after)
		}
	})
}

// gone forgets what was expected of a Service that is gone, but not of one that was made in its place.
func (s *Services) gone(service *Service) {
	if e, found := s.expected(service.GetNamespace(), service.GetName()); found && hasReached(service, e.resourceVersion) {
		s.forget(service.GetNamespace(), service.GetName())
	}
}

// Wrote is Store.Wrote of a Service. generation is that of the LocalService that it was written for.
func (s *Services) Wrote(service metav1.Object, generation int64) { s.expect(service, generation) }

// OnChange has changed called after each change of a Service, when the groups and counts know it.
func (s *Services) OnChange(changed func(before, after *Service)) {
	s.changed = append(s.changed, changed)
}

func (s *Services) change(before, after *Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before != nil {
		s.count(before, -1)
	}
	if after != nil {
		s.count(after, 1)
	}
}

// count takes in a Service that has come (n is 1) or gone (n is -1).
func (s *Services) count(service *Service, n int) {
	c := counts{services: n}
	if service.hasClusterIP() {
		c.clusterIPs = n
	}
	s.total += n
	namespace := service.GetNamespace()
	sum := counts{s.namespaces[namespace].services + c.services, s.namespaces[namespace].clusterIPs + c.clusterIPs}
	if s.namespaces[namespace] = sum; sum.services == 0 {
		delete(s.namespaces, namespace)
	}
	controller := service.Controller()
	if !controller.IsLocalService() {
		return
	}
	of := owner{namespace, controller.UID}
	g := s.owned[of]
	if g == nil {
		g = &group{byName: map[string]plan.Service{}}
		s.owned[of] = g
	}
	if g.clusterIPs += c.clusterIPs; n > 0 {
		g.byName[service.GetName()] = service
	} else if delete(g.byName, service.GetName()); len(g.byName) == 0 {
		delete(s.owned, of)
	}
}

// Owned calls look with the Services that a LocalService controls, by name. look must not change or keep them: they are
// not copied, as there may be thousands, which are looked at often.
func (s *Services) Owned(ls *v1alpha1.LocalService, look func(byName map[string]plan.Service)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	look(s.groupOf(ls).byName)
}

// groupOf returns the group of a LocalService, an empty one if it controls no Service. s.mu must be held.
func (s *Services) groupOf(ls *v1alpha1.LocalService) group {
	if g := s.owned[owner{ls.Namespace, ls.UID}]; g != nil {
		return *g
	}
	return group{}
}

// IsPending reports whether a Service has been created or changed for a LocalService, and the watch has not told it yet;
// and whether that was done for an earlier spec of the LocalService.
func (s *Services) IsPending(ls *v1alpha1.LocalService, change *plan.Change) (isPending, isOutdated bool) {
	e, found := s.expected(ls.Namespace, change.Name)
	if !found || e.controller != ls.UID || change.Action == plan.Delete || change.Action == plan.Retire ||
		!change.Action.IsWrite() {
		return false, false
	}
	// What the change is about may be older than what the cache has by now.
	isTold := change.Current != nil && hasReached(change.Current, e.resourceVersion) ||
		s.hasPassed(ls.Namespace, e.resourceVersion) && !s.HasReached(ls.Namespace, change.Name, e.resourceVersion)
	return !isTold, !isTold && e.generation != ls.Generation
}

// Lookup returns the Service of a name, nil if there is none.
func (s *Services) Lookup(namespace, name string) plan.Service {
	if service := s.Get(namespace, name); service != nil {
		return service
	}
	return nil // and not a plan.Service that holds a nil pointer
}

// Shows reports whether the groups know a change of a LocalService that was made. resourceVersion is what the API server
// answered, "" to a deletion.
func (s *Services) Shows(ls *v1alpha1.LocalService, change plan.Change, resourceVersion string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	cached := s.groupOf(ls).byName[change.Name]
	switch {
	case resourceVersion == "":
		return cached == nil || cached.GetUID() != change.Current.GetUID() || cached.Terminating()
	case cached == nil:
		return false
	}
	return hasReached(cached, resourceVersion)
}

func (s *Services) capacity(ls *v1alpha1.LocalService, want int) plan.Capacity {
	s.mu.RLock()
	defer s.mu.RUnlock()
	namespace := s.namespaces[ls.Namespace]
	group := s.groupOf(ls)
	owned := counts{len(group.byName), group.clusterIPs}
	out := plan.Capacity{
		InCluster:   s.total - owned.services + want,
		InNamespace: namespace.services - owned.services + want,
	}
	if ls.Spec.ClusterIP != corev1.ClusterIPNone && ls.Spec.Mode != v1alpha1.ModeHostnames {
		out.ClusterIPsInNamespace = namespace.clusterIPs - owned.clusterIPs + want
	}
	return out
}
