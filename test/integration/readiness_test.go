package integration

import (
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestStatusReadinessOfPods tests that the status follows pods that become ready, become unready, and are deleted, as
// reported by Kubernetes' own controller of EndpointSlices.
func TestStatusReadinessOfPods(t *testing.T) {
	t.Parallel()
	// Nobody renews the nodes' leases. That must not make their pods unready.
	cluster := framework.NewCluster(t, framework.ClusterOptions{
		ControlPlaneOnly: true,
		Args:             []string{"--controllers=*,-node-lifecycle-controller,-taint-eviction-controller"},
	})
	cluster.NewController(t, "-v=4")
	for name, form := range map[string]string{"headless": "", "addresses": addressed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, cluster, "ready")
			f := s.newFence()
			nodes := s.AddNodes("1", "2")
			s.CreateReady("demo", spec(headless, form))
			s.waitReadyNodes("0/2")
			ips := map[string]string{}
			for i, pod := range []string{"a", "b", "c"} { // c is the second one of node 2
				node := nodes[min(i, 1)]
				s.CreatePod(pod, node, app)
				s.WaitLabelled(pod, node)
				ips[pod] = fmt.Sprintf("10.1.0.%d", i+1)
			}
			ready := func(pod string) { s.setPodStatus(pod, ips[pod], "") }
			unready := func(pod string) { s.setPodStatus(pod, ips[pod], "ContainersNotReady") }
			gone := func(pod string) {
				s.Must(s.PodClient().Delete(s.Ctx(), pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
			}
			s.ResetCount()
			for _, step := range []struct {
				do        func(pod string)
				pod, want string
			}{
				{unready, "a", "0/2"},
				{ready, "a", "1/2"},
				{ready, "b", "2/2"},
				{ready, "c", "2/2"},
				{unready, "a", "1/2"},
				{ready, "a", "2/2"},
				{gone, "a", "1/2"},
				{gone, "b", "1/2"},
				{gone, "c", "0/2"},
			} {
				step.do(step.pod)
				f.passPods()
				s.waitReadyNodes(step.want)
			}
			// Ready is about the Services, which exist whether a pod answers or not.
			s.WaitReady("demo")
			s.WantWrites("services", "none")
		})
	}
}

// waitReadyNodes waits until LocalService demo reports a number of nodes with a ready endpoint.
func (s *scene) waitReadyNodes(want string) {
	s.T.Helper()
	s.WaitLocalService("demo", "has "+want+" ready nodes", func(ls *v1alpha1.LocalService) error {
		return errors.Join(
			framework.Equal("status.ready", ls.Status.Ready, want),
			framework.Equal("status.readyNodes", fmt.Sprintf("%d/%d", ls.Status.ReadyNodes, ls.Status.Nodes), want),
		)
	})
}
