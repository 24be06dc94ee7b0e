package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestStatusReadinessOfPods tests that the status follows pods that become ready, are not any more, and go, as
// Kubernetes' own controller of EndpointSlices tells; and that it does so at most about once a second.
func TestStatusReadinessOfPods(t *testing.T) {
	t.Parallel()
	// Nobody renews the nodes' leases; that must not make their pods unready.
	cluster := framework.NewCluster(t, framework.ClusterOptions{
		ControlPlaneOnly: true,
		Args:             []string{"--controllers=*,-node-lifecycle-controller,-taint-eviction-controller"},
	})
	cluster.NewController(t, "-v=4")
	for name, form := range map[string]change{"headless": func(*v1alpha1.LocalService) {}, "addresses": framework.WithClusterIP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, cluster, "ready")
			f := s.newFence()
			nodes := s.AddNodes("1", "2")
			s.CreateReady("demo", form)
			s.waitReadyNodes("demo", "0/2")
			pods := []string{"a", "b", "c"} // c is the second one of node 2
			ips := map[string]string{}
			for i, pod := range pods {
				node := nodes[min(i, 1)]
				s.CreatePod(pod, node, map[string]string{"app": "demo"})
				s.WaitLabelled(pod, node)
				ips[pod] = fmt.Sprintf("10.1.0.%d", i+1)
			}
			const notReady = "ContainersNotReady"
			steps := []struct {
				name, want string
				do         func()
			}{
				{"a pod runs, and is not ready", "0/2", func() { s.setPodStatus("a", ips["a"], notReady); f.passPods() }},
				{"it becomes ready", "1/2", func() { s.setPodStatus("a", ips["a"], "") }},
				{"so does one on the other node", "2/2", func() { s.setPodStatus("b", ips["b"], "") }},
				{"and a second one there", "2/2", func() { s.setPodStatus("c", ips["c"], "") }},
				{"the only one of a node is not any more", "1/2", func() { s.setPodStatus("a", ips["a"], notReady) }},
				{"it is again", "2/2", func() { s.setPodStatus("a", ips["a"], "") }},
				{"the only one of a node is deleted", "1/2", func() { s.deletePod("a") }},
				{"one of two is deleted", "1/2", func() { s.deletePod("b"); f.passPods() }},
				{"and the other one", "0/2", func() { s.deletePod("c") }},
			}
			for _, step := range steps {
				s.ResetCount()
				step.do()
				s.waitReadyNodes("demo", step.want)
				if writes := s.Requests().Resource("services").Writes(); len(writes) > 0 {
					s.Fatalf("%s: the controller's writes of Services: %s", step.name, writes)
				}
			}
			// Ready is about the Services, which are there whether a pod answers or not.
			s.WaitReady("demo")
			s.MustKubectl("wait", "--for=condition=Ready", "--timeout=2m", "lsvc/demo")
			out := s.MustKubectl("get", "lsvc", "demo", "-o", "jsonpath={.status.ready} {.status.readyNodes} {.status.nodes}")
			if strings.TrimSpace(out) != "0/2 0 2" {
				t.Errorf("kubectl shows %q; want 0/2 0 2", out)
			}
		})
	}
	t.Run("flapping", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, cluster, "flapping")
		nodes := s.AddNodes("1", "2")
		s.CreateReady("demo")
		for i, node := range nodes {
			pod := fmt.Sprint("pod", i)
			s.CreatePod(pod, node, map[string]string{"app": "demo"})
			s.WaitLabelled(pod, node)
			s.setPodStatus(pod, fmt.Sprintf("10.2.0.%d", i+1), "")
		}
		s.waitReadyNodes("demo", "2/2")
		s.ResetCount()
		began, flaps := time.Now(), 0
		for ; time.Since(began) < 5*time.Second; flaps++ {
			s.setPodStatus("pod0", "10.2.0.1", map[bool]string{true: "ContainersNotReady"}[flaps%2 == 0])
		}
		s.setPodStatus("pod0", "10.2.0.1", "")
		s.waitReadyNodes("demo", "2/2")
		elapsed := time.Since(began)
		writes := s.Requests().Resource("localservices/status").Writes()
		slices := s.AllRequests().Namespace(s.Namespace).Resource("endpointslices").Verb("update", "patch")
		t.Logf("%d changes of a pod, %d of EndpointSlices and %d of the status in %v", flaps, len(slices), len(writes), elapsed)
		if most := int(elapsed/time.Second) + 2; len(writes) > most {
			s.Fatalf("the status was written %d times in %v; want at most %d", len(writes), elapsed, most)
		}
		// There may be none: the status is looked at now and then, and may be the same each time.
		if len(slices) <= len(writes) {
			s.Fatalf("nothing to see: %d changes of EndpointSlices, %d of the status", len(slices), len(writes))
		}
		if other := s.Requests().Writes().Where(notAbout("localservices")); len(other) > 0 {
			s.Fatalf("the controller also wrote: %s", other)
		}
	})
}

// deletePod deletes a pod at once.
func (s *scene) deletePod(name string) {
	s.T.Helper()
	s.Must(s.PodClient().Delete(s.Ctx(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
}
