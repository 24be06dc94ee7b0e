package integration

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// disks makes four nodes, of which some have the label disk=ssd.
func (s *scene) disks(ssds int) (nodes []string) {
	s.T.Helper()
	for i := range 4 {
		labels := map[string]string{}
		if i < ssds {
			labels["disk"] = "ssd"
		}
		nodes = append(nodes, s.NodeName(fmt.Sprint(i)))
		s.CreateNode(nodes[i], labels)
	}
	return nodes
}

// TestDeletionOfNodesOneByOne tests that the limit is for one change: nodes that leave one after the other are so many
// changes.
func TestDeletionOfNodesOneByOne(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "onebyone")
	s.NewController(t, "-max-delete-fraction=0.5")
	nodes := s.disks(0)
	ls := s.CreateReady("demo")
	for _, node := range nodes[:3] {
		s.DeleteNode(node)
		s.WaitServiceGone("demo-" + node)
	}
	s.WaitServices(ls, "demo-"+nodes[3])
	s.WaitReady("demo")
}

// TestDeletionOfTheOnlyNodeIsHeld tests that the limit is for whatever a deletion comes from, and however small: the
// only node of a LocalService that leaves would take all of its Services with it.
func TestDeletionOfTheOnlyNodeIsHeld(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "only")
	s.NewController(t, "-max-delete-fraction=0.9")
	f := s.newFence()
	nodes := s.AddNodes("a", "b")
	ls := s.CreateReady("demo", func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector["disk"] = "ssd" })
	s.PatchNode(nodes[0], `{"metadata":{"labels":{"disk":"ssd"}}}`)
	s.WaitServices(ls, "demo-"+nodes[0])
	s.WaitReady("demo")
	s.ResetCount()
	s.DeleteNode(nodes[0])
	s.WaitNotReady("demo", v1alpha1.ReasonDeletionHeld, "1 of 1 Services")
	f.passServices()
	f.passLocalServices()
	s.WantWrites("services", "none")
	// When another node comes in its place, half of the Services are wanted, and the other half may go.
	s.PatchNode(nodes[1], `{"metadata":{"labels":{"disk":"ssd"}}}`)
	s.WaitServices(ls, "demo-"+nodes[1])
	s.WaitReady("demo")
}

// TestCapacityMaxServicesPerNamespace tests that a namespace is not filled beyond its limit, and not half way either.
func TestCapacityMaxServicesPerNamespace(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "toomany")
	s.NewController(t, "-max-services-per-namespace=5")
	f := s.newFence()
	s.disks(3)
	for i := range 2 {
		s.CreateService(framework.NewForeignService(fmt.Sprintf("foreign-%d", i), nil))
	}
	f.passNodes()
	f.passServices()
	s.ResetCount()
	s.Create("demo")
	s.WaitNotReady("demo", v1alpha1.ReasonTooManyServices, "the namespace would have 6")
	f.passLocalServices()
	s.WantWrites("services", "none")
	s.Update("demo", framework.OnNodesWith("disk", "ssd"))
	s.MustOwn(s.WaitReady("demo"), 3)
	// It does not take away what there is, and follows changes.
	s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].Port = 81 })
	s.WaitReady("demo")
	s.WantWrites("services", "3 create services 201, 3 patch services 200")
}

// waitReadyNodes waits until a LocalService says that so many of its nodes have a ready endpoint.
func (s *scene) waitReadyNodes(name, want string) {
	s.T.Helper()
	s.WaitLocalService(name, name+" has "+want+" ready nodes", func(ls *v1alpha1.LocalService) error {
		return errors.Join(
			framework.Equal("status.ready", ls.Status.Ready, want),
			framework.Equal("status.readyNodes", fmt.Sprintf("%d/%d", ls.Status.ReadyNodes, ls.Status.Nodes), want),
		)
	})
}

func TestProfiling(t *testing.T) {
	t.Parallel()
	controller := solo(t).NewController(t, "-profiling")
	status, body, err := controller.Get(t.Context(), "/debug/pprof/")
	if err != nil || status != http.StatusOK || !strings.Contains(body, "goroutine") {
		t.Errorf("/debug/pprof/: %d %v %s", status, err, body)
	}
}
