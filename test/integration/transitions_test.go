package integration

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// dualStack is a control plane that has addresses of both families for Services, IPv4 first.
func dualStack(ranges string) framework.ClusterOptions {
	options := controlPlane()
	options.Args = append(options.Args, "--apiserver-flag=--service-cluster-ip-range="+ranges)
	return options
}

const dualStackRanges = "10.96.0.0/16,fd00:10:96::/112"

// TestImmutableTransitions walks LocalServices through the changes that concern address families, types and classes of
// load balancers: what the API server allows is done in place, with one write for each Service, and everything else by
// replacing the Services, which an event tells.
func TestImmutableTransitions(t *testing.T) {
	t.Parallel()
	cluster := framework.NewCluster(t, dualStack(dualStackRanges))
	cluster.NewController(t, "-v=4")
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	policy := func(p corev1.IPFamilyPolicy, families ...corev1.IPFamily) change {
		return func(ls *v1alpha1.LocalService) {
			ls.Spec.IPFamilyPolicy, ls.Spec.IPFamilies = nil, families
			if p != "" {
				ls.Spec.IPFamilyPolicy = &p
			}
		}
	}
	class := func(name string) change {
		return func(ls *v1alpha1.LocalService) {
			ls.Spec.LoadBalancerClass = nil
			if name != "" {
				ls.Spec.LoadBalancerClass = &name
			}
		}
	}
	headless := func(ls *v1alpha1.LocalService) { ls.Spec.Type, ls.Spec.ClusterIP = "", corev1.ClusterIPNone }
	type step struct {
		name     string
		do       []change
		families []corev1.IPFamily // of every Service afterwards
		writes   transition
	}
	families := func(to ...corev1.IPFamily) []corev1.IPFamily { return to }
	// The same walk for Services with addresses and for headless ones.
	stacks := []step{
		{"to PreferDualStack", []change{policy("PreferDualStack")}, families(v4, v6), inPlace},
		{"to RequireDualStack", []change{policy("RequireDualStack")}, families(v4, v6), inPlace},
		{"to SingleStack", []change{policy("SingleStack")}, families(v4), inPlace},
		{"to the default", []change{policy("")}, families(v4), nothing},
		{"to both families", []change{policy("", v4, v6)}, families(v4, v6), inPlace},
		{"to a preference for both families", []change{policy("PreferDualStack", v4, v6)}, families(v4, v6), inPlace},
		{"to a preference for one of them", []change{policy("PreferDualStack", v4)}, families(v4, v6), nothing},
		{"to one of them", []change{policy("SingleStack", v4)}, families(v4), inPlace},
		{"to the other family", []change{policy("", v6)}, families(v6), replaced},
		{"to a preference for a second one", []change{policy("PreferDualStack", v6)}, families(v6, v4), inPlace},
		{"to both in the other order", []change{policy("RequireDualStack", v4, v6)}, families(v4, v6), replaced},
		{"to the other order again", []change{policy("RequireDualStack", v6, v4)}, families(v6, v4), replaced},
		{"to whatever the first is", []change{policy("")}, families(v6), inPlace},
		{"to the first family again", []change{policy("", v4)}, families(v4), replaced},
	}
	types := []step{
		{"ClusterIP to headless", []change{headless}, families(v4), replaced},
		{"headless to both families", []change{policy("RequireDualStack")}, families(v4, v6), inPlace},
		{"headless to ClusterIP", []change{framework.WithClusterIP}, families(v4, v6), replaced},
		{"ClusterIP to NodePort", []change{framework.OfType("NodePort")}, families(v4, v6), inPlace},
		{"NodePort to LoadBalancer", []change{framework.OfType("LoadBalancer")}, families(v4, v6), inPlace},
		{"a class of load balancers", []change{class("example.com/fast")}, families(v4, v6), replaced},
		{"another class of load balancers", []change{class("example.com/cheap")}, families(v4, v6), replaced},
		{"the default class of load balancers, and one family", []change{class(""), policy("SingleStack")}, families(v4), inPlace},
		{"LoadBalancer to NodePort, and both families", []change{framework.OfType("NodePort"), policy("PreferDualStack")}, families(v4, v6), inPlace},
		{"NodePort to ClusterIP", []change{framework.OfType("ClusterIP")}, families(v4, v6), inPlace},
		{"ClusterIP to LoadBalancer with a class", []change{framework.OfType("LoadBalancer"), class("example.com/fast")}, families(v4, v6), inPlace},
		{"LoadBalancer with a class to ClusterIP", []change{framework.OfType("ClusterIP"), class("")}, families(v4, v6), inPlace},
		{"ClusterIP to LoadBalancer", []change{framework.OfType("LoadBalancer")}, families(v4, v6), inPlace},
		{"LoadBalancer to headless, and one family", []change{headless, policy("")}, families(v4), replaced},
		{"headless to NodePort", []change{framework.OfType("NodePort")}, families(v4), replaced},
	}
	walks := []struct {
		name  string
		from  change
		steps []step
	}{
		{"families of Services with addresses", framework.WithClusterIP, stacks},
		{"families of headless Services", headless, stacks},
		{"types", framework.WithClusterIP, types},
	}
	for _, walk := range walks {
		t.Run(walk.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, cluster, "stacks")
			f := s.newFence()
			nodes := s.AddNodes("a", "b")
			s.CreateReady("demo", walk.from)
			f.passServices()
			for _, step := range walk.steps {
				s.transit("demo", f, step.name, len(nodes), step.writes, step.do...)
				for name, service := range s.MustOwn(s.WaitReady("demo"), len(nodes)) {
					if !slices.Equal(service.Spec.IPFamilies, step.families) {
						s.Fatalf("%s: Service %s has families %v; want %v", step.name, name, service.Spec.IPFamilies, step.families)
					}
					if addresses := service.Spec.ClusterIPs; service.Spec.ClusterIP != corev1.ClusterIPNone && len(addresses) != len(step.families) {
						s.Fatalf("%s: Service %s has addresses %v; want one of each of %v", step.name, name, addresses, step.families)
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

// transit changes a LocalService, and fails unless its Services follow in the right way, and the controller is quiet
// then.
func (s *scene) transit(name string, f *fence, what string, services int, want transition, changes ...change) {
	s.T.Helper()
	ls, err := s.LocalServiceClient().Get(s.Ctx(), name, metav1.GetOptions{})
	s.Must(err)
	before := s.MustOwn(ls, services)
	told, err := s.told(s.Ctx(), name, "replaced")
	s.Must(err)
	s.ResetCount()
	s.Update(name, changes...)
	after := s.MustOwn(s.WaitReady(name), services)
	for _, serviceName := range slices.Sorted(maps.Keys(before)) {
		if got := after[serviceName].UID != before[serviceName].UID; got != (want == replaced) {
			s.Fatalf("%s: Service %s was replaced: %t; want %s", what, serviceName, got, want)
		}
	}
	f.passServices()
	f.passLocalServices()
	switch want {
	case nothing:
		s.WantWrites("services", "none")
	case inPlace:
		s.WantWrites("services", fmt.Sprintf("%d patch services 200", services))
	case replaced:
		s.wantReplaced(services)
		s.Eventually(fmt.Sprintf("%s: an event tells of %d more replaced Services", what, services), func(ctx context.Context) error {
			now, err := s.told(ctx, name, "replaced")
			if err != nil {
				return err
			}
			return framework.Equal("replaced Services in events", now, told+services)
		})
	}
}

// told is the sum of the Services of which the events about a LocalService say that they were created, replaced,
// adopted and so on.
func (s *scene) told(ctx context.Context, name, did string) (sum int, err error) {
	events, err := s.Events(ctx, name, "ServicesWritten")
	if err != nil {
		return 0, err
	}
	number := regexp.MustCompile(did + ` (\d+)`)
	for i := range events {
		m := number.FindStringSubmatch(events[i].Message)
		if m == nil {
			continue
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			return 0, err
		}
		if events[i].Series != nil {
			n *= int(events[i].Series.Count)
		}
		sum += n
	}
	return sum, nil
}
