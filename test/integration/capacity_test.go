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

// TestCapacityFewClusterIPsOfAFamily tests what is said of the addresses in a cluster that has a few of IPv4 and plenty
// of IPv6: a Warning with the numbers comes before the first Service for those that need IPv4, and none for those that
// do not.
func TestCapacityFewClusterIPsOfAFamily(t *testing.T) {
	t.Parallel()
	cluster := framework.NewCluster(t, dualStack("10.96.0.0/28,fd00:10:96::/112")) // 14 and 65,535 addresses
	cluster.NewController(t, "-v=4")
	s := newScene(t, cluster, "family")
	const nodes = 20
	s.AddManyNodes(nodes)
	used, err := s.Kube.CoreV1().Services(metav1.NamespaceAll).List(s.Ctx(), metav1.ListOptions{})
	s.Must(err)
	free := 14
	for i := range used.Items {
		if used.Items[i].Spec.ClusterIP != corev1.ClusterIPNone {
			free--
		}
	}

	t.Run("too few", func(t *testing.T) {
		s := s.in(t)
		s.ResetCount()
		s.Create("four", framework.WithClusterIP)
		ls := s.WaitNotReady("four", v1alpha1.ReasonWriteFailed, "range is full")
		if err := errors.Join(
			framework.Equal("status.services", int(ls.Status.Services), free),
			framework.CheckCondition(ls, v1alpha1.ConditionNearCapacity, metav1.ConditionTrue, v1alpha1.ReasonFewClusterIPs),
			framework.CheckConditionSays(ls, v1alpha1.ConditionNearCapacity, "use headless Services (clusterIP: None)"),
		); err != nil {
			t.Error(err)
		}
		s.Eventually("a Warning told the numbers before", func(ctx context.Context) error {
			creates := s.Requests().Resource("services").Verb("create")
			events, err := s.Events(ctx, "four", v1alpha1.ReasonFewClusterIPs)
			if err != nil {
				return err
			}
			says := fmt.Sprintf("%d Services still need a cluster IP, and %d addresses are free: use headless Services (clusterIP: None), or add a ServiceCIDR", nodes, free)
			for i := range events {
				if events[i].Message != says {
					continue
				}
				if len(creates) > 0 && creates.First().Before(events[i].EventTime.Time) {
					return errors.New("it came after the first Service")
				}
				return framework.Equal("type", events[i].Type, corev1.EventTypeWarning)
			}
			return fmt.Errorf("none of %d events says %q", len(events), says)
		})
		s.Update("four", func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = corev1.ClusterIPNone })
		s.MustOwn(s.WaitReady("four"), nodes)
		s.Must(s.LocalServiceClient().Delete(s.Ctx(), "four", metav1.DeleteOptions{}))
		s.WaitServiceCount(0)
	})
	t.Run("plenty", func(t *testing.T) {
		s := s.in(t)
		s.Create("six", framework.WithClusterIP, func(ls *v1alpha1.LocalService) {
			ls.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
		})
		ls := s.WaitReady("six")
		s.MustOwn(ls, nodes)
		if err := framework.CheckCondition(ls, v1alpha1.ConditionNearCapacity, metav1.ConditionFalse, v1alpha1.ReasonEnoughCapacity); err != nil {
			t.Error(err)
		}
		events, err := s.Events(s.Ctx(), "six", v1alpha1.ReasonFewClusterIPs)
		s.Must(err)
		if len(events) > 0 {
			t.Errorf("a Warning although there are enough addresses: %s", events[0].Message)
		}
	})
}
