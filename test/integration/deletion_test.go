package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestDeletionOfANodeThatComesBack tests that a node that is deleted and comes back under its name keeps its Service or
// gets it anew, and never has two.
func TestDeletionOfANodeThatComesBack(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "readded")
	f := s.newFence()
	nodes := s.AddNodes("a", "b")
	names := []string{"headless", "addresses"}
	s.CreateReady(names[0])
	s.CreateReady(names[1], framework.WithClusterIP)
	f.passLocalServices()
	other := s.GetService(names[0] + "-" + nodes[1])
	s.ResetCount()
	const rounds = 20
	for range rounds {
		s.DeleteNode(nodes[0])
		s.CreateNode(nodes[0], nil)
	}
	f.passNodes()
	f.passServices()
	for _, name := range names {
		ls := s.WaitReady(name)
		owned := s.MustOwn(ls, len(nodes))
		for _, node := range nodes {
			if owned[name+"-"+node] == nil {
				s.Fatalf("node %s has no Service in %s", node, name)
			}
			s.checkFollows(ls, owned[name+"-"+node], node)
		}
	}
	writes := s.Requests().Resource("services").Writes()
	done := writes.Where(framework.Succeeded)
	if deletes, creates := len(done.Verb("delete")), len(done.Verb("create")); deletes != creates || deletes > rounds*len(names) {
		s.Fatalf("the controller's writes of services: %s; want as many creates as deletes, and at most %d", writes, rounds*len(names))
	}
	s.wantUntouched(other)
	s.ResetCount()
	f.passNodes()
	f.passServices()
	s.WantWrites("services", "none")
}

// TestDeletionOfANamespaceWithManyServices tests that a namespace goes away with all that is in it, that the controller
// does not fight for it meanwhile, and that it is through with it then. In one case the LocalServices outlive their
// Services; else the one or the other goes first, as it happens.
func TestDeletionOfANamespaceWithManyServices(t *testing.T) {
	t.Parallel()
	for name, servicesFirst := range map[string]bool{"in any order": false, "Services first": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, shared, "doomed")
			f := s.newFence()
			const nodes, localServices = 40, 4
			s.AddManyNodes(nodes)
			for i := range localServices {
				s.Create(fmt.Sprintf("demo%d", i))
			}
			for i := range localServices {
				s.WaitReady(fmt.Sprintf("demo%d", i))
			}
			release := func() {}
			if servicesFirst {
				release = s.deny("localservices."+v1alpha1.GroupName, admissionregistrationv1.Delete, "false")
				s.waitUntil(true, func(ctx context.Context, dryRun []string) error {
					return s.LocalServiceClient().Delete(ctx, "demo0", metav1.DeleteOptions{DryRun: dryRun})
				})
			}
			f.passServices()
			s.ResetCount()
			s.Must(s.Kube.CoreV1().Namespaces().Delete(s.Ctx(), s.Namespace, metav1.DeleteOptions{}))
			s.WaitServiceCount(0)
			f.passAll()
			requests := s.Requests()
			t.Logf("the controller's requests while the namespace was deleted: %s", requests)
			// What is under way is tried, until the first answer, and not all there is.
			if refused := requests.Where(framework.Failed); len(refused) >= nodes*localServices {
				t.Errorf("%d requests of the controller were refused, for %d Services of %d LocalServices: %s",
					len(refused), nodes*localServices, localServices, refused)
			}
			var errorLines []string
			for _, line := range shared.Controllers()[0].LogLines(s.Namespace + "/") {
				if strings.HasPrefix(line, "E") {
					errorLines = append(errorLines, line)
				}
			}
			if len(errorLines) > localServices {
				s.Fatalf("%d errors in the log about a namespace that was being deleted, the first: %s", len(errorLines), errorLines[0])
			}
			s.ResetCount()
			release()
			s.WaitNamespaceGone()
			f.passAll()
			if requests := s.Requests(); len(requests) > 0 {
				s.Fatalf("when the Services had gone the controller still tried: %s", requests)
			}
		})
	}
}

// TestDeletionDuringFanOut tests that a fan-out ends with its LocalService, and leaves nothing behind.
func TestDeletionDuringFanOut(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "midway")
	f := s.newFence()
	const nodes = 150
	s.AddManyNodes(nodes)
	s.ResetCount()
	ls := s.Create("demo")
	s.Eventually("the fan-out has begun", func(ctx context.Context) error {
		owned, err := s.OwnedServices(ctx, ls)
		if err == nil && len(owned) == 0 {
			err = errors.New("there is no Service")
		}
		return err
	})
	s.Must(s.LocalServiceClient().Delete(s.Ctx(), "demo", metav1.DeleteOptions{}))
	s.WaitLocalServiceGone("demo")
	f.passAll()
	creates := s.Requests().Resource("services").Verb("create")
	t.Logf("%d of %d Services had been created", len(creates), nodes)
	s.WaitServiceCount(0)
	s.ResetCount()
	f.passAll()
	if requests := s.Requests(); len(requests) > 0 {
		s.Fatalf("after the LocalService has gone the controller still tries: %s", requests)
	}
}

// TestDeletionByATypo tests the typo after which no node is selected any more: the numbers are told before the
// first Service goes, and the correction brings all back.
func TestDeletionByATypo(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "typo")
	f := s.newFence()
	nodes := s.AddNodes("a", "b", "c", "d", "e", "f")
	ls := s.CreateReady("demo")
	f.passLocalServices()
	s.ResetCount()
	s.Update("demo", framework.OnNodesWith("dsik", "ssd"))
	s.WaitServices(ls)
	now := s.WaitReady("demo")
	if err := framework.CheckCondition(now, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonNoNodes); err != nil {
		t.Error(err)
	}
	deletes := s.Requests().Resource("services").Verb("delete")
	if len(deletes) != len(nodes) {
		s.Fatalf("the controller's deletes of Services: %s; want %d", deletes, len(nodes))
	}
	first := deletes.First()
	s.Eventually("one event announces the deletion", func(ctx context.Context) error {
		events, err := s.Events(ctx, "demo", "DeletingServices")
		if err != nil {
			return err
		}
		if len(events) != 1 {
			return fmt.Errorf("there are %d", len(events))
		}
		if at := events[0].EventTime.Time; at.After(first) {
			return fmt.Errorf("the event is of %v, and the first delete of %v", at, first)
		}
		return errors.Join(
			framework.Equal("type", events[0].Type, corev1.EventTypeWarning),
			framework.Equal("message", events[0].Message, "About to delete 6 of 6 Services, which no selected node wants any more"),
		)
	})
	s.Update("demo", func(ls *v1alpha1.LocalService) { delete(ls.Spec.NodeSelector, "dsik") })
	s.MustOwn(s.WaitReady("demo"), len(nodes))
}

// TestDeletionHeldIsTold tests that a held deletion is told once, in an event with the numbers, that everything else
// goes on meanwhile, and that the confirmation is enough to go on.
func TestDeletionHeldIsTold(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "held")
	s.NewController(t, "-max-delete-fraction=0.5")
	f := s.newFence()
	nodes := s.AddNodes("a", "b", "c", "d")
	s.PatchNode(nodes[0], `{"metadata":{"labels":{"disk":"ssd"}}}`)
	ls := s.CreateReady("demo")
	s.Update("demo", framework.OnNodesWith("disk", "ssd"), func(ls *v1alpha1.LocalService) {
		ls.Spec.Ports[0].Port = 81
	})
	held := s.WaitNotReady("demo", v1alpha1.ReasonDeletionHeld, "3 of 4 Services")
	f.passServices()
	f.passLocalServices()
	s.WaitEvents("demo", v1alpha1.ReasonDeletionHeld, "one Warning tells of it", framework.OneWarning("3 of 4 Services "))
	if err := framework.Equal("status.nodes", held.Status.Nodes, 1); err != nil {
		t.Error(err)
	}
	if port := s.MustOwn(ls, len(nodes))["demo-"+nodes[0]].Spec.Ports[0].Port; port != 81 {
		t.Errorf("the Service that stays has port %d; want 81", port)
	}
	s.ResetCount()
	// What happens to nodes and Services that are concerned changes nothing.
	s.PatchNode(nodes[1], `{"metadata":{"labels":{"any":"thing"}}}`)
	s.EditService("demo-"+nodes[1], func(service *corev1.Service) { service.Annotations["any"] = "thing" })
	s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Labels = map[string]string{"any": "thing"} })
	f.passPods()
	f.passServices()
	f.passLocalServices()
	s.WantNoWrites("while the deletion is held")
	s.Update("demo", func(ls *v1alpha1.LocalService) {
		ls.Annotations = map[string]string{v1alpha1.AllowDeletionAnnotationKey: "true"}
	})
	s.WaitServices(ls, "demo-"+nodes[0])
	s.WaitReady("demo")
	f.passServices()
	s.WantWrites("services", "3 delete services 200")
}

func TestDeletionOfALocalService(t *testing.T) {
	t.Parallel()
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			s := newScene(t, shared, "deleted")
			f := s.newFence()
			nodes := s.AddNodes("a", "b", "c")
			s.CreateReady("demo")
			other := s.CreateReady("demo2")
			foreign := s.CreateService(framework.NewForeignService("demo-of-somebody-else", map[string]string{v1alpha1.OwnerLabelKey: "demo"}))
			f.passServices()
			s.ResetCount()
			s.Must(s.LocalServiceClient().Delete(s.Ctx(), "demo", metav1.DeleteOptions{PropagationPolicy: &policy}))
			for _, node := range nodes {
				s.WaitServiceGone("demo-" + node)
			}
			s.WaitLocalServiceGone("demo")
			f.passAll()
			// The garbage collector does it all; above all, nothing is made anew.
			s.WantNoWrites("in the end")
			s.MustOwn(other, len(nodes))
			s.wantUntouched(foreign)
		})
	}
}

// TestDeletionOfANamespace tests that a namespace can be deleted while it is fanned out in, without a storm of errors.
func TestDeletionOfANamespace(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "terminating")
	f := s.newFence()
	s.AddNodes("a", "b", "c")
	s.CreateReady("demo")
	s.Must(s.Kube.CoreV1().Namespaces().Delete(s.Ctx(), s.Namespace, metav1.DeleteOptions{}))
	s.WaitGone("the namespace", func(ctx context.Context) error {
		_, err := s.Kube.CoreV1().Namespaces().Get(ctx, s.Namespace, metav1.GetOptions{})
		return err
	})
	f.passAll()
	if n := len(s.Requests().Verb("create").Resource("services")); n > 3+2*3 {
		s.Fatalf("the controller tried to make Services %d times in a namespace that was being deleted", n)
	}
}
