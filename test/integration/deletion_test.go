package integration

import (
	"context"
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestDeletionOfANamespaceWithManyServices tests that a namespace is deleted with everything in it, that the controller
// recreates nothing meanwhile, and that it has no work left afterwards. In one case the LocalServices outlive their
// Services. In the other one the order is undefined.
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
				s.CreateReady(fmt.Sprintf("demo%d", i))
			}
			release := func() {}
			if servicesFirst {
				release = s.deny("localservices."+v1alpha1.GroupName, admissionregistrationv1.Delete, "false",
					func(ctx context.Context, dryRun []string) error {
						return s.LocalServiceClient().Delete(ctx, "demo0", metav1.DeleteOptions{DryRun: dryRun})
					})
			}
			f.passServices()
			s.ResetCount()
			s.deleteNamespace()
			s.WaitServiceCount(0)
			f.passAll()
			requests := s.Requests()
			t.Logf("the controller's requests while the namespace was deleted: %s", requests)
			// Writes in flight are tried until the first answer, and no others.
			if refused := requests.Where(framework.Failed); len(refused) >= nodes*localServices {
				t.Errorf("%d requests of the controller were refused, for %d Services of %d LocalServices: %s",
					len(refused), nodes*localServices, localServices, refused)
			}
			if errs := s.errorsInLog(); len(errs) > localServices {
				s.Fatalf("%d errors in the log about a namespace that was being deleted, the first: %s",
					len(errs), errs[0])
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

// TestDeletionOfALocalService tests that the garbage collector deletes a LocalService's Services, and nothing else, and
// above all that the controller recreates nothing meanwhile.
func TestDeletionOfALocalService(t *testing.T) {
	t.Parallel()
	policies := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}
	for _, policy := range policies {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			s := newScene(t, shared, "deleted")
			f := s.newFence()
			nodes := s.AddNodes("a", "b", "c")
			s.CreateReady("demo")
			other := s.CreateReady("demo2")
			owner := map[string]string{v1alpha1.OwnerLabelKey: "demo"}
			foreign := s.CreateService(framework.NewForeignService("demo-of-somebody-else", owner))
			f.passServices()
			s.ResetCount()
			s.Must(s.LocalServiceClient().Delete(s.Ctx(), "demo", metav1.DeleteOptions{PropagationPolicy: &policy}))
			for _, node := range nodes {
				s.WaitServiceGone("demo-" + node)
			}
			s.WaitLocalServiceGone("demo")
			f.passAll()
			s.WantNoWrites("in the end")
			s.MustOwn(other, len(nodes))
			s.wantUntouched(foreign)
		})
	}
}
