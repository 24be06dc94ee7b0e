package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// orphan deletes an object and makes the garbage collector orphan its dependents.
var orphan = metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}

// waitConflict waits until a LocalService reports that a number of its nodes' Services have a name that is taken.
func (s *scene) waitConflict(name string, nodes, conflicts int) {
	s.T.Helper()
	what := fmt.Sprintf("reports %d conflicts", conflicts)
	s.WaitLocalService(name, what, func(ls *v1alpha1.LocalService) error {
		const reason = v1alpha1.ReasonNameTaken
		return errors.Join(
			framework.CheckCondition(ls, v1alpha1.ConditionConflicted, metav1.ConditionTrue, reason),
			framework.CheckCondition(ls, v1alpha1.ConditionReady, metav1.ConditionFalse, reason),
			framework.Equal("status.nodes", int(ls.Status.Nodes), nodes),
			framework.Equal("status.services", int(ls.Status.Services), nodes-conflicts),
		)
	})
}

// TestForeignServicesOfARival tests two LocalServices that are created at the same time and want one name, (a, b-c) and
// (a-b, c): one gets it, and keeps it whatever happens to either of them. The other one reports that, and gets the name
// when the first is deleted.
func TestForeignServicesOfARival(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "rival")
	f := s.newFence()
	s.CreateNode("c-"+s.Namespace, map[string]string{"for": "a-b"})
	s.CreateNode("b-c-"+s.Namespace, map[string]string{"for": "a"})
	f.passNodes()
	s.ResetCount()
	names, name := []string{"a", "a-b"}, "a-b-c-"+s.Namespace
	s.InParallel(len(names), func(i int) error {
		ls := s.NewLocalService(names[i], func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector["for"] = names[i] })
		_, err := s.LocalServiceClient().Create(s.Ctx(), ls, metav1.CreateOptions{})
		return err
	})
	service := s.WaitServiceExists(name)
	holder, rival := names[0], names[1]
	if service.OwnerReferences[0].Name == rival {
		holder, rival = rival, holder
	}
	s.WaitReady(holder)
	s.waitConflict(rival, 1, 1)
	for _, name := range []string{rival, holder, rival} {
		s.Update(name, func(ls *v1alpha1.LocalService) {
			ls.Labels = map[string]string{"any": fmt.Sprint(ls.ResourceVersion)}
		})
		f.passLocalServices()
	}
	s.wantUntouched(service)
	writes := s.Requests().Resource("services").Writes()
	if done := writes.Where(framework.Succeeded); done.String() != "1 create services 201" {
		s.Fatalf("the controller's writes of services: %s; want 1 create", writes)
	}
	s.Must(s.LocalServiceClient().Delete(s.Ctx(), holder, metav1.DeleteOptions{}))
	s.WaitServices(s.WaitReady(rival), name)
}

// TestAdoptionFromTheEarlyImplementation tests the migration from the early implementation to this one: as long as the
// old object owns the Services, they are conflicts. Once it is deleted with --cascade=orphan, they are adopted
// unchanged. Any other object can stand for the old one: here it is a ConfigMap.
func TestAdoptionFromTheEarlyImplementation(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "early")
	f := s.newFence()
	nodes := s.AddNodes("a", "b", "c")
	configMaps := s.Kube.CoreV1().ConfigMaps(s.Namespace)
	old, err := configMaps.Create(s.Ctx(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "demo"}},
		metav1.CreateOptions{})
	s.Must(err)
	owner := *metav1.NewControllerRef(old, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	services := map[string]*corev1.Service{}
	for _, node := range nodes {
		service := framework.NewForeignService("demo-"+node, map[string]string{"owner": "demo"})
		service.OwnerReferences = []metav1.OwnerReference{owner}
		service.Spec.Selector = map[string]string{"app": "demo", "vm/rack": node}
		services[node] = s.CreateService(service)
	}
	f.passServices() // The controller would try to create Services that it has not observed.
	s.ResetCount()
	s.Create("demo")
	s.waitConflict("demo", len(nodes), len(nodes))
	f.passAll()
	for _, service := range services {
		s.wantUntouched(service)
	}
	s.WantWrites("services", "none")

	s.Must(configMaps.Delete(s.Ctx(), "demo", orphan))
	ls := s.WaitReady("demo")
	owned := s.MustOwn(ls, len(nodes))
	for node, before := range services {
		now := owned[before.Name]
		if now == nil || now.UID != before.UID {
			s.Fatalf("Service %s is not the one that was there: %+v", before.Name, now)
		}
		s.checkFollows(ls, now, node)
	}
	s.waitTold("demo", map[string]int{"adopted": len(nodes)})
	f.passAll()
	s.WantWrites("services", "3 patch services 200")
}

// TestAdoptionOfOrphans tests that the Services of a LocalService that was deleted with --cascade=orphan stay
// unchanged, and that its successor adopts them: they keep their addresses, and get everything else that it wants.
func TestAdoptionOfOrphans(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "orphans")
	f := s.newFence()
	nodes := s.AddNodes("a", "b")
	before := s.MustOwn(s.CreateReady("demo", framework.WithClusterIP), len(nodes))
	s.Must(s.LocalServiceClient().Delete(s.Ctx(), "demo", orphan))
	s.WaitLocalServiceGone("demo")
	s.ResetCount()
	f.passLocalServices()
	f.passServices()
	s.WantWrites("services", "none")

	ls := s.CreateReady("demo", framework.OfType(corev1.ServiceTypeNodePort))
	for name, now := range s.MustOwn(ls, len(nodes)) {
		s.checkFollows(ls, now, strings.TrimPrefix(name, "demo-"))
		if was := before[name]; now.UID != was.UID || now.Spec.ClusterIP != was.Spec.ClusterIP {
			t.Errorf("Service %s is not the one that was there: %s with %s, before %s with %s",
				name, now.UID, now.Spec.ClusterIP, was.UID, was.Spec.ClusterIP)
		}
	}
	f.passServices()
	s.WantWrites("services", "2 patch services 200")
}

// TestDeletionAndAnew tests that a LocalService that replaces one of the same name, before the garbage collector has
// finished, gets Services of its own, and waits for those of its predecessor without reporting a conflict.
func TestDeletionAndAnew(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "anew")
	s.AddNodes("a", "b", "c")
	old := s.CreateReady("demo")
	s.Must(s.LocalServiceClient().Delete(s.Ctx(), "demo", metav1.DeleteOptions{}))
	s.Create("demo")
	ls := s.WaitReady("demo")
	if ls.UID == old.UID {
		t.Fatal("the LocalService is still the old one")
	}
	s.MustOwn(ls, 3)
	s.waitTold("demo", map[string]int{"created": 6}) // 3 of each of the two
	if events, err := s.Events(s.Ctx(), "demo", v1alpha1.ReasonNameTaken); err != nil || len(events) > 0 {
		s.Fatalf("the Services of its predecessor were called a conflict: %v %v", events, err)
	}
}
