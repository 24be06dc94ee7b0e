package integration

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestContestedFields tests that a field that a policy sets at each write is reported, costs each Service at most one
// additional write, and then stays unchanged. The LocalService becomes ready when it wants what the policy sets. There
// is a field of each kind: with defaults, of one type of Services, and one that cannot be changed.
func TestContestedFields(t *testing.T) {
	t.Parallel()
	balancer := framework.OfType(corev1.ServiceTypeLoadBalancer)
	const nodes = 3
	type spec = v1alpha1.LocalServiceSpec
	type service = corev1.ServiceSpec
	ours := func(ls *v1alpha1.LocalService) { balancer(ls); ls.Spec.LoadBalancerClass = new("example.com/ours") }
	for field, c := range map[string]struct {
		spec      change
		agree     func(*spec) // with the policy
		sets      string      // by the policy
		isChanged func(*service) bool
	}{
		"sessionAffinity": {framework.WithClusterIP, func(s *spec) { s.SessionAffinity = "ClientIP" },
			`sessionAffinity", value: "ClientIP"`, func(s *service) bool { return s.SessionAffinity == "ClientIP" }},
		"allocateLoadBalancerNodePorts": {balancer, func(s *spec) { s.AllocateLoadBalancerNodePorts = new(false) },
			`allocateLoadBalancerNodePorts", value: false`,
			func(s *service) bool { return !*s.AllocateLoadBalancerNodePorts }},
		"loadBalancerClass": {ours, func(s *spec) { s.LoadBalancerClass = nil }, // as it is
			`loadBalancerClass", value: "example.com/theirs"`,
			func(s *service) bool { return s.LoadBalancerClass != nil }},
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, shared, "contested")
			f := s.newFence()
			s.AddManyNodes(nodes)
			s.Mutate(`[JSONPatch{op: "add", path: "/spec/`+c.sets+`}]`, c.isChanged)
			s.ResetCount()
			s.Create("demo", c.spec)
			s.WaitNotReady("demo", v1alpha1.ReasonContested, "as it sets them: "+field)
			ls := s.WaitLocalService("demo", "is contested", func(ls *v1alpha1.LocalService) error {
				const contested = v1alpha1.ConditionContested
				return errors.Join(
					framework.CheckCondition(ls, contested, metav1.ConditionTrue, v1alpha1.ReasonContested),
					framework.Equal("status.nodes", ls.Status.Nodes, nodes),
				)
			})
			before := s.MustOwn(ls, nodes)
			if writes := s.Requests().Resource("services").Writes(); len(writes) > 2*nodes {
				t.Errorf("the controller's writes until then: %s", writes)
			}
			f.passLocalServices()
			s.ResetCount()
			for name := range before {
				s.EditService(name, func(service *corev1.Service) { service.Annotations["theirs"] = "x" })
			}
			f.passServices()
			f.passLocalServices()
			s.WantNoWrites("at rest")
			s.Update("demo", func(ls *v1alpha1.LocalService) { c.agree(&ls.Spec) })
			for name, service := range s.MustOwn(s.WaitReady("demo"), nodes) {
				if service.UID != before[name].UID {
					t.Errorf("Service %s was replaced", name)
				}
			}
		})
	}
}
