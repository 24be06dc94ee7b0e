package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// waitConflict waits until a LocalService says that so many of its nodes' Services have a name that is taken.
func (s *scene) waitConflict(name string, nodes, conflicts int) *v1alpha1.LocalService {
	s.T.Helper()
	return s.WaitLocalService(name, fmt.Sprintf("reports %d conflicts", conflicts), func(ls *v1alpha1.LocalService) error {
		return errors.Join(
			framework.CheckCondition(ls, v1alpha1.ConditionConflicted, metav1.ConditionTrue, v1alpha1.ReasonNameTaken),
			framework.CheckCondition(ls, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNameTaken),
			framework.Equal("status.nodes", int(ls.Status.Nodes), nodes),
			framework.Equal("status.services", int(ls.Status.Services), nodes-conflicts),
		)
	})
}

// TestForeignServicesNameTaken tests that a Service of somebody else is left alone, that the LocalService says so, that
// its other Services are made all the same, and that it heals by itself.
func TestForeignServicesNameTaken(t *testing.T) {
	t.Parallel()
	controlledByNode := func(s *scene, service *corev1.Service, node string) {
		service.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: s.NodeUID(node), Controller: new(true)}}
	}
	tests := []struct {
		name    string
		labels  map[string]string
		foreign func(s *scene, service *corev1.Service, node string)
	}{
		{name: "by a Service of a user"},
		{name: "by a Service with our owner label", labels: map[string]string{v1alpha1.OwnerLabelKey: "demo"}},
		{name: "by a Service with our owner label and selector that another object controls", labels: map[string]string{v1alpha1.OwnerLabelKey: "demo"},
			foreign: func(s *scene, service *corev1.Service, node string) {
				service.Spec.Selector = map[string]string{"app": "demo", nodeLabel: node}
				controlledByNode(s, service, node)
			}},
		{name: "by a Service with another owner label and our selector", labels: map[string]string{v1alpha1.OwnerLabelKey: "other"},
			foreign: func(_ *scene, service *corev1.Service, node string) {
				service.Spec.Selector = map[string]string{"app": "demo", nodeLabel: node}
			}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, shared, "taken")
			f := s.newFence()
			nodes := s.AddNodes("a", "b", "c")
			foreign := framework.NewForeignService("demo-"+nodes[1], test.labels)
			if test.foreign != nil {
				test.foreign(s, foreign, nodes[1])
			}
			foreign = s.CreateService(foreign)
			f.passNodes()
			f.passServices()
			s.ResetCount()
			s.Create("demo")
			ls := s.waitConflict("demo", 3, 1)
			s.WaitServices(ls, "demo-"+nodes[0], "demo-"+nodes[2])
			if err := framework.CheckConditionSays(ls, v1alpha1.ConditionConflicted, foreign.Name); err != nil {
				t.Error(err)
			}
			f.passAll()
			s.wantUntouched(foreign)
			if reads := s.Requests().Verb("get", "list", "watch"); len(reads) > 0 {
				t.Errorf("the end of the other Service is an event, but the controller asked for it: %s", reads)
			}
			s.WantWrites("services", "2 create services 201")
			s.WaitEvents("demo", v1alpha1.ReasonNameTaken, "one Warning tells of the conflict", framework.OneWarning(""))
			// Nor was one repeated: one event tells of the Services that were made, the other of the conflict.
			s.WantWrites("events", "2 create events 201")

			s.ResetCount()
			s.DeleteService(foreign.Name)
			s.WaitServices(ls, "demo-"+nodes[0], "demo-"+nodes[1], "demo-"+nodes[2])
			s.WaitReady("demo")
			f.passServices()
			s.WantWrites("services", "1 create services 201")
		})
	}
}

// TestForeignServicesAreToldOnce tests that a conflict that stays is not told again when something else changes.
func TestForeignServicesAreToldOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "once")
	f := s.newFence()
	node := s.AddNodes("a")[0]
	s.CreateService(framework.NewForeignService("demo-"+node, nil))
	s.Create("demo")
	s.waitConflict("demo", 1, 1)
	for nodes, name := range []string{"b", "c", "d"} {
		s.AddNodes(name)
		s.waitConflict("demo", nodes+2, 1)
	}
	f.passLocalServices()
	s.Eventually("a Warning tells of the conflict", func(ctx context.Context) error {
		events, err := s.Events(ctx, "demo", v1alpha1.ReasonNameTaken)
		if err != nil {
			return err
		}
		if err := framework.Equal("number of events", len(events), 1); err != nil {
			return err
		}
		// A repetition would be a patch that makes a series of it.
		if patches := s.Requests().Resource("events").Name(events[0].Name).Verb("patch"); len(patches) > 0 || events[0].Series != nil {
			t.Errorf("the conflict was told again: %s %+v", patches, events[0].Series)
		}
		return nil
	})
}

// TestForeignServicesNameTakenLater tests that a Service whose controller reference somebody has given to another
// object is given up, and that of a LocalService whose Service has gone and been replaced by somebody else's.
func TestForeignServicesNameTakenLater(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "takenlater")
	f := s.newFence()
	nodes := s.AddNodes("a", "b")
	s.CreateReady("demo")
	s.EditService("demo-"+nodes[0], func(service *corev1.Service) {
		service.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: nodes[0], UID: s.NodeUID(nodes[0]), Controller: new(true)}}
	})
	taken := s.GetService("demo-" + nodes[0])
	s.waitConflict("demo", 2, 1)
	f.passServices()
	s.wantUntouched(taken)
	// Its node goes, and its Service is no business of ours any more. Nor is the garbage collector's, here.
	s.EditService(taken.Name, func(service *corev1.Service) { service.OwnerReferences = nil; service.Labels = nil })
	taken = s.GetService("demo-" + nodes[0])
	s.DeleteNode(nodes[0])
	s.WaitStatusNodes("demo", 1)
	f.passNodes()
	s.wantUntouched(taken)
}

// TestForeignServicesOfAnotherLocalService tests (a, b-c) and (a-b, c): the first keeps it, the other one says so, and
// gets it when the first is gone.
func TestForeignServicesOfAnotherLocalService(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "same")
	f := s.newFence()
	// Node b-c belongs to LocalService a, and node c to LocalService a-b.
	s.CreateNode("c-"+s.Namespace, map[string]string{"for": "a-b"})
	s.CreateNode("b-c-"+s.Namespace, map[string]string{"for": "a"})
	name := "a-b-c-" + s.Namespace
	first := s.CreateReady("a", func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector["for"] = "a" })
	s.WaitServices(first, name)
	service := s.GetService(name)
	f.passServices()
	s.ResetCount()
	second := s.Create("a-b", func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector["for"] = "a-b" })
	s.waitConflict("a-b", 1, 1)
	f.passAll()
	s.wantUntouched(service)
	s.WantWrites("services", "none")

	s.Must(s.LocalServiceClient().Delete(s.Ctx(), "a", metav1.DeleteOptions{}))
	s.WaitServices(second, name)
	s.WaitReady("a-b")
}

// TestForeignServicesOfARival tests two LocalServices that come at the same time and want one name: one has it, and
// keeps it whatever happens to either of them, and the other one says so.
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
		_, err := s.LocalServiceClient().Create(s.Ctx(), s.NewLocalService(names[i], framework.OnNodesWith("for", names[i])), metav1.CreateOptions{})
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
	if done := s.Requests().Resource("services").Writes().Where(framework.Succeeded); len(done) != 1 {
		s.Fatalf("the controller's writes of services: %s; want 1 create", s.Requests().Resource("services").Writes())
	}
}

// TestForeignServicesAreLeftAlone tests that a label and a name give no right to a Service.
func TestForeignServicesAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "others")
	f := s.newFence()
	nodes := s.AddNodes("a", "b")
	elsewhere := newScene(t, shared, "elsewhere")
	owner := map[string]string{v1alpha1.OwnerLabelKey: "demo"}
	foreign := []*corev1.Service{
		s.CreateService(framework.NewForeignService("demo", owner)),
		s.CreateService(framework.NewForeignService("demo-nowhere", owner)),
		s.CreateService(framework.NewForeignService("unlike", owner)),
		elsewhere.CreateService(framework.NewForeignService("demo-"+nodes[0], owner)),
		elsewhere.CreateService(framework.NewForeignService("demo-nowhere", owner)),
	}
	s.CreateReady("demo")
	s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].Port = 81 })
	s.WaitReady("demo")
	s.DeleteNode(nodes[0])
	s.WaitStatusNodes("demo", 1)
	s.Must(s.LocalServiceClient().Delete(s.Ctx(), "demo", metav1.DeleteOptions{}))
	s.WaitServiceGone("demo-" + nodes[1])
	f.passAll()
	for _, service := range foreign {
		s.wantUntouched(service)
	}
}

// TestServiceOfANodeThatIsGone tests that what a LocalService controls, but no node wants, is deleted, and only that.
func TestServiceOfANodeThatIsGone(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "orphan")
	node := s.AddNodes("a")[0]
	ls := s.CreateReady("demo")
	stray := framework.NewForeignService("demo-gone", map[string]string{v1alpha1.OwnerLabelKey: "demo"})
	stray.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(ls, v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.Kind))}
	s.ResetCount()
	s.CreateService(stray)
	s.WaitServiceGone(stray.Name)
	s.WaitServices(ls, "demo-"+node)
	s.Eventually("the delete is in the audit log", func(context.Context) error {
		return framework.Equal("writes", s.Requests().Resource("services").Writes().String(), "1 delete services 200")
	})
}
