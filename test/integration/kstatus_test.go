package integration

import (
	"context"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestKstatus tests the state that kstatus, which Helm and Flux use, computes for a LocalService that no controller has
// observed yet, and for one that fails and recovers. test/gitops tests all other states.
func TestKstatus(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "kstatus")
	node := s.AddNodes("a")[0]
	s.CreateService(framework.NewForeignService("demo-"+node, nil))
	ready := s.Create("demo").Status.Conditions[0]
	s.Must(framework.Equal("condition", ready.Type+" "+ready.Reason, "Ready "+v1alpha1.ReasonWaitingForController))
	s.wantKstatus(status.InProgressStatus) // now, not in a while
	const key = "example.com/node"         // The CustomResourceDefinition lets it pass.
	s.NewController(t, "-node-label-key="+key)
	s.waitKstatus(status.FailedStatus)
	s.DeleteService("demo-" + node)
	s.waitKstatus(status.CurrentStatus)
	s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.Selector[key] = "any" })
	s.waitKstatus(status.FailedStatus)
}

func (s *scene) wantKstatus(want status.Status) {
	s.T.Helper()
	s.Must(s.checkKstatus(s.Ctx(), want))
}

func (s *scene) waitKstatus(want status.Status) {
	s.T.Helper()
	s.Eventually("kstatus says "+want.String(), func(ctx context.Context) error { return s.checkKstatus(ctx, want) })
}

func (s *scene) checkKstatus(ctx context.Context, want status.Status) error {
	ls, err := s.Dynamic.Resource(localServiceResource).Namespace(s.Namespace).Get(ctx, "demo", metav1.GetOptions{})
	if err != nil {
		return err
	}
	got, err := status.Compute(ls)
	if err != nil {
		return err
	}
	return framework.Equal("kstatus of "+got.Message, got.Status, want)
}
