package integration

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// settle fills a scene with one of everything, in a cluster where a controller runs, and waits until all is in place.
func (s *scene) settle() {
	s.T.Helper()
	nodes := s.AddNodes("a", "b", "c", "ip-10-0-0-3.ec2.internal", strings.Repeat("x", 70))
	changes := map[string]change{
		"headless":     func(*v1alpha1.LocalService) {},
		"cluster-ip":   framework.WithClusterIP,
		"node-port":    framework.OfType(corev1.ServiceTypeNodePort),
		"no-nodes":     func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = map[string]string{"no": "node"} },
		"no-ports":     func(ls *v1alpha1.LocalService) { ls.Spec.Ports = nil },
		"dual-stack":   func(ls *v1alpha1.LocalService) { ls.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack) },
		"load-balance": everyField,
	}
	for name, c := range changes {
		s.Create(name, c)
	}
	for name := range changes {
		s.WaitReady(name)
	}
	s.CreateService(framework.NewForeignService("taken-"+nodes[0], nil))
	s.Create("taken")
	s.waitConflict("taken", len(nodes), 1)
	for i, node := range nodes {
		s.CreatePod(fmt.Sprintf("pod-%d", i), node, map[string]string{"app": "headless"})
		s.WaitLabelled(fmt.Sprintf("pod-%d", i), node)
	}
}

// everyField is the change to a LocalService that leaves no field to defaults.
func everyField(ls *v1alpha1.LocalService) {
	ls.Spec = v1alpha1.LocalServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer,
		Ports: []v1alpha1.ServicePort{
			{Name: "web", Port: 80, Protocol: corev1.ProtocolTCP, AppProtocol: new("kubernetes.io/h2c")},
			{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP},
		},
		Selector:                      map[string]string{"app": ls.Name, "tier": "web"},
		SessionAffinity:               corev1.ServiceAffinityClientIP,
		SessionAffinityConfig:         &v1alpha1.SessionAffinityConfig{ClientIP: &v1alpha1.ClientIPConfig{TimeoutSeconds: new(int32(60))}},
		PublishNotReadyAddresses:      true,
		InternalTrafficPolicy:         new(corev1.ServiceInternalTrafficPolicyLocal),
		ExternalTrafficPolicy:         corev1.ServiceExternalTrafficPolicyLocal,
		IPFamilies:                    []corev1.IPFamily{corev1.IPv4Protocol},
		IPFamilyPolicy:                new(corev1.IPFamilyPolicySingleStack),
		TrafficDistribution:           new("PreferSameNode"),
		LoadBalancerClass:             new("example.com/fast"),
		LoadBalancerSourceRanges:      []string{"192.0.2.0/24", "2001:db8::/32"},
		AllocateLoadBalancerNodePorts: new(false),
		NodeSelector:                  ls.Spec.NodeSelector,
		ServiceMetadata: &v1alpha1.ServiceMetadata{
			Labels:      map[string]string{"team": "infra"},
			Annotations: map[string]string{"example.com/note": "hello"},
		},
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

// TestChangesWhileStopped tests that a controller that is started finds what has happened before, and writes no more
// than that.
func TestChangesWhileStopped(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "meanwhile")
	controller := s.NewController(t)
	nodes := s.AddNodes("a", "b", "c")
	s.CreateReady("nodes")
	s.CreateReady("spec")
	s.CreateReady("edited")
	s.CreateReady("at-rest", func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector["kubernetes.io/os"] = "linux" })
	gone := s.CreateReady("gone")
	s.Must(controller.Stop())

	s.DeleteNode(nodes[0])
	s.AddNodes("d")
	s.Update("spec", func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].Port = 81 })
	s.EditService("edited-"+nodes[1], func(service *corev1.Service) { service.Spec.Selector = nil })
	s.DeleteService("edited-" + nodes[2])
	s.Must(s.LocalServiceClient().Delete(s.Ctx(), gone.Name, metav1.DeleteOptions{}))
	s.CreatePod("pod", nodes[1], map[string]string{"app": "nodes"})
	s.ResetCount()

	s.NewController(t)
	for _, name := range []string{"nodes", "spec", "edited"} {
		s.WaitStatusNodes(name, 3)
	}
	s.WaitLabelled("pod", nodes[1])
	s.newFence().passAll()
	writes := s.Requests().Writes()
	for what, want := range map[string]struct {
		got  framework.Requests
		want string
	}{
		// A node has come and one has gone for each of three LocalServices, and one Service was deleted by hand.
		"creates": {writes.Resource("services").Verb("create"), "4 create services 201"},
		"deletes": {writes.Resource("services").Verb("delete"), "3 delete services 200"},
		// The two that are left of LocalService "spec", and the one that was edited.
		"patches": {writes.Resource("services").Verb("patch"), "3 patch services 200"},
		"pods":    {writes.Resource("pods"), "1 patch pods 200"},
	} {
		if err := framework.Equal(what, want.got.String(), want.want); err != nil {
			t.Error(err)
		}
	}
}

// pause stops a controller's process, so that it hears of what happens meanwhile all at once: what it watches comes on
// several connections, and the order among these is anybody's guess. It goes on when resume is called.
func (s *scene) pause(controller *framework.Controller) (resume func()) {
	s.T.Helper()
	s.Must(controller.Signal(syscall.SIGSTOP))
	resume = func() { s.Must(controller.Signal(syscall.SIGCONT)) }
	s.T.Cleanup(resume)
	return resume
}

// TestDeletionBehindItsBack tests that a controller that hears of the end of Services before it hears of the end of
// their LocalServices does no harm: what was orphaned stays, and what was deleted is gone in the end.
func TestDeletionBehindItsBack(t *testing.T) {
	t.Parallel()
	const localServices, nodes = 8, 5
	orphan, background := metav1.DeletePropagationOrphan, metav1.DeletePropagationBackground
	cluster := solo(t)
	for i, policy := range []metav1.DeletionPropagation{orphan, orphan, orphan, background} { // Chance has a part in it.
		t.Run(fmt.Sprintf("%s-%d", policy, i), func(t *testing.T) {
			s := newScene(t, cluster, "behind")
			controller := s.NewController(t)
			f := s.newFence()
			s.AddManyNodes(nodes)
			name := func(i int) string { return fmt.Sprintf("demo%d", i) }
			for i := range localServices {
				s.Create(name(i))
			}
			for i := range localServices {
				s.WaitReady(name(i))
			}
			f.passLocalServices()

			resume := s.pause(controller)
			for i := range localServices {
				s.Must(s.LocalServiceClient().Delete(s.Ctx(), name(i), metav1.DeleteOptions{PropagationPolicy: &policy}))
			}
			for i := range localServices {
				s.WaitLocalServiceGone(name(i))
			}
			want := localServices * nodes
			if policy == background {
				want = 0
				s.WaitServiceCount(0)
			}
			resume()
			f.passAll()
			// The garbage collector, too, has to look at all that was written by mistake.
			s.WaitServiceCount(want)
			f.passAll()
			s.WaitServiceCount(want)
		})
	}
}

// TestTwoControllersDoNotFight tests that two controllers that both work, as without leader election they may, come to
// the same result and rest.
func TestTwoControllersDoNotFight(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "two")
	s.NewController(t)
	s.NewController(t)
	f := s.newFence()
	s.settle()
	f.passAll()
	s.ResetCount()
	f.passAll()
	s.WantNoWrites("at rest")
	s.Update("headless", func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].Port = 81 })
	s.WaitReady("headless")
	f.passAll()
	s.ResetCount()
	f.passAll()
	s.WantNoWrites("at rest after a change")
}

var localServiceAdds = regexp.MustCompile(`(?m)^workqueue_adds_total\{name="localservice"\} (\d+)$`)

// queued is how many times a LocalService has been put into a controller's queue.
func queued(ctx context.Context, controller *framework.Controller) (int, error) {
	_, metrics, err := controller.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	m := localServiceAdds.FindStringSubmatch(metrics)
	if m == nil {
		return 0, fmt.Errorf("there is no metric %s in\n%s", localServiceAdds, metrics)
	}
	return strconv.Atoi(m[1])
}

func (s *scene) mustQueued(controller *framework.Controller) int {
	s.T.Helper()
	n, err := queued(s.Ctx(), controller)
	s.Must(err)
	return n
}

// waitResyncs waits until a controller has looked at each LocalService of the scene so many times more.
func (s *scene) waitResyncs(controller *framework.Controller, times int) {
	s.T.Helper()
	list, err := s.LocalServiceClient().List(s.Ctx(), metav1.ListOptions{})
	s.Must(err)
	want := s.mustQueued(controller) + times*len(list.Items)
	s.Eventually(fmt.Sprintf("the queue has had %d keys", want), func(ctx context.Context) error {
		n, err := queued(ctx, controller)
		if err == nil && n < want {
			err = fmt.Errorf("it has had %d", n)
		}
		return err
	})
}

// TestStoppedInTheMiddle tests that a controller that is told to stop during a large fan-out stops soon and cleanly,
// and that the next one makes what is missing, and nothing twice.
func TestStoppedInTheMiddle(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "stop")
	const nodes = 300
	s.AddManyNodes(nodes)
	s.Create("demo")
	s.ResetCount()
	// Slow enough to be stopped in the middle.
	controller := s.NewController(t, "-write-concurrency=1")
	s.Eventually("some Services exist", func(context.Context) error {
		if made := len(s.Requests().Resource("services").Verb("create")); made < nodes/10 {
			return fmt.Errorf("there are %d", made)
		}
		return nil
	})
	s.Must(controller.Stop())
	made := len(s.Requests().Resource("services").Verb("create"))
	if made == nodes {
		t.Fatalf("the controller was not stopped in the middle: all %d Services exist", made)
	}
	t.Logf("stopped after %d of %d Services", made, nodes)
	for _, line := range controller.LogLines("E") {
		if strings.HasPrefix(line, "E") {
			t.Errorf("the controller that was stopped complained: %s", line)
		}
	}

	next := s.NewController(t)
	s.WaitStatusNodes("demo", nodes)
	s.WantWrites("services", fmt.Sprintf("%d create services 201", nodes))
	s.Must(next.Stop())
}
