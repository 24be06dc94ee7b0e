package integration

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// candidate is a controller that takes part in a leader election, with a service account of its own, by which its
// requests are known.
type candidate struct {
	*framework.Controller
	user string
}

// newCandidate starts a candidate in the scene's own election.
func (s *scene) newCandidate(name string, args ...string) *candidate {
	s.T.Helper()
	return s.newCandidateVia(name, func(kubeconfig string) string { return kubeconfig }, args...)
}

// newCandidateVia starts a candidate with another kubeconfig than that of its service account.
func (s *scene) newCandidateVia(name string, via func(kubeconfig string) string, args ...string) *candidate {
	s.T.Helper()
	s.MustKubectl("create", "serviceaccount", name)
	binding := s.Namespace + "-" + name
	s.MustKubectl("create", "clusterrolebinding", binding, "--clusterrole=cluster-admin", "--serviceaccount="+s.Namespace+":"+name)
	args = append([]string{
		"-kubeconfig=" + via(s.AccountKubeconfig(s.T, s.Namespace, name)),
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

// by are the requests of a candidate since the count was reset.
func (s *scene) by(c *candidate) framework.Requests {
	return s.AllRequests().Where(func(r *framework.Request) bool { return r.User.Username == c.user })
}

// waitLease waits until the Lease is as check wants it.
func (s *scene) waitLease(what string, check func(lease *coordinationv1.Lease) error) {
	s.T.Helper()
	s.Eventually(what, func(ctx context.Context) error {
		lease, err := s.Kube.CoordinationV1().Leases(s.Namespace).Get(ctx, "lease", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return check(lease)
	})
}

func (s *scene) getLease() *coordinationv1.Lease {
	s.T.Helper()
	lease, err := s.Kube.CoordinationV1().Leases(s.Namespace).Get(s.Ctx(), "lease", metav1.GetOptions{})
	s.Must(err)
	return lease
}

func isReleased(lease *coordinationv1.Lease) error {
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		return fmt.Errorf("it is held by %s", *holder)
	}
	return nil
}

// TestLeaderStops tests that the standby goes on where a leader that is told to stop has left off, at once and not
// before the leader has finished, and that the last one leaves a free Lease behind.
func TestLeaderStops(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "lead")
	const nodes = 200
	s.AddManyNodes(nodes)
	s.ResetCount()
	first := s.newCandidate("first", "-write-concurrency=1")
	s.waitLeading(first)
	second := s.newCandidate("second")
	if _, err := second.WaitLog(s.Ctx(), `"Standing by"`, "leader="); err != nil {
		t.Fatal(err)
	}
	s.Create("demo")
	s.Eventually("some Services exist", func(context.Context) error {
		if made := len(s.by(first).Resource("services").Verb("create")); made < nodes/10 {
			return fmt.Errorf("there are %d", made)
		}
		return nil
	})
	if writes := s.by(second).Writes(); len(writes) > 0 {
		t.Errorf("the standby wrote: %s", writes)
	}
	holder := *s.getLease().Spec.HolderIdentity
	s.Must(first.Stop())
	// It has given the Lease back: the standby need not wait until that runs out.
	if lease := s.getLease(); lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == holder {
		t.Errorf("the leader has stopped and still holds the Lease: %+v", lease.Spec)
	}
	s.waitLeading(second)
	s.WaitStatusNodes("demo", nodes)
	s.WantWrites("services", fmt.Sprintf("%d create services 201", nodes))

	s.Must(second.Stop())
	s.waitLease("the Lease is free", isReleased)
}

// TestLeaderFinishesItsWrites tests that a leader that is told to stop keeps the Lease until its last write has been
// answered, so that never two work at a time.
func TestLeaderFinishesItsWrites(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "finish")
	first := s.newCandidate("first", "-write-concurrency=1")
	s.waitLeading(first)
	second := s.newCandidate("second")
	s.AddNodes("a", "b")
	arrived, release := s.holdNewServices()
	s.Create("demo")
	<-arrived
	s.ResetCount()
	s.Must(first.Signal(syscall.SIGTERM))
	s.Eventually("the standby has asked for the Lease some times", func(context.Context) error {
		if n := len(s.by(second).Resource("leases").Verb("get")); n < 3 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	if !first.Running() || len(second.LogLines(`"Leading"`)) > 0 {
		s.Fatalf("the leader is running: %t, and the standby has begun to lead, while a write of the leader is under way", first.Running())
	}
	release()
	exitCode, err := first.Wait()
	s.Must(err)
	if exitCode != 0 {
		t.Errorf("the leader ended with exit code %d:\n%s", exitCode, first.Tail(20))
	}
	s.waitLeading(second)
	s.MustOwn(s.WaitReady("demo"), 2)
}

// holdNewServices has the API server not answer requests to create Services in the scene's namespace until release is
// called. Each such request is told in arrived.
func (s *scene) holdNewServices() (arrived <-chan struct{}, release func()) {
	s.T.Helper()
	arrivals, held := make(chan struct{}, 1), make(chan struct{})
	var called atomic.Bool
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		called.Store(true)
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "this is no review", http.StatusBadRequest)
			return
		}
		if dryRun := review.Request.DryRun; dryRun == nil || !*dryRun {
			select {
			case arrivals <- struct{}{}:
			default: // One is enough to know.
			}
			<-held
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review) // The API server notices if it does not get it.
	}))
	release = sync.OnceFunc(func() { close(held) })
	s.T.Cleanup(webhook.Close)
	s.T.Cleanup(release)
	configurations := s.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := configurations.Create(s.Ctx(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "hold.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      &webhook.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.Namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"services"}},
			}},
			FailurePolicy:           new(admissionregistrationv1.Fail),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNoneOnDryRun),
			TimeoutSeconds:          new(int32(30)),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.T.Cleanup(func() {
		if err := configurations.Delete(context.Background(), s.Namespace, metav1.DeleteOptions{}); err != nil {
			s.T.Logf("clean up after the test: %v", err)
		}
	})
	s.Eventually("the webhook is called, which takes the API server a moment", func(ctx context.Context) error {
		_, err := s.ServiceClient().Create(ctx, framework.NewForeignService("any", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && !called.Load() {
			err = errors.New("it was not")
		}
		return err
	})
	return arrivals, release
}

// TestLeaderCrashes tests that the standby takes over when the Lease has run out.
func TestLeaderCrashes(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "crash")
	const lease = 6 * time.Second
	first := s.newCandidate("first", "-leader-election-lease-duration="+lease.String())
	s.waitLeading(first)
	second := s.newCandidate("second", "-leader-election-lease-duration="+lease.String())
	first.Kill()
	s.AddNodes("a")
	s.Create("demo")
	s.waitLeading(second)
	// The flag bounds how long that takes: what the Lease lasts, and the time until the standby asks again.
	if got := *s.getLease().Spec.LeaseDurationSeconds; got > int32(lease.Seconds()) {
		t.Errorf("the Lease is one of %d seconds; want at most %v", got, lease)
	}
	s.MustOwn(s.WaitReady("demo"), 1)
}

// TestLeaderIsCutOff tests that a leader that cannot renew its Lease stops working, and says why it ends.
func TestLeaderIsCutOff(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "cutoff")
	const lease = 6 * time.Second
	var proxy *framework.Proxy
	first := s.newCandidateVia("first", func(kubeconfig string) string {
		proxy = s.NewProxy(t, kubeconfig)
		proxy.Listen(t)
		return proxy.Kubeconfig
	}, "-leader-election-lease-duration="+lease.String())
	s.waitLeading(first)
	second := s.newCandidate("second", "-leader-election-lease-duration="+lease.String())
	proxy.Block()
	exitCode, err := first.Wait()
	s.Must(err)
	if exitCode != 1 || len(first.LogLines("the Lease was lost to another instance, or could not be renewed in time")) != 1 {
		t.Errorf("the leader ended with exit code %d; want 1, and the reason in its log:\n%s", exitCode, first.Tail(20))
	}
	s.waitLeading(second)
	s.AddNodes("a")
	s.MustOwn(s.CreateReady("demo"), 1)
}

// TestLeaderHealth tests that a standby is as healthy and ready as a leader.
func TestLeaderHealth(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "health")
	first := s.newCandidate("first")
	s.waitLeading(first)
	second := s.newCandidate("second")
	for name, c := range map[string]*candidate{"leader": first, "standby": second} {
		for _, path := range []string{"/healthz", "/readyz"} {
			if status, body, err := c.Get(s.Ctx(), path); err != nil || status != 200 || !strings.HasPrefix(body, "ok") {
				t.Errorf("%s of the %s: %d %s", path, name, status, errors.Join(err, errors.New(body)))
			}
		}
	}
	// A standby that is told to stop does so at once, and leaves the Lease to its holder.
	s.Must(second.Stop())
	s.waitLease("the Lease is still held", func(lease *coordinationv1.Lease) error {
		if isReleased(lease) == nil {
			return errors.New("it is free")
		}
		return nil
	})
}
