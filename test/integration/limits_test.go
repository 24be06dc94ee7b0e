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
