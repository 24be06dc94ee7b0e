package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

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
				release = s.deny("localservices."+v1alpha1.GroupName, "DELETE", "false",
					func(ctx context.Context, dryRun []string) error {
						return s.LocalServiceClient().Delete(ctx, "demo0", metav1.DeleteOptions{DryRun: dryRun})
					})
			}
			f.passServices()
			s.ResetCount()
			s.Must(s.Kube.CoreV1().Namespaces().Delete(s.Ctx(), s.Namespace, metav1.DeleteOptions{}))
			s.Eventually("there are no Services", func(ctx context.Context) error {
				list, err := s.ServiceClient().List(ctx, metav1.ListOptions{})
				return errors.Join(err, framework.Equal("Services", len(list.Items), 0))
			})
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

// errorsInLog returns the errors in the controllers' logs about objects of the scene's namespace.
func (s *scene) errorsInLog() (lines []string) {
	for _, controller := range s.Controllers() {
		for _, line := range controller.LogLines(s.Namespace + "/") {
			if strings.HasPrefix(line, "E") {
				lines = append(lines, line)
			}
		}
	}
	return lines
}
