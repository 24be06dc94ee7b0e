package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// settle fills a scene with one of everything, in a cluster where a controller runs, and waits until all is in place.
func (s *scene) settle() {
	s.T.Helper()
	nodes := s.AddNodes("a", "b", "c", "ip-10-0-0-3.ec2.internal", strings.Repeat("x", 70))
	fields := map[string]string{
		"headless":     "",
		"cluster-ip":   addressed,
		"node-port":    nodePorts,
		"no-nodes":     "nodeSelector: {no: node}",
		"no-ports":     "ports: null",
		"dual-stack":   "ipFamilyPolicy: PreferDualStack",
		"load-balance": addressed + ", " + everyField,
	}
	for name, different := range fields {
		s.Create(name, spec(headless, different))
	}
	for name := range fields {
		s.WaitReady(name)
	}
	s.CreateService(framework.NewForeignService("taken-"+nodes[0], nil))
	s.Create("taken")
	s.WaitNotReady("taken", v1alpha1.ReasonNameTaken, "")
	for i, node := range nodes {
		s.CreatePod(fmt.Sprintf("pod-%d", i), node, app)
		s.WaitLabelled(fmt.Sprintf("pod-%d", i), node)
	}
}

// TestAtRest tests that a controller that finds everything in place writes nothing, and that the log of the one before,
// which has worked without errors, is short: with each warning that the API server sends with the Service of every node
// at most once.
func TestAtRest(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "rest")
	controller := s.NewController(t)
	s.settle()
	s.CreateReady("close", spec(headless, "trafficDistribution: PreferClose"))
	s.newFence().passAll()
	s.Must(controller.Stop())
	// The lines of the mutation detector, which only tests enable, of writes and of conditions do not count.
	lines := slices.DeleteFunc(controller.LogLines(""), func(line string) bool {
		return strings.Contains(line, "Mutation detector") || strings.Contains(line, "Services written") ||
			strings.Contains(line, "Condition changed")
	})
	if warnings := controller.LogLines("PreferClose"); len(lines) > 6 || len(warnings) > 1 {
		t.Errorf("the log has %d lines although nothing needs attention:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	s.ResetCount()
	s.NewController(t)
	s.newFence().passAll()
	s.WantNoWrites("at rest")
}
