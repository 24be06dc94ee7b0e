package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// healTimeout is how soon after a name is freed its Service must exist. It takes milliseconds, if it is the event that
// brings it about; the next retry or resync would be much later.
const healTimeout = 5 * time.Second

// waitConflict waits until a LocalService says that so many of its nodes' Services have a name that is taken.
func (s *scene) waitConflict(name string, nodes, conflicts int) *v1alpha1.LocalService {
	s.t.Helper()
	var ls *v1alpha1.LocalService
	s.eventually(fmt.Sprintf("%s reports %d conflicts", name, conflicts), func(ctx context.Context) (err error) {
		if ls, err = s.localServices().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		return errors.Join(
			checkCondition(ls, v1alpha1.ConditionConflicted, metav1.ConditionTrue, v1alpha1.ReasonNameTaken),
			checkCondition(ls, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNameTaken),
			checkConditionSays(ls, v1alpha1.ConditionConflicted, fmt.Sprintf("%d Service names are taken", conflicts)),
			equal("status.nodes", int(ls.Status.Nodes), nodes),
			equal("status.services", int(ls.Status.Services), nodes-conflicts),
		)
	})
	return ls
}

// TestForeignServicesNameTaken tests that a Service of somebody else is left alone, that the LocalService says so, that its other
// Services are made all the same, and that it heals by itself.
func TestForeignServicesNameTaken(t *testing.T) {
	t.Parallel()
	controlledByNode := func(s *scene, service *corev1.Service, node string) {
		service.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: s.nodeUID(node), Controller: new(true)}}
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
			nodes := s.addNodes("a", "b", "c")
			foreign := foreignService("demo-"+nodes[1], test.labels)
			if test.foreign != nil {
				test.foreign(s, foreign, nodes[1])
			}
			foreign = s.createService(foreign)
			f.passNodes()
			f.passServices()
			s.resetCount()
			s.create("demo")
			ls := s.waitConflict("demo", 3, 1)
			s.waitServices(ls, "demo-"+nodes[0], "demo-"+nodes[2])
			if err := checkConditionSays(ls, v1alpha1.ConditionConflicted, foreign.Name); err != nil {
				t.Error(err)
			}
			f.passAll()
			s.wantUntouched(foreign)
			s.wantWrites("services", "2 create services 201")
			s.eventually("one Warning tells of the conflict", func(ctx context.Context) error {
				events, err := s.events(ctx, "demo", v1alpha1.ReasonNameTaken)
				if err != nil {
					return err
				}
				for i := range events {
					if err := equal("type", events[i].Type, corev1.EventTypeWarning); err != nil {
						return err
					}
				}
				return equal("number of events", len(events), 1)
			})
			// Nor was one repeated: one event tells of the Services that were made, the other of the conflict.
			s.wantWrites("events", "2 create events 201")

			s.resetCount()
			s.deleteService(foreign.Name)
			s.EventuallyWithin(t, healTimeout, s.namespace, "the freed name is taken at once", func(ctx context.Context) error {
				service, err := s.services().Get(ctx, foreign.Name, metav1.GetOptions{})
				if err == nil && !metav1.IsControlledBy(service, ls) {
					err = errors.New("the Service is not ours")
				}
				return err
			})
			s.waitReady("demo")
			f.passServices()
			s.wantWrites("services", "1 create services 201")
		})
	}
}

// TestForeignServicesAreToldOnce tests that a conflict that stays is not told again when something else changes.
func TestForeignServicesAreToldOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "once")
	f := s.newFence()
	node := s.addNodes("a")[0]
	s.createService(foreignService("demo-"+node, nil))
	s.create("demo")
	s.waitConflict("demo", 1, 1)
	for nodes, name := range []string{"b", "c", "d"} {
		s.addNodes(name)
		s.waitConflict("demo", nodes+2, 1)
	}
	f.passLocalServices()
	s.eventually("a Warning tells of the conflict", func(ctx context.Context) error {
		events, err := s.events(ctx, "demo", v1alpha1.ReasonNameTaken)
		if err != nil {
			return err
		}
		if err := equal("number of events", len(events), 1); err != nil {
			return err
		}
		// A repetition would be a patch that makes a series of it.
		if patches := s.requests().Resource("events").Name(events[0].Name).Verb("patch"); len(patches) > 0 || events[0].Series != nil {
			t.Errorf("the conflict was told again: %s %+v", patches, events[0].Series)
		}
		return nil
	})
}

// TestForeignServicesNameTakenLater tests that a Service whose controller reference somebody has given to another object is given up,
// and that of a LocalService whose Service has gone and been replaced by somebody else's.
func TestForeignServicesNameTakenLater(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "takenlater")
	f := s.newFence()
	nodes := s.addNodes("a", "b")
	s.createReady("demo")
	s.editService("demo-"+nodes[0], func(service *corev1.Service) {
		service.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: nodes[0], UID: s.nodeUID(nodes[0]), Controller: new(true)}}
	})
	taken := s.getService("demo-" + nodes[0])
	s.waitConflict("demo", 2, 1)
	f.passServices()
	s.wantUntouched(taken)
	// Its node goes, and its Service is no business of ours any more. Nor is the garbage collector's, here.
	s.editService(taken.Name, func(service *corev1.Service) { service.OwnerReferences = nil; service.Labels = nil })
	taken = s.getService("demo-" + nodes[0])
	s.deleteNode(nodes[0])
	s.waitStatusNodes("demo", 1)
	f.passNodes()
	s.wantUntouched(taken)
}

// TestForeignServicesOfAnotherLocalService tests (a, b-c) and (a-b, c): the first keeps it, the other one says so, and gets it
// when the first is gone.
func TestForeignServicesOfAnotherLocalService(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "same")
	f := s.newFence()
	// Node b-c belongs to LocalService a, and node c to LocalService a-b.
	s.createNode("c-"+s.namespace, map[string]string{"for": "a-b"})
	s.createNode("b-c-"+s.namespace, map[string]string{"for": "a"})
	name := "a-b-c-" + s.namespace
	first := s.createReady("a", func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector["for"] = "a" })
	s.waitServices(first, name)
	service := s.getService(name)
	f.passServices()
	s.resetCount()
	second := s.create("a-b", func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector["for"] = "a-b" })
	s.waitConflict("a-b", 1, 1)
	f.passAll()
	s.wantUntouched(service)
	s.wantWrites("services", "none")

	s.must(s.localServices().Delete(s.ctx(), "a", metav1.DeleteOptions{}))
	s.waitServices(second, name)
	s.waitReady("a-b")
}

// TestForeignServicesOfARival tests two LocalServices that come at the same time and want one name: one has it, and keeps it
// whatever happens to either of them, and the other one says so.
func TestForeignServicesOfARival(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "rival")
	f := s.newFence()
	s.createNode("c-"+s.namespace, map[string]string{"for": "a-b"})
	s.createNode("b-c-"+s.namespace, map[string]string{"for": "a"})
	f.passNodes()
	s.resetCount()
	names, name := []string{"a", "a-b"}, "a-b-c-"+s.namespace
	s.inParallel(len(names), func(i int) error {
		_, err := s.localServices().Create(s.ctx(), s.localService(names[i], choose("for", names[i])), metav1.CreateOptions{})
		return err
	})
	s.eventually("one of them has the name", func(ctx context.Context) error {
		_, err := s.services().Get(ctx, name, metav1.GetOptions{})
		return err
	})
	service := s.getService(name)
	holder, rival := names[0], names[1]
	if service.OwnerReferences[0].Name == rival {
		holder, rival = rival, holder
	}
	s.waitReady(holder)
	s.waitConflict(rival, 1, 1)
	for _, name := range []string{rival, holder, rival} {
		s.update(name, func(ls *v1alpha1.LocalService) { ls.Labels = map[string]string{"any": fmt.Sprint(ls.ResourceVersion)} })
		f.passLocalServices()
	}
	s.wantUntouched(service)
	if done := s.requests().Resource("services").Writes().Where(framework.Succeeded); len(done) != 1 {
		s.fatalf("the controller's writes of services: %s; want 1 create", s.requests().Resource("services").Writes())
	}
}

// TestForeignServicesHealAtOnce tests that a freed name is taken within a second, because its end is an event: nobody asks
// for it meanwhile.
func TestForeignServicesHealAtOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "heal")
	f := s.newFence()
	nodes := s.addNodes("a", "b", "c", "d", "e")
	for _, node := range nodes {
		s.createService(foreignService("demo-"+node, nil))
	}
	f.passServices()
	s.create("demo")
	s.waitConflict("demo", len(nodes), len(nodes))
	f.passAll()
	s.resetCount()
	f.passAll()
	if requests := s.requests(); len(requests) > 0 {
		s.fatalf("while all names were taken the controller asked, or wrote: %s", requests)
	}
	quickest := time.Hour
	for i, node := range nodes {
		old := s.getService("demo-" + node)
		s.deleteService(old.Name)
		s.waitServiceReplaced(old)
		s.waitConflictOrReady("demo", len(nodes), len(nodes)-i-1)
		all := s.Audit.Since(s.mark).Namespace(s.namespace).Resource("services")
		freed, taken := all.Verb("delete").Name(old.Name), s.requests().Resource("services").Verb("create")
		if len(freed) != 1 || len(taken) != i+1 {
			s.fatalf("%d names were freed; requests about Services: %s; those of the controller: %s", i+1, all, taken)
		}
		quickest = min(quickest, taken[i].RequestReceivedTimestamp.Sub(freed[0].RequestReceivedTimestamp.Time))
	}
	t.Logf("a freed name was taken after %v", quickest)
	// The machine may be busy with something else, but not each time.
	if quickest > time.Second {
		t.Errorf("a freed name was taken after %v at the soonest; want less than a second", quickest)
	}
}

func (s *scene) waitConflictOrReady(name string, nodes, conflicts int) {
	s.t.Helper()
	if conflicts == 0 {
		s.waitReady(name)
	} else {
		s.waitConflict(name, nodes, conflicts)
	}
}

// TestForeignServicesAreLeftAlone tests that a label and a name give no right to a Service.
func TestForeignServicesAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "others")
	f := s.newFence()
	nodes := s.addNodes("a", "b")
	elsewhere := newScene(t, shared, "elsewhere")
	owner := map[string]string{v1alpha1.OwnerLabelKey: "demo"}
	foreign := []*corev1.Service{
		s.createService(foreignService("demo", owner)),
		s.createService(foreignService("demo-nowhere", owner)),
		s.createService(foreignService("unlike", owner)),
		elsewhere.createService(foreignService("demo-"+nodes[0], owner)),
		elsewhere.createService(foreignService("demo-nowhere", owner)),
	}
	s.createReady("demo")
	s.update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].Port = 81 })
	s.waitReady("demo")
	s.deleteNode(nodes[0])
	s.waitStatusNodes("demo", 1)
	s.must(s.localServices().Delete(s.ctx(), "demo", metav1.DeleteOptions{}))
	s.waitServiceGone("demo-" + nodes[1])
	f.passAll()
	for _, service := range foreign {
		s.wantUntouched(service)
	}
}

// TestServiceOfANodeThatIsGone tests that what a LocalService controls, but no node wants, is deleted, and only that.
func TestServiceOfANodeThatIsGone(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "orphan")
	node := s.addNodes("a")[0]
	ls := s.createReady("demo")
	stray := foreignService("demo-gone", map[string]string{v1alpha1.OwnerLabelKey: "demo"})
	stray.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(ls, v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.Kind))}
	s.resetCount()
	s.createService(stray)
	s.waitServiceGone(stray.Name)
	s.waitServices(ls, "demo-"+node)
	s.eventually("the delete is in the audit log", func(context.Context) error {
		return equal("writes", s.requests().Resource("services").Writes().String(), "1 delete services 200")
	})
}

// TestForeignServicesMany tests that the status stays small however many names are taken.
func TestForeignServicesMany(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "conflicts")
	const count = 12
	var foreign []string
	for i := range count {
		node := s.node(fmt.Sprintf("n%02d", i))
		s.createNode(node, nil)
		foreign = append(foreign, s.createService(foreignService("demo-"+node, nil)).Name)
	}
	s.create("demo")
	ls := s.waitConflict("demo", count, count)
	for _, c := range ls.Status.Conditions {
		if names := strings.Count(c.Message, "demo-"); names > 5 || len(c.Message) > 1000 {
			t.Errorf("condition %s names %d Services in %d characters: %s", c.Type, names, len(c.Message), c.Message)
		}
	}
	for _, name := range foreign {
		s.deleteService(name)
	}
	s.mustOwn(s.waitReady("demo"), count)
}
