package integration

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
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

// The same walk for Services with addresses and, up to what is refused, for headless ones.
var stackSteps = []step{
	{"ipFamilyPolicy: PreferDualStack", "IPv4 IPv6", inPlace},
	{"ipFamilyPolicy: RequireDualStack", "IPv4 IPv6", inPlace},
	{"ipFamilyPolicy: SingleStack", "IPv4", inPlace},
	{"", "IPv4", nothing},
	{"ipFamilies: [IPv4, IPv6]", "IPv4 IPv6", inPlace},
	{"ipFamilies: [IPv6, IPv4]", "IPv4 IPv6", refused}, // The following ones are for Services with addresses.
	{"ipFamilies: [IPv4, IPv6], ipFamilyPolicy: PreferDualStack", "IPv4 IPv6", inPlace},
	{"ipFamilies: [IPv4], ipFamilyPolicy: PreferDualStack", "IPv4 IPv6", nothing},
	{"ipFamilies: [IPv4], ipFamilyPolicy: SingleStack", "IPv4", inPlace},
	{"ipFamilies: [IPv6]", "IPv4", refused},
	{"ipFamilies: [IPv6], ipFamilyPolicy: RequireDualStack", "IPv4", refused},
}

var secondStackSteps = []step{
	{"ipFamilies: [IPv6], ipFamilyPolicy: PreferDualStack", "IPv6 IPv4", inPlace},
	{"ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack", "IPv6 IPv4", refused},
	{"ipFamilies: [IPv6, IPv4], ipFamilyPolicy: RequireDualStack", "IPv6 IPv4", inPlace},
	{"ipFamilies: null", "IPv6", inPlace},               // Whatever the first is stays.
	{"ipFamilies: [IPv4]", "IPv6", stuck("ipFamilies")}, // The LocalService did not say which was the first.
	{"ipFamilies: [IPv6]", "IPv6", refused},
	{"ipFamilies: null", "IPv6", nothing},
}

var typeSteps = []step{
	{"clusterIP: None", "IPv4", refused},
	{"ipFamilyPolicy: RequireDualStack", "IPv4 IPv6", inPlace},
	{"type: NodePort, ipFamilyPolicy: RequireDualStack", "IPv4 IPv6", inPlace},
	{"type: LoadBalancer, ipFamilyPolicy: RequireDualStack", "IPv4 IPv6", inPlace},
	{"type: LoadBalancer, ipFamilyPolicy: RequireDualStack, loadBalancerClass: a/fast", "IPv4 IPv6", refused},
	{"type: LoadBalancer", "IPv4", inPlace},
	{"type: NodePort, ipFamilyPolicy: PreferDualStack", "IPv4 IPv6", inPlace},
	{"ipFamilyPolicy: PreferDualStack", "IPv4 IPv6", inPlace},
	{"type: LoadBalancer, loadBalancerClass: a/fast, ipFamilyPolicy: PreferDualStack", "IPv4 IPv6", inPlace},
	{"type: LoadBalancer, loadBalancerClass: a/cheap, ipFamilyPolicy: PreferDualStack", "IPv4 IPv6", refused},
	{"type: LoadBalancer, ipFamilyPolicy: PreferDualStack", "IPv4 IPv6", refused},
	{"ipFamilyPolicy: PreferDualStack, type: ClusterIP", "IPv4 IPv6", inPlace},
	{"type: LoadBalancer", "IPv4", inPlace},
}

var headlessSteps = []step{
	{"clusterIP: null", "IPv4", refused},
	{"clusterIP: null, type: NodePort", "IPv4", refused},
	{"ipFamilyPolicy: RequireDualStack", "IPv4 IPv6", inPlace},
	{"ipFamilies: [IPv6, IPv4]", "IPv6 IPv4", inPlace},
	{"ipFamilies: [IPv6]", "IPv6", inPlace},
	{"ipFamilies: [IPv4], ipFamilyPolicy: PreferDualStack", "IPv4 IPv6", inPlace},
	{"ipFamilies: [IPv6, IPv4], ipFamilyPolicy: PreferDualStack", "IPv6 IPv4", inPlace},
	{"ipFamilies: [IPv4]", "IPv4", inPlace},
}

// TestImmutableTransitions walks LocalServices through the changes that concern address families, types and classes of
// load balancers. What the API server allows on a Service is done in place, with one write for each Service. What it
// refuses on a Service, it refuses on the LocalService, or the controller reports it and leaves the Services unchanged.
func TestImmutableTransitions(t *testing.T) {
	t.Parallel()
	cluster := framework.NewCluster(t, dualStack())
	cluster.NewController(t, "-v=4")
	for _, walk := range []struct {
		name, from string
		steps      []step
	}{
		{"families of Services with addresses", addressed, stackSteps},
		{"families of headless Services", "", stackSteps[:5]},
		{"the second family first", addressed + ", ipFamilies: [IPv6]", secondStackSteps},
		{"types", addressed, typeSteps},
		{"headless", "", headlessSteps},
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
	nothing transition = "nothing to do"
	inPlace transition = "in place"
	// refused changes of a LocalService are refused on a Service, too.
	refused transition = "refused"
)

// stuck changes of a LocalService are stored, but the controller reports that a field of the Services cannot follow.
func stuck(field string) transition { return transition(field + " of Service demo-") }

// transit changes the spec of LocalService demo. It fails unless its Services follow in the right way, each by one
// write, they keep what was allocated for them, and the controller is at rest afterwards.
func (s *scene) transit(f *fence, want transition, fields ...string) map[string]*corev1.Service {
	s.T.Helper()
	what := fields[len(fields)-1]
	ls, err := s.LocalServiceClient().Get(s.Ctx(), "demo", metav1.GetOptions{})
	s.Must(err)
	before := s.MustOwn(ls, int(ls.Status.Nodes))
	s.ResetCount()
	switch want {
	case refused:
		s.mustRefuse(ls, before, fields...)
	case nothing, inPlace:
		s.Update("demo", spec(fields...))
		ls = s.WaitReady("demo")
	default:
		s.Update("demo", spec(fields...))
		ls = s.WaitNotReady("demo", v1alpha1.ReasonWriteFailed, string(want))
	}
	after := s.MustOwn(ls, len(before))
	for name, now := range after {
		if was := before[name]; now.UID != was.UID || want != inPlace && now.ResourceVersion != was.ResourceVersion {
			s.Fatalf("%s: Service %s was changed; want %s", what, name, want)
		}
		s.Must(keepsAllocated(before[name], now))
		if want == nothing || want == inPlace {
			s.Must(followsError(ls, now, strings.TrimPrefix(name, "demo-")))
		}
	}
	f.passServices()
	f.passLocalServices()
	if want == inPlace {
		s.WantWrites("services", fmt.Sprintf("%d patch services 200", len(after)))
	} else {
		s.WantWrites("services", "none")
	}
	return after
}

// mustRefuse fails unless the API server refuses a change of a LocalService, with words that say what to do, and the
// same change of its Services: of those it may also ignore it.
func (s *scene) mustRefuse(ls *v1alpha1.LocalService, services map[string]*corev1.Service, fields ...string) {
	s.T.Helper()
	changed := ls.DeepCopy()
	spec(fields...)(changed)
	_, err := s.LocalServiceClient().Update(s.Ctx(), changed, metav1.UpdateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "cannot be changed") {
		s.Fatalf("%v: the LocalService is not refused: %v", fields, err)
	}
	for _, service := range services {
		wanted := service.DeepCopy()
		wanted.Spec.ClusterIP, wanted.Spec.Type = changed.Spec.ClusterIP, cmp.Or(changed.Spec.Type, wanted.Spec.Type)
		wanted.Spec.IPFamilies, wanted.Spec.LoadBalancerClass = changed.Spec.IPFamilies, changed.Spec.LoadBalancerClass
		wanted.Spec.ClusterIPs = nil
		if changed.Spec.ClusterIP == service.Spec.ClusterIP || service.Spec.ClusterIP != corev1.ClusterIPNone &&
			changed.Spec.ClusterIP == "" {
			wanted.Spec.ClusterIP, wanted.Spec.ClusterIPs = service.Spec.ClusterIP, service.Spec.ClusterIPs
		}
		if len(wanted.Spec.IPFamilies) == 0 {
			wanted.Spec.IPFamilies = service.Spec.IPFamilies
		}
		dryRun := metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
		stored, err := s.ServiceClient().Update(s.Ctx(), wanted, dryRun)
		if !apierrors.IsInvalid(err) && !(err == nil && reflect.DeepEqual(stored.Spec, service.Spec)) {
			s.Fatalf("%v: the same change of Service %s: %v", fields, service.Name, err)
		}
	}
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
