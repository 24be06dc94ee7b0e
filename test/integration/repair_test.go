package integration

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestServiceWithFinalizer tests that a Service whose deletion somebody delays is waited for.
func TestServiceWithFinalizer(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "finalizer")
	f := s.newFence()
	node := s.AddNodes("a", "b")[0]
	s.CreateReady("demo")
	f.passLocalServices()
	name := "demo-" + node
	s.EditService(name, func(service *corev1.Service) { service.Finalizers = []string{"example.com/wait"} })
	f.passServices()
	s.ResetCount()
	old := s.GetService(name)
	s.DeleteService(name)
	s.WaitLocalService("demo", "the LocalService says that it waits", func(ls *v1alpha1.LocalService) error {
		if err := framework.Equal("status.services", ls.Status.Services, 1); err != nil {
			return err
		}
		return framework.CheckCondition(ls, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonWaiting)
	})
	f.passServices()
	s.WantWrites("services", "none")
	s.EditService(name, func(service *corev1.Service) { service.Finalizers = nil })
	s.WaitServiceReplaced(old)
	s.WaitReady("demo")
	f.passServices()
	s.WantWrites("services", "1 create services 201")
}

// TestImmutableTransitionsWithFinalizer tests that a Service that must be replaced, and whose deletion somebody delays,
// is waited for, and that the others are replaced meanwhile.
func TestImmutableTransitionsWithFinalizer(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "replace")
	f := s.newFence()
	nodes := s.AddNodes("a", "b")
	s.CreateReady("demo")
	name := "demo-" + nodes[0]
	s.EditService(name, func(service *corev1.Service) { service.Finalizers = []string{"example.com/wait"} })
	held, other := s.GetService(name), s.GetService("demo-"+nodes[1])
	s.Update("demo", framework.WithClusterIP)
	s.WaitServiceReplaced(other)
	s.WaitLocalService("demo", "the LocalService says that it waits", func(ls *v1alpha1.LocalService) error {
		return framework.CheckCondition(ls, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonWaiting)
	})
	f.passServices()
	s.ResetCount()
	f.passServices()
	s.WantWrites("services", "none")
	s.EditService(name, func(service *corev1.Service) { service.Finalizers = nil })
	s.WaitServiceReplaced(held)
	s.WaitReady("demo")
}

// TestEachChangeIsTold tests that each change has an event that says what it was, also when changes of several kinds
// follow each other and leave the LocalService as it is: recorders of events may merge what they take for repetitions.
func TestEachChangeIsTold(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "told")
	f := s.newFence()
	nodes := s.AddNodes("a", "b")
	s.CreateReady("demo")
	wantTold := func(what string, created, updated int) {
		t.Helper()
		s.Eventually(what+" is told", func(ctx context.Context) error {
			gotCreated, err1 := s.told(ctx, "demo", "created")
			gotUpdated, err2 := s.told(ctx, "demo", "updated")
			return errors.Join(err1, err2,
				framework.Equal("created Services in events", gotCreated, created),
				framework.Equal("updated Services in events", gotUpdated, updated))
		})
	}
	wantTold("the fan-out", 2, 0)
	edited := s.GetService("demo-" + nodes[0])
	s.EditService(edited.Name, func(service *corev1.Service) { service.Spec.Ports[0].Port = 81 })
	s.waitRepaired(edited)
	f.passServices()
	wantTold("the repair", 2, 1)
	deleted := s.GetService("demo-" + nodes[1])
	s.DeleteService(deleted.Name)
	s.WaitServiceReplaced(deleted)
	f.passServices()
	wantTold("the replacement of a deleted Service", 3, 1)
}
