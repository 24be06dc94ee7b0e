package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// candidate is a controller that takes part in a leader election. A service account of its own identifies its
// requests.
type candidate struct {
	*framework.Controller
	user string
}

// newCandidate starts a candidate in the scene's own election.
func (s *scene) newCandidate(name string, args ...string) *candidate {
	s.T.Helper()
	args = append([]string{
		"-kubeconfig=" + s.NewAccount(s.T, s.Namespace, name, allShipped(s.T)),
		"-leader-elect", "-leader-election-namespace=" + s.Namespace,
	}, args...)
	c := &candidate{s.LaunchController(s.T, args...), "system:serviceaccount:" + s.Namespace + ":" + name}
	s.Must(c.WaitReady(s.Ctx()))
	return c
}

// waitLeading waits until a candidate leads.
func (s *scene) waitLeading(c *candidate) {
	s.T.Helper()
	if _, err := c.WaitLog(s.Ctx(), `"Leading"`); err != nil {
		s.Fatalf("%v", err)
	}
}

// by returns the requests of a candidate since the count was reset.
func (s *scene) by(c *candidate) framework.Requests {
	return s.AllRequests().Where(func(r *framework.Request) bool { return r.User.Username == c.user })
}

// TestLeaderStops tests that the standby, which is as healthy and ready as the leader, continues the work of a leader
// that is stopped. Nothing is created twice. When the Lease is given back is tested in internal/app.
func TestLeaderStops(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "lead")
	const nodes = 500
	s.AddManyNodes(nodes)
	s.ResetCount()
	// Slow enough to be stopped in the middle.
	first := s.newCandidate("first", "-write-concurrency=1", "-leader-election-lease-duration=30s")
	s.waitLeading(first)
	second := s.newCandidate("second")
	if _, err := second.WaitLog(s.Ctx(), `"Standing by"`, "leader="); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*candidate{"leader": first, "standby": second} {
		for _, path := range []string{"/healthz", "/readyz"} {
			if status, body, err := c.Get(s.Ctx(), path); err != nil || status != http.StatusOK {
				t.Errorf("%s of the %s: %d %s %v", path, name, status, body, err)
			}
		}
	}
	creates := func(c *candidate) framework.Requests { return s.by(c).Resource("services").Verb("create") }
	s.Create("demo")
	s.Eventually("some Services exist", func(context.Context) error {
		if made := len(creates(first)); made < 20 {
			return fmt.Errorf("there are %d", made)
		}
		return nil
	})
	lease, err := s.Kube.CoordinationV1().Leases(s.Namespace).Get(s.Ctx(), framework.ControllerAccount,
		metav1.GetOptions{})
	s.Must(err)
	// The flag also bounds the time until the standby tries again.
	s.Must(framework.Equal("seconds of the Lease", *lease.Spec.LeaseDurationSeconds, 25))
	s.Must(first.Stop())
	if len(creates(first)) == nodes {
		t.Fatalf("the leader was not stopped in the middle: all %d Services exist", nodes)
	}
	for _, line := range first.LogLines(s.Namespace + "/") {
		// client-go logs a renewal of the Lease that the stop has canceled.
		isRenewal := strings.Contains(line, `"Error retrieving lease lock" err="context canceled"`)
		if strings.HasPrefix(line, "E") && !isRenewal {
			t.Errorf("the leader that was stopped complained: %s", line)
		}
	}
	s.waitLeading(second)
	s.WaitStatusNodes("demo", nodes)
	s.WantWrites("services", fmt.Sprintf("%d create services 201", nodes))
}
