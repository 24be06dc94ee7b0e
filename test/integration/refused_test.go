package integration

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// deny makes the API server refuse requests for a resource in this scene's namespace for which a CEL expression is
// false, until the function that it returns is called. The resource may have its group after a dot. Because policies
// take a moment to come into force, both wait until a request that changes nothing is refused, or no longer is.
func (s *scene) deny(
	resource string, operation admissionregistrationv1.OperationType, allowed string,
	try func(ctx context.Context, dryRun []string) error,
) (stop func()) {
	s.T.Helper()
	policies := s.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := s.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	kind := schema.ParseGroupResource(resource)
	meta := metav1.ObjectMeta{Name: s.Namespace + "-" + resource}
	here := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.Namespace}}
	rule := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{operation},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{kind.Group}, APIVersions: []string{"*"}, Resources: []string{kind.Resource},
		},
	}
	_, err := policies.Create(s.Ctx(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: meta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: here,
				ResourceRules:     []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rule}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: allowed, Message: "refused by a policy"}},
		},
	}, metav1.CreateOptions{})
	s.Must(err)
	_, err = bindings.Create(s.Ctx(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: meta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        meta.Name,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	s.Must(err)
	waitUntil := func(refused bool) {
		s.T.Helper()
		s.Eventually(fmt.Sprintf("the policy is in force: %t", refused), func(ctx context.Context) error {
			err := try(ctx, []string{metav1.DryRunAll})
			if refused != (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) {
				return fmt.Errorf("the answer is: %v", err)
			}
			return nil
		})
	}
	waitUntil(true)
	return func() {
		s.T.Helper()
		s.Must(errors.Join(
			bindings.Delete(s.Ctx(), meta.Name, metav1.DeleteOptions{}),
			policies.Delete(s.Ctx(), meta.Name, metav1.DeleteOptions{}),
		))
		waitUntil(false)
	}
}
