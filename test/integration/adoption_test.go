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
