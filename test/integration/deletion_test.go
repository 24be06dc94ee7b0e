package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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
