package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// collectTimeout is for the work of Kubernetes' own controllers on some hundred objects.
const collectTimeout = 90 * time.Second

// failed are the requests that the API server has refused.

// TestDeletionOfANodeThatComesBack tests that a node that is deleted and comes back under its name keeps its Service or gets it
// anew, and never has two.
func TestDeletionOfANodeThatComesBack(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "readded")
	f := s.newFence()
	nodes := s.addNodes("a", "b")
	names := []string{"headless", "addresses"}
	s.createReady(names[0])
	s.createReady(names[1], withClusterIP)
	f.passLocalServices()
	other := s.getService(names[0] + "-" + nodes[1])
	s.resetCount()
	const rounds = 20
	for range rounds {
		s.deleteNode(nodes[0])
		s.createNode(nodes[0], nil)
	}
	f.passNodes()
	f.passServices()
	for _, name := range names {
		ls := s.waitReady(name)
		owned := s.mustOwn(ls, len(nodes))
		for _, node := range nodes {
			if owned[name+"-"+node] == nil {
				s.fatalf("node %s has no Service in %s", node, name)
			}
			s.checkFollows(ls, owned[name+"-"+node], node)
		}
	}
	writes := s.requests().Resource("services").Writes()
	done := writes.Where(framework.Succeeded)
	if deletes, creates := len(done.Verb("delete")), len(done.Verb("create")); deletes != creates || deletes > rounds*len(names) {
		s.fatalf("the controller's writes of services: %s; want as many creates as deletes, and at most %d", writes, rounds*len(names))
	}
	s.wantUntouched(other)
	s.resetCount()
	f.passNodes()
	f.passServices()
	s.wantWrites("services", "none")
}

// keepLocalServices has the API server refuse to delete the LocalServices of the scene's namespace, until the function that
// it returns is called.
func (s *scene) keepLocalServices() (release func()) {
	s.t.Helper()
	policies := s.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := s.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	name := s.namespace + "-keep"
	_, err := policies.Create(s.ctx(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{v1alpha1.GroupName}, APIVersions: []string{"*"}, Resources: []string{"localservices"},
					},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "kept by a policy"}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = bindings.Create(s.ctx(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	return func() {
		s.t.Helper()
		s.must(errors.Join(
			bindings.Delete(s.ctx(), name, metav1.DeleteOptions{}),
			policies.Delete(s.ctx(), name, metav1.DeleteOptions{}),
		))
	}
}

// TestDeletionOfANamespaceWithManyServices tests that a namespace goes away with all that is in it, that the controller does
// not fight for it meanwhile, and that it is through with it then. In one case the LocalServices outlive their Services;
// else the one or the other goes first, as it happens.
func TestDeletionOfANamespaceWithManyServices(t *testing.T) {
	t.Parallel()
	for name, servicesFirst := range map[string]bool{"in any order": false, "Services first": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, shared, "doomed")
			f := s.newFence()
			const nodes, localServices = 40, 4
			s.createManyNodes(nodes)
			for i := range localServices {
				s.create(fmt.Sprintf("demo%d", i))
			}
			for i := range localServices {
				s.waitReady(fmt.Sprintf("demo%d", i))
			}
			release := func() {}
			if servicesFirst {
				release = s.keepLocalServices()
				s.waitUntil(true, func(ctx context.Context, dryRun []string) error {
					return s.localServices().Delete(ctx, "demo0", metav1.DeleteOptions{DryRun: dryRun})
				})
			}
			f.passServices()
			s.resetCount()
			s.must(s.Kube.CoreV1().Namespaces().Delete(s.ctx(), s.namespace, metav1.DeleteOptions{}))
			s.EventuallyWithin(t, collectTimeout, s.namespace, "the Services are gone", func(ctx context.Context) error {
				list, err := s.services().List(ctx, metav1.ListOptions{})
				if err != nil {
					return err
				}
				return equal("number of Services", len(list.Items), 0)
			})
			f.passAll()
			requests := s.requests()
			t.Logf("the controller's requests while the namespace was deleted: %s", requests)
			// Of each LocalService no more is tried than what is tried at the same time, until the first answer.
			const writeConcurrency = 16
			if refused := requests.Where(framework.Failed); len(refused) > localServices*writeConcurrency {
				t.Errorf("%d requests of the controller were refused, for %d Services of %d LocalServices: %s",
					len(refused), nodes*localServices, localServices, refused)
			}
			var errorLines []string
			for _, line := range shared.Controllers()[0].LogLines(s.namespace + "/") {
				if strings.HasPrefix(line, "E") {
					errorLines = append(errorLines, line)
				}
			}
			if len(errorLines) > localServices {
				s.fatalf("%d errors in the log about a namespace that was being deleted, the first: %s", len(errorLines), errorLines[0])
			}
			s.resetCount()
			release()
			s.EventuallyWithin(t, collectTimeout, s.namespace, "the namespace is gone", func(ctx context.Context) error {
				_, err := s.Kube.CoreV1().Namespaces().Get(ctx, s.namespace, metav1.GetOptions{})
				if err == nil {
					return errors.New("it is still there")
				}
				if !apierrors.IsNotFound(err) {
					return err
				}
				return nil
			})
			f.passAll()
			if requests := s.requests(); len(requests) > 0 {
				s.fatalf("when the Services had gone the controller still tried: %s", requests)
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
	s.createManyNodes(nodes)
	s.resetCount()
	ls := s.create("demo")
	s.eventually("the fan-out has begun", func(ctx context.Context) error {
		owned, err := s.ownedServices(ctx, ls)
		if err == nil && len(owned) == 0 {
			err = errors.New("there is no Service")
		}
		return err
	})
	s.must(s.localServices().Delete(s.ctx(), "demo", metav1.DeleteOptions{}))
	s.waitLocalServiceGone("demo")
	f.passAll()
	creates := s.requests().Resource("services").Verb("create")
	t.Logf("%d of %d Services had been created", len(creates), nodes)
	s.EventuallyWithin(t, collectTimeout, s.namespace, "no Service is left", func(ctx context.Context) error {
		list, err := s.services().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		return equal("number of Services", len(list.Items), 0)
	})
	s.resetCount()
	f.passAll()
	if requests := s.requests(); len(requests) > 0 {
		s.fatalf("after the LocalService has gone the controller still tries: %s", requests)
	}
}

// TestDeletionByATypo tests the typo after which no node is selected any more: the numbers are told before the
// first Service goes, and the correction brings all back.
func TestDeletionByATypo(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "typo")
	f := s.newFence()
	nodes := s.addNodes("a", "b", "c", "d", "e", "f")
	ls := s.createReady("demo")
	f.passLocalServices()
	s.resetCount()
	s.update("demo", choose("dsik", "ssd"))
	s.waitServices(ls)
	now := s.waitReady("demo")
	if err := checkCondition(now, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonNoNodes); err != nil {
		t.Error(err)
	}
	deletes := s.requests().Resource("services").Verb("delete")
	if len(deletes) != len(nodes) {
		s.fatalf("the controller's deletes of Services: %s; want %d", deletes, len(nodes))
	}
	first := deletes.First()
	s.eventually("one event announces the deletion", func(ctx context.Context) error {
		events, err := s.events(ctx, "demo", "DeletingServices")
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
			equal("type", events[0].Type, corev1.EventTypeWarning),
			equal("message", events[0].Message, "About to delete 6 of 6 Services, which no selected node wants any more"),
		)
	})
	s.update("demo", func(ls *v1alpha1.LocalService) { delete(ls.Spec.NodeSelector, "dsik") })
	s.mustOwn(s.waitReady("demo"), len(nodes))
}

// TestDeletionHeldIsTold tests that a held deletion is told once, in an event with the numbers, that everything else goes
// on meanwhile, and that the confirmation is enough to go on.
func TestDeletionHeldIsTold(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "held")
	s.NewController(t, "-max-delete-fraction=0.5")
	f := s.newFence()
	nodes := s.addNodes("a", "b", "c", "d")
	s.patchNode(nodes[0], `{"metadata":{"labels":{"disk":"ssd"}}}`)
	ls := s.createReady("demo")
	s.update("demo", choose("disk", "ssd"), func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].Port = 81 })
	held := s.waitNotReady("demo", v1alpha1.ReasonDeletionHeld, "3 of 4 Services")
	f.passServices()
	f.passLocalServices()
	s.eventually("one Warning tells of it", func(ctx context.Context) error {
		events, err := s.events(ctx, "demo", v1alpha1.ReasonDeletionHeld)
		if err != nil {
			return err
		}
		if len(events) != 1 || events[0].Series != nil {
			return fmt.Errorf("got %+v", events)
		}
		if !strings.HasPrefix(events[0].Message, "3 of 4 Services ") {
			return fmt.Errorf("it says %q", events[0].Message)
		}
		return equal("type", events[0].Type, corev1.EventTypeWarning)
	})
	if err := equal("status.nodes", held.Status.Nodes, 1); err != nil {
		t.Error(err)
	}
	if port := s.mustOwn(ls, len(nodes))["demo-"+nodes[0]].Spec.Ports[0].Port; port != 81 {
		t.Errorf("the Service that stays has port %d; want 81", port)
	}
	s.resetCount()
	// What happens to nodes and Services that are concerned changes nothing.
	s.patchNode(nodes[1], `{"metadata":{"labels":{"any":"thing"}}}`)
	s.editService("demo-"+nodes[1], func(service *corev1.Service) { service.Annotations["any"] = "thing" })
	s.update("demo", func(ls *v1alpha1.LocalService) { ls.Labels = map[string]string{"any": "thing"} })
	f.passPods()
	f.passServices()
	f.passLocalServices()
	if writes := s.requests().Writes(); len(writes) > 0 {
		s.fatalf("while the deletion is held the controller wrote: %s", writes)
	}
	s.update("demo", func(ls *v1alpha1.LocalService) {
		ls.Annotations = map[string]string{v1alpha1.AllowDeletionAnnotationKey: "true"}
	})
	s.waitServices(ls, "demo-"+nodes[0])
	s.waitReady("demo")
	f.passServices()
	s.wantWrites("services", "3 delete services 200")
}
