package integration

import (
	"context"
	"errors"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// mutate makes the API server change all Services of the scene's namespace, and waits until isChanged reports it of
// one.
func (s *scene) mutate(expression string, isChanged func(*corev1.ServiceSpec) bool) {
	s.T.Helper()
	rule := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE"},
		Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
			Resources: []string{"services"}},
	}
	s.createAdmission("mutatingadmissionpolicies", &admissionregistrationv1.MutatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{Kind: "MutatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{corev1.LabelMetadataName: s.Namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rule}},
			},
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: expression}}},
		},
	})
	s.createAdmission("mutatingadmissionpolicybindings", &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{Kind: "MutatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: s.Namespace},
	})
	s.Eventually("the policy is in force", func(ctx context.Context) error {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "any"},
			Spec: corev1.ServiceSpec{Type: "LoadBalancer",
				Ports: []corev1.ServicePort{{Port: 80}}, Selector: map[string]string{"app": "x"}}}
		service, err := s.ServiceClient().Create(ctx, service, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && !isChanged(&service.Spec) {
			err = errors.New("it changes nothing")
		}
		return err
	})
}

// createAdmission creates an object of admission, in the newest version of it that the API server has: before
// Kubernetes 1.36, mutating policies are not in v1, but otherwise the same.
func (s *scene) createAdmission(resource string, object runtime.Object) {
	s.T.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	s.Must(err)
	group := schema.GroupVersion{Group: admissionregistrationv1.GroupName}
	for _, group.Version = range []string{"v1", "v1beta1", "v1alpha1"} {
		resources, err := s.Kube.Discovery().ServerResourcesForGroupVersion(group.String())
		if err == nil && slices.ContainsFunc(resources.APIResources,
			func(r metav1.APIResource) bool { return r.Name == resource }) {
			break
		}
	}
	admission := &unstructured.Unstructured{Object: content}
	admission.SetAPIVersion(group.String())
	_, err = s.Dynamic.Resource(group.WithResource(resource)).Create(s.Ctx(), admission, metav1.CreateOptions{})
	s.Must(err)
}

// TestContestedFields tests that a field that a policy sets at each write is reported, costs each Service at most one
// additional write, and then stays unchanged. The LocalService becomes ready when it wants what the policy sets. There is
// a field of each kind: with defaults, of one type of Services, and one that cannot be changed.
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
