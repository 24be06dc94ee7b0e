package integration

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// TestAtRest tests that a controller that finds everything in place writes nothing, neither when it starts nor later.
func TestAtRest(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "rest")
	controller := s.NewController(t)
	s.settle()
	s.newFence().passAll()
	s.Must(controller.Stop())

	t.Run("after a restart", func(t *testing.T) {
		s := s.in(t)
		s.ResetCount()
		s.NewController(t)
		s.newFence().passAll()
		s.WantNoWrites("at rest")
	})
	t.Run("with resyncs", func(t *testing.T) {
		s := s.in(t)
		controller := s.NewController(t, "-resync-period=1s")
		s.ResetCount()
		s.waitResyncs(controller, 3)
		s.newFence().passAll()
		s.WantNoWrites("at rest")
	})
}

var localServiceAdds = regexp.MustCompile(`(?m)^workqueue_adds_total\{name="localservice"\} (\d+)$`)

// waitResyncs waits until a controller has synced each LocalService of the scene a number of additional times.
func (s *scene) waitResyncs(controller *framework.Controller, times int) {
	s.T.Helper()
	list, err := s.LocalServiceClient().List(s.Ctx(), metav1.ListOptions{})
	s.Must(err)
	want := 0
	s.Eventually("the queue has had many keys", func(ctx context.Context) error {
		_, metrics, err := controller.Get(ctx, "/metrics")
		if err != nil {
			return err
		}
		m := localServiceAdds.FindStringSubmatch(metrics)
		if m == nil {
			return framework.Hopeless(fmt.Errorf("there is no metric %s in\n%s", localServiceAdds, metrics))
		}
		had, err := strconv.Atoi(m[1])
		if want == 0 {
			want = had + times*len(list.Items)
		}
		if err == nil && had < want {
			err = fmt.Errorf("it has had %d; want %d", had, want)
		}
		return err
	})
}
