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

// TestCapacityEnvironmentVariables tests a namespace that gets more Services with a cluster IP than pods can bear as
// environment variables: a Warning and the condition have the numbers before the first such Service is made, and it is
// made all the same. Headless Services, which become no variables, are not warned of.
func TestCapacityEnvironmentVariables(t *testing.T) {
	t.Parallel()
	const stood = 1000
	s := &scene{framework.NewCluster(t, controlPlane()).KeepScene(t, "variables")}
	s.NewController(t, "-v=4")
	f := s.newFence()
	s.AddNodes("a", "b")
	s.InParallel(stood-1, func(i int) error {
		service := framework.NewForeignService(fmt.Sprintf("theirs-%d", i), nil)
		service.Spec.ClusterIP = ""
		_, err := s.ServiceClient().Create(s.Ctx(), service, metav1.CreateOptions{})
		return err
	})
	f.passServices()
	ls := s.CreateReady("headless")
	if err := framework.CheckCondition(ls, v1alpha1.ConditionNearCapacity, metav1.ConditionFalse, v1alpha1.ReasonEnoughCapacity); err != nil {
		t.Error(err)
	}
	s.ResetCount()
	s.Create("demo", framework.WithClusterIP)
	ls = s.WaitReady("demo")
	s.MustOwn(ls, 2)
	const says = "the namespace has 1001 Services with a cluster IP"
	if err := errors.Join(
		framework.CheckCondition(ls, v1alpha1.ConditionNearCapacity, metav1.ConditionTrue, v1alpha1.ReasonManyEnvironmentVariables),
		framework.CheckConditionSays(ls, v1alpha1.ConditionNearCapacity, says),
	); err != nil {
		t.Error(err)
	}
	writes := s.Requests().Writes().Where(notAbout("events"))
	if len(writes) < 3 || framework.Resource(&writes[0]) != "localservices/status" {
		t.Errorf("the first write is not the status, which is to warn before: %s", writes)
	}
	s.WaitEvents("demo", v1alpha1.ReasonManyEnvironmentVariables, "one Warning tells the numbers", framework.OneWarning(says))
}
