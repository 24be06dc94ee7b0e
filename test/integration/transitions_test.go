package integration

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// dualStack is a control plane that has addresses of both families for Services, IPv4 first.
func dualStack() framework.ClusterOptions {
	options := framework.ControlPlane()
	options.Args = append(options.Args, dualStackRanges)
	return options
}

const dualStackRanges = "--apiserver-flag=--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112"

// step is a change of some fields of a LocalService, with the families of its Services afterwards, and the kind of
// write.
type step struct {
	fields, families string
	how              transition
}

// The same walk for Services with addresses and for headless ones.
var stackSteps = []step{
	{"ipFamilyPolicy: PreferDualStack", "IPv4 IPv6", inPlace},
	{"ipFamilyPolicy: RequireDualStack", "IPv4 IPv6", inPlace},
	{"ipFamilyPolicy: SingleStack", "IPv4", inPlace},
	{"", "IPv4", nothing},
	{"ipFamilies: [IPv4, IPv6]", "IPv4 IPv6", inPlace},
	{"ipFamilies: [IPv4, IPv6], ipFamilyPolicy: PreferDualStack", "IPv4 IPv6", inPlace},
	{"ipFamilies: [IPv4], ipFamilyPolicy: PreferDualStack", "IPv4 IPv6", nothing},
	{"ipFamilies: [IPv4], ipFamilyPolicy: SingleStack", "IPv4", inPlace},
	{"ipFamilies: [IPv6]", "IPv6", replaced},
	{"ipFamilies: [IPv6], ipFamilyPolicy: PreferDualStack", "IPv6 IPv4", inPlace},
	{"ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack", "IPv4 IPv6", replaced},
	{"ipFamilies: [IPv6, IPv4], ipFamilyPolicy: RequireDualStack", "IPv6 IPv4", replaced},
	{"", "IPv6", inPlace}, // Whatever the first is stays.
	{"ipFamilies: [IPv4]", "IPv4", replaced},
}

var typeSteps = []step{
	{"clusterIP: None", "IPv4", replaced},
	{"clusterIP: None, ipFamilyPolicy: RequireDualStack", "IPv4 IPv6", inPlace},
	{"ipFamilyPolicy: RequireDualStack", "IPv4 IPv6", replaced},
	{"type: NodePort, ipFamilyPolicy: RequireDualStack", "IPv4 IPv6", inPlace},
	{"type: LoadBalancer, ipFamilyPolicy: RequireDualStack", "IPv4 IPv6", inPlace},
	{"type: LoadBalancer, ipFamilyPolicy: RequireDualStack, loadBalancerClass: a/fast", "IPv4 IPv6", replaced},
	{"type: LoadBalancer, ipFamilyPolicy: RequireDualStack, loadBalancerClass: a/cheap", "IPv4 IPv6", replaced},
	{"type: LoadBalancer", "IPv4", inPlace}, // The class stays.
	{"type: NodePort, ipFamilyPolicy: PreferDualStack", "IPv4 IPv6", inPlace},
	{"ipFamilyPolicy: PreferDualStack", "IPv4 IPv6", inPlace},
	{"type: LoadBalancer, loadBalancerClass: a/fast, ipFamilyPolicy: PreferDualStack", "IPv4 IPv6", inPlace},
	{"ipFamilyPolicy: PreferDualStack, type: ClusterIP", "IPv4 IPv6", inPlace},
	{"type: LoadBalancer", "IPv4", inPlace},
	{"clusterIP: None", "IPv4", replaced},
	{"type: NodePort", "IPv4", replaced},
}

// TestImmutableTransitions walks LocalServices through the changes that concern address families, types and classes of
// load balancers: what the API server allows is done in place, with one write for each Service, and everything else by
// replacing the Services. Each time an event reports that, although recorders may merge events that look like
// repetitions.
func TestImmutableTransitions(t *testing.T) {
	t.Parallel()
	cluster := framework.NewCluster(t, dualStack())
	cluster.NewController(t, "-v=4")
	for _, walk := range []struct {
		name, from string
		steps      []step
	}{
		{"families of Services with addresses", addressed, stackSteps},
		{"families of headless Services", "", stackSteps},
		{"types", addressed, typeSteps},
	} {
		t.Run(walk.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, cluster, "stacks")
			f := s.newFence()
			s.AddNodes("a", "b")
			s.CreateReady("demo", spec(headless, walk.from))
			f.passServices()
			for _, step := range walk.steps {
				for _, service := range s.transit(f, step.how, headless, walk.from, step.fields) {
					if got := strings.Trim(fmt.Sprint(service.Spec.IPFamilies), "[]"); got != step.families {
						s.Fatalf("%s: %s has families %s; want %s", step.fields, service.Name, got, step.families)
					}
					isHeadless := service.Spec.ClusterIP == corev1.ClusterIPNone
					if ips := service.Spec.ClusterIPs; !isHeadless && len(ips) != len(service.Spec.IPFamilies) {
						s.Fatalf("%s: Service %s has addresses %v; want one of each of its families",
							step.fields, service.Name, ips)
					}
				}
			}
			s.ResetCount()
			f.passAll()
			s.WantNoWrites("at rest")
		})
	}
}

// transition is how Services follow a change of their LocalService.
type transition string

const (
	nothing  transition = "nothing to do"
	inPlace  transition = "in place"
	replaced transition = "replaced"
)

// transit changes the spec of LocalService demo. It fails unless its Services follow in the right way, each by one
// write or by one replacement, they keep what was allocated for them, and the controller is at rest afterwards.
func (s *scene) transit(f *fence, want transition, fields ...string) map[string]*corev1.Service {
	s.T.Helper()
	what := fields[len(fields)-1]
	ls, err := s.LocalServiceClient().Get(s.Ctx(), "demo", metav1.GetOptions{})
	s.Must(err)
	before := s.MustOwn(ls, int(ls.Status.Nodes))
	told, err := s.told(s.Ctx(), "demo")
	s.Must(err)
	s.ResetCount()
	s.Update("demo", spec(fields...))
	ls = s.WaitReady("demo")
	after := s.MustOwn(ls, len(before))
	for name, now := range after {
		was := before[name]
		if got := now.UID != was.UID; got != (want == replaced) {
			s.Fatalf("%s: Service %s was replaced: %t; want %s", what, name, got, want)
		}
		if want == inPlace {
			s.Must(keepsAllocated(was, now))
		}
		s.Must(followsError(ls, now, strings.TrimPrefix(name, "demo-")))
	}
	f.passServices()
	f.passLocalServices()
	switch writes := s.Requests().Resource("services").Writes(); want {
	case nothing:
		s.WantWrites("services", "none")
	case inPlace:
		s.WantWrites("services", fmt.Sprintf("%d patch services 200", len(after)))
	case replaced:
		if n := len(after); len(writes) != 2*n || len(writes.Verb("delete")) != n || len(writes.Verb("create")) != n {
			s.Fatalf("%s: the controller's writes: %s; want %d deletes and as many creates", what, writes, n)
		}
		s.Eventually(what+": an event reports the replaced Services", func(ctx context.Context) error {
			now, err := s.told(ctx, "demo")
			if err != nil {
				return err
			}
			return framework.Equal("replaced Services in events", now["replaced"], told["replaced"]+len(after))
		})
	}
	return after
}

// keepsAllocated compares what clients know of two states of a Service: its address, and the node ports that it has in
// both.
func keepsAllocated(was, now *corev1.Service) error {
	for _, old := range was.Spec.Ports {
		for _, port := range now.Spec.Ports {
			isSame := port.Port == old.Port && port.Protocol == old.Protocol
			if isSame && old.NodePort != 0 && port.NodePort != 0 && port.NodePort != old.NodePort {
				return fmt.Errorf("port %d of Service %s had node port %d, and has %d",
					port.Port, now.Name, old.NodePort, port.NodePort)
			}
		}
	}
	return framework.Equal("clusterIP of "+now.Name, now.Spec.ClusterIP, was.Spec.ClusterIP)
}

var numbersTold = regexp.MustCompile(`([a-z]+) (\d+)`)

// told returns how many Services were created and so on, according to the events about a LocalService.
func (s *scene) told(ctx context.Context, name string) (map[string]int, error) {
	sums := map[string]int{}
	events, err := s.Events(ctx, name, "ServicesWritten")
	for i := range events {
		times := 1
		if events[i].Series != nil {
			times = int(events[i].Series.Count)
		}
		for _, m := range numbersTold.FindAllStringSubmatch(events[i].Message, -1) {
			n, err := strconv.Atoi(m[2])
			if err != nil {
				return nil, err
			}
			sums[m[1]] += times * n
		}
	}
	return sums, err
}

// sameButAllocated compares Services, except for what the API server has allocated for them.
func sameButAllocated(now, was *corev1.Service) error {
	now, was = now.DeepCopy(), was.DeepCopy()
	for _, service := range []*corev1.Service{now, was} {
		if service.Spec.ClusterIP != corev1.ClusterIPNone {
			service.Spec.ClusterIP, service.Spec.ClusterIPs = "", nil
		}
		for i := range service.Spec.Ports {
			service.Spec.Ports[i].NodePort = 0
		}
	}
	return errors.Join(
		framework.Equal("labels of "+now.Name, now.Labels, was.Labels),
		framework.Equal("annotations of "+now.Name, now.Annotations, was.Annotations),
		framework.Equal("owners of "+now.Name, now.OwnerReferences, was.OwnerReferences),
		framework.Equal("spec of "+now.Name, now.Spec, was.Spec),
	)
}
