package integration

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// mutatingPolicy makes the API server change all Services of the scene's namespace.
const mutatingPolicy = `
apiVersion: admissionregistration.k8s.io/VERSION
kind: MutatingAdmissionPolicy
metadata: {name: NAMESPACE}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
    resourceRules: [{operations: [CREATE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: [services]}]
  reinvocationPolicy: Never
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: EXPRESSION}}]
---
apiVersion: admissionregistration.k8s.io/VERSION
kind: MutatingAdmissionPolicyBinding
metadata: {name: NAMESPACE}
spec: {policyName: NAMESPACE}
`

// mutate makes the API server change all Services of the scene's namespace, and waits until isChanged reports it of
// one. Before Kubernetes 1.36, mutating policies are not in v1, but otherwise the same.
func (s *scene) mutate(expression string, isChanged func(*corev1.ServiceSpec) bool) {
	s.T.Helper()
	version := ""
	for _, version = range []string{"v1", "v1beta1", "v1alpha1"} {
		resources, err := s.Kube.Discovery().ServerResourcesForGroupVersion("admissionregistration.k8s.io/" + version)
		if err == nil && slices.ContainsFunc(resources.APIResources,
			func(r metav1.APIResource) bool { return r.Name == "mutatingadmissionpolicies" }) {
			break
		}
	}
	s.Apply(strings.NewReplacer("VERSION", version, "EXPRESSION", strconv.Quote(expression)).Replace(mutatingPolicy))
	s.Eventually("the policy is in force", func(ctx context.Context) error {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "any"},
			Spec: corev1.ServiceSpec{Type: "LoadBalancer",
				Ports: []corev1.ServicePort{{Port: 80}}, Selector: map[string]string{"app": "x"}}}
		dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		service, err := s.ServiceClient().Create(ctx, service, dryRun)
		if err == nil && !isChanged(&service.Spec) {
			err = errors.New("it changes nothing")
		}
		return err
	})
}

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
			s.mutate(`[JSONPatch{op: "add", path: "/spec/`+c.sets+`}]`, c.isChanged)
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
