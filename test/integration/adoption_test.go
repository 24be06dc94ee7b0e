package integration

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"fmt"
	"strings"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// early is the resource of the early implementation, of another API group.
var early = schema.GroupVersionResource{Group: "example2020.dev", Version: "v1alpha1", Resource: "localservices"}

// installEarly creates the CustomResourceDefinition of the early implementation, and waits until it is served.
func (s *scene) installEarly() {
	s.T.Helper()
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": early.GroupResource().String()},
		"spec": map[string]any{
			"group": early.Group, "scope": "Namespaced",
			"names": map[string]any{"kind": "LocalService", "plural": early.Resource, "singular": "localservice"},
			"versions": []any{map[string]any{
				"name": early.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	_, err := s.Dynamic.Resource(framework.CRDs).Create(s.Ctx(), crd, metav1.CreateOptions{})
	s.Must(err)
	s.Eventually("the early resource is served", func(ctx context.Context) error {
		_, err := s.Dynamic.Resource(early).Namespace(s.Namespace).List(ctx, metav1.ListOptions{})
		return err
	})
}

// createEarly creates what the early implementation leaves: an object, and a Service of its for each node.
func (s *scene) createEarly(name string, nodes []string) (services []*corev1.Service) {
	s.T.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": early.GroupVersion().String(), "kind": "LocalService",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"selector": map[string]any{"app": name}, "clusterIP": "None"},
	}}
	object, err := s.Dynamic.Resource(early).Namespace(s.Namespace).Create(s.Ctx(), object, metav1.CreateOptions{})
	s.Must(err)
	for _, node := range nodes {
		services = append(services, s.CreateService(&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Name:            name + "-" + node,
				Labels:          map[string]string{"owner": name},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(object, object.GroupVersionKind())},
			},
			Spec: corev1.ServiceSpec{
				ClusterIP: corev1.ClusterIPNone,
				Selector:  map[string]string{"app": name, "vm/rack": node},
				Ports:     []corev1.ServicePort{{Port: 8080}},
			},
		}))
	}
	return services
}

// TestAdoptionFromTheEarlyImplementation tests the way from the early implementation to this one: as long as the old
// object owns the Services they are conflicts, and when it has been deleted with --cascade=orphan they are adopted as
// they are.
func TestAdoptionFromTheEarlyImplementation(t *testing.T) {
	t.Parallel()
	cluster := framework.NewCluster(t, controlPlane())
	s := newScene(t, cluster, "early")
	s.installEarly()
	s.NewController(t, "-v=4")
	f := s.newFence()
	nodes := s.AddNodes("a", "b", "c")
	services := s.createEarly("demo", nodes)
	f.passServices() // What the controller has not heard of, it would try to create.
	s.ResetCount()
	s.Create("demo")
	s.waitConflict("demo", len(nodes), len(nodes))
	f.passAll()
	for _, service := range services {
		s.wantUntouched(service)
	}
	s.WantWrites("services", "none")

	orphan := metav1.DeletePropagationOrphan
	old := s.Dynamic.Resource(early).Namespace(s.Namespace)
	s.Must(old.Delete(s.Ctx(), "demo", metav1.DeleteOptions{PropagationPolicy: &orphan}))
	s.Eventually("the old object is gone", func(ctx context.Context) error {
		list, err := old.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = errors.New("it is still there")
		}
		return err
	})
	ls := s.WaitReady("demo")
	owned := s.MustOwn(ls, len(nodes))
	for i, before := range services {
		now := owned[before.Name]
		if now == nil || now.UID != before.UID {
			s.Fatalf("Service %s is not the one that was there: %+v", before.Name, now)
		}
		s.checkFollows(ls, now, nodes[i])
	}
	s.Eventually("an event tells of the adoption", func(ctx context.Context) error {
		// The garbage collector orphans them one by one, so it may be more than one; TestEachChangeIsTold adds such up.
		told, err := s.told(ctx, "demo", "adopted")
		if err == nil && told == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	f.passAll()
	s.WantWrites("services", "3 patch services 200")

	// Adopted ones follow like any others, and go with their LocalService.
	s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].Port = 81 })
	s.WaitReady("demo")
	s.Must(s.LocalServiceClient().Delete(s.Ctx(), "demo", metav1.DeleteOptions{}))
	for _, service := range services {
		s.WaitServiceGone(service.Name)
	}
}

// TestDeletionAndAnew tests that a LocalService that follows one of its name, before the garbage collector is
// through, gets Services of its own, and waits for those of its predecessor without calling them a conflict.
func TestDeletionAndAnew(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "anew")
	f := s.newFence()
	s.AddNodes("a", "b", "c")
	old := s.CreateReady("demo")
	s.Must(s.LocalServiceClient().Delete(s.Ctx(), "demo", metav1.DeleteOptions{}))
	s.Create("demo")
	ls := s.WaitReady("demo")
	if ls.UID == old.UID {
		t.Fatal("the LocalService is still the old one")
	}
	s.MustOwn(ls, 3)
	s.Eventually("all its Services are told of", func(ctx context.Context) error {
		told, err := s.told(ctx, "demo", "created")
		return errors.Join(err, framework.Equal("created Services in events", told, 6)) // 3 of each of the two
	})
	f.passLocalServices()
	if events, err := s.Events(s.Ctx(), "demo", v1alpha1.ReasonNameTaken); err != nil || len(events) > 0 {
		s.Fatalf("the Services of its predecessor were called a conflict: %v %v", events, err)
	}
}

// TestAdoptionOfOrphans tests that the Services of a LocalService that was deleted with --cascade=orphan keep serving,
// and belong to its successor, with all that it wants otherwise.
func TestAdoptionOfOrphans(t *testing.T) {
	t.Parallel()
	for name, successor := range map[string]change{
		"by the same":                  func(*v1alpha1.LocalService) {},
		"by one with another port":     func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].Port = 81 },
		"by one with another selector": func(ls *v1alpha1.LocalService) { ls.Spec.Selector["tier"] = "web" },
		"by one of another type":       func(ls *v1alpha1.LocalService) { ls.Spec.Type = corev1.ServiceTypeNodePort },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, shared, "orphans")
			f := s.newFence()
			nodes := s.AddNodes("a", "b")
			before := s.MustOwn(s.CreateReady("demo", framework.WithClusterIP), len(nodes))
			s.orphan("demo")
			s.ResetCount()
			f.passLocalServices()
			f.passServices()
			s.WantWrites("services", "none")

			ls := s.CreateReady("demo", framework.WithClusterIP, successor)
			for name, service := range s.MustOwn(ls, len(nodes)) {
				s.checkFollows(ls, service, strings.TrimPrefix(name, "demo-"))
				if service.UID != before[name].UID || service.Spec.ClusterIP != before[name].Spec.ClusterIP {
					t.Errorf("Service %s is not the one that was there: %s with %s, before %s with %s",
						name, service.UID, service.Spec.ClusterIP, before[name].UID, before[name].Spec.ClusterIP)
				}
			}
			f.passServices()
			s.WantWrites("services", fmt.Sprintf("%d patch services 200", len(nodes)))
		})
	}
}

// orphan deletes a LocalService and leaves its Services behind.
func (s *scene) orphan(name string) {
	s.T.Helper()
	orphan := metav1.DeletePropagationOrphan
	s.Must(s.LocalServiceClient().Delete(s.Ctx(), name, metav1.DeleteOptions{PropagationPolicy: &orphan}))
	s.WaitLocalServiceGone(name)
}

// TestAdoptionByReplacement tests a successor that cannot use the Services that were left behind.
func TestAdoptionByReplacement(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "replaced")
	f := s.newFence()
	nodes := s.AddNodes("a", "b")
	s.CreateReady("demo", framework.WithClusterIP)
	s.orphan("demo")
	s.ResetCount()
	s.MustOwn(s.CreateReady("demo"), len(nodes))
	f.passServices()
	s.wantReplaced(len(nodes))
}
