package integration

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestCapacityOfTwoLocalServices tests that a namespace never has more Services than the limit, also when two
// LocalServices are fanned out at once, and when the leader crashes meanwhile.
func TestCapacityOfTwoLocalServices(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "limit")
	const nodes, limit = 100, 120
	s.AddManyNodes(nodes)
	flags := []string{fmt.Sprint("-max-services-per-namespace=", limit), "-write-concurrency=2",
		"-leader-election-lease-duration=3s"}
	first := s.newCandidate("first", flags...)
	s.waitLeading(first)
	second := s.newCandidate("second", flags...)
	localServices := []*v1alpha1.LocalService{s.Create("one"), s.Create("two")}
	services := func(ctx context.Context) (owned []int, err error) {
		total := 0
		for _, ls := range localServices {
			of, err := s.OwnedServices(ctx, ls)
			if err != nil {
				return nil, err
			}
			owned, total = append(owned, len(of)), total+len(of)
		}
		if total > limit {
			err = framework.Hopeless(fmt.Errorf("there are %d Services", total))
		}
		return owned, err
	}
	s.Eventually("some exist", func(ctx context.Context) error {
		owned, err := services(ctx)
		if err == nil && owned[0]+owned[1] < nodes/5 {
			err = fmt.Errorf("there are %v", owned)
		}
		return err
	})
	first.Kill()
	s.waitLeading(second)
	s.Eventually("one has all, and the other none", func(ctx context.Context) error {
		owned, err := services(ctx)
		if err == nil && max(owned[0], owned[1]) != nodes {
			err = fmt.Errorf("there are %v", owned)
		}
		return err
	})
	for _, ls := range localServices {
		s.WaitLocalService(ls.Name, "is ready, or tells of the limit", func(ls *v1alpha1.LocalService) error {
			if framework.CheckReady(ls) == nil {
				return nil
			}
			return framework.CheckCondition(ls, v1alpha1.ConditionReady, metav1.ConditionFalse,
				v1alpha1.ReasonTooManyServices)
		})
	}
}
