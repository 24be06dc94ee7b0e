package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

// TestPodsLabelIsRefused tests that an event about the pod reports a label that an admission plug-in refuses, that the
// write is retried with a backoff, and that the label is written once it is accepted.
func TestPodsLabelIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "podrefused")
	f := s.newFence()
	node := s.AddNodes("a")[0]
	s.CreatePod("pod", node, app)
	labelPod := func(ctx context.Context, dryRun []string) error {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"any"}}}`, nodeLabel)
		options := metav1.PatchOptions{DryRun: dryRun}
		_, err := s.PodClient().Patch(ctx, "pod", types.MergePatchType, []byte(patch), options)
		return err
	}
	unlabelled := fmt.Sprintf("!(%q in object.metadata.labels)", nodeLabel)
	allow := s.deny("pods", admissionregistrationv1.Update, unlabelled, labelPod)
	s.ResetCount()
	s.CreateReady("demo")
	s.waitWarning("pod", "NodeLabelRefused", "The pod cannot be reached through its node's Service")
	f.passPods()
	f.passLocalServices()
	if writes := s.Requests().Resource("pods").Writes(); len(writes) > 3 {
		s.Fatalf("the controller's writes of pods: %s; want few that are refused", writes)
	}
	allow()
	s.PatchPod("pod", `{"metadata":{"annotations":{"example.com/any":"thing"}}}`)
	s.WaitLabelled("pod", node)
}

// waitWarning waits until a Warning about an object, with a reason, begins with a text.
func (s *scene) waitWarning(name, reason, says string) {
	s.T.Helper()
	s.Eventually("a Warning says: "+says, func(ctx context.Context) error {
		events, err := s.Events(ctx, name, reason)
		isIt := func(e corev1.Event) bool {
			return e.Type == corev1.EventTypeWarning && strings.HasPrefix(e.Message, says)
		}
		if err == nil && !slices.ContainsFunc(events, isIt) {
			err = fmt.Errorf("the events are %+v", events)
		}
		return err
	})
}
