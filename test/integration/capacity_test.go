package integration

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestCapacityFewClusterIPsOfAFamily tests that as many addresses are called free, in a cluster that has a few of IPv4
// and plenty of IPv6, as the API server allocates: there is a Warning with the numbers about Services that need IPv4.
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
	s.Create("four", framework.WithClusterIP)
	ls := s.WaitNotReady("four", v1alpha1.ReasonWriteFailed, "range is full")
	const condition, reason = v1alpha1.ConditionNearCapacity, v1alpha1.ReasonFewClusterIPs
	if err := errors.Join(
		framework.Equal("status.services", int(ls.Status.Services), free),
		framework.CheckCondition(ls, condition, metav1.ConditionTrue, reason),
	); err != nil {
		t.Error(err)
	}
	says := fmt.Sprintf("%d Services still need a cluster IP, and %d addresses are free: ", nodes, free)
	s.waitWarning("four", reason, says)
}
