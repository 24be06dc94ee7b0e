package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
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
	return s.newCandidateVia(name, func(kubeconfig string) string { return kubeconfig }, args...)
}

// newCandidateVia starts a candidate with a kubeconfig other than that of its service account.
func (s *scene) newCandidateVia(name string, via func(kubeconfig string) string, args ...string) *candidate {
	s.T.Helper()
	shipped, err := framework.ShippedPermissions(framework.ControllerPermissions, framework.HostnamesPermissions)
	s.Must(err)
	args = append([]string{
		"-kubeconfig=" + via(s.NewAccount(s.T, s.Namespace, name, shipped)),
		"-leader-elect", "-leader-election-namespace=" + s.Namespace, "-leader-election-id=lease",
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

// getLease returns the current Lease, and its holder, "" for none.
func (s *scene) getLease() (lease *coordinationv1.Lease, holder string) {
	s.T.Helper()
	lease, err := s.Kube.CoordinationV1().Leases(s.Namespace).Get(s.Ctx(), "lease", metav1.GetOptions{})
	s.Must(err)
	if lease.Spec.HolderIdentity != nil {
		holder = *lease.Spec.HolderIdentity
	}
	return lease, holder
}

// TestLeaderStops tests that the standby, which is as healthy and ready as the leader, continues the work of a leader
// that is stopped, at once but not before the leader has finished. Nothing is created twice, and the last one leaves a
// free Lease behind.
func TestLeaderStops(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "lead")
	const nodes = 500
	s.AddManyNodes(nodes)
	s.ResetCount()
	first := s.newCandidate("first", "-write-concurrency=1") // Slow enough to be stopped in the middle.
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
	_, leader := s.getLease()
	s.Must(first.Stop())
	// It has released the Lease: the standby need not wait until that expires.
	if _, holder := s.getLease(); holder == leader {
		t.Errorf("the leader has stopped and still holds the Lease")
	}
	if len(creates(first)) == nodes {
		t.Fatalf("the leader was not stopped in the middle: all %d Services exist", nodes)
	}
	for _, line := range first.LogLines(s.Namespace + "/") {
		if strings.HasPrefix(line, "E") {
			t.Errorf("the leader that was stopped complained: %s", line)
		}
	}
	s.waitLeading(second)
	s.WaitStatusNodes("demo", nodes)
	s.WantWrites("services", fmt.Sprintf("%d create services 201", nodes))
	if begun, ended := creates(second).First(), creates(first).Last(); begun.Before(ended) {
		t.Errorf("the standby wrote at %v, before the leader had finished, at %v", begun, ended)
	}

	s.Must(second.Stop())
	if _, holder := s.getLease(); holder != "" {
		t.Errorf("%s has stopped and still holds the Lease", holder)
	}
}

// TestLeaderIsCutOff tests that a leader that cannot renew its Lease stops working, and says why it ends. The standby
// takes over when the Lease has expired, as after a crash.
func TestLeaderIsCutOff(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "cutoff")
	const lease = 12 * time.Second // On a busy machine a shorter one may expire.
	var proxy *framework.Proxy
	first := s.newCandidateVia("first", func(kubeconfig string) string {
		proxy = s.NewProxy(t, kubeconfig)
		return proxy.Kubeconfig
	}, "-leader-election-lease-duration="+lease.String())
	s.waitLeading(first)
	second := s.newCandidate("second", "-leader-election-lease-duration="+lease.String())
	proxy.Block()
	exitCode, err := first.Wait()
	s.Must(err)
	const reason = "the Lease was lost to another instance, or could not be renewed in time"
	if exitCode != 1 || len(first.LogLines(reason)) != 1 {
		t.Errorf("the leader ended with exit code %d; want 1, and the reason in its log:\n%s", exitCode, first.Tail(20))
	}
	s.waitLeading(second)
	// The flag bounds how long that takes: the duration of the Lease, and the time until the standby tries again.
	if held, _ := s.getLease(); *held.Spec.LeaseDurationSeconds > int32(lease.Seconds()) {
		t.Errorf("the Lease is one of %d seconds; want at most %v", *held.Spec.LeaseDurationSeconds, lease)
	}
	s.AddNodes("a")
	s.MustOwn(s.CreateReady("demo"), 1)
}
