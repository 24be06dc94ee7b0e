package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// deny has the API server refuse requests for a resource in this scene's namespace for which a CEL expression is
// false, until the function that it returns is called. The resource may have its group after a dot.
func (s *scene) deny(resource string, operation admissionregistrationv1.OperationType, allowed string) (stop func()) {
	s.T.Helper()
	policies := s.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := s.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	name, kind := s.Namespace+"-"+resource, schema.ParseGroupResource(resource)
	_, err := policies.Create(s.Ctx(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.Namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{operation},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{kind.Group}, APIVersions: []string{"*"}, Resources: []string{kind.Resource}},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: allowed, Message: "refused by a policy"}},
		},
	}, metav1.CreateOptions{})
	s.Must(err)
	_, err = bindings.Create(s.Ctx(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	s.Must(err)
	return func() {
		s.T.Helper()
		s.Must(errors.Join(
			bindings.Delete(s.Ctx(), name, metav1.DeleteOptions{}),
			policies.Delete(s.Ctx(), name, metav1.DeleteOptions{}),
		))
	}
}

// waitUntil waits until a request that changes nothing is refused, or not. Policies take a moment to come into force.
func (s *scene) waitUntil(refused bool, request func(ctx context.Context, dryRun []string) error) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("the policy is in force: %t", refused), func(ctx context.Context) error {
		err := request(ctx, []string{metav1.DryRunAll})
		switch {
		case refused && err == nil:
			return errors.New("the request was not refused")
		case refused && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)):
			return nil
		case !refused && apierrors.IsAlreadyExists(err): // The controller was quicker.
			return nil
		}
		return err
	})
}

// TestOneServiceIsRefused tests that a policy against one node's Service does not keep the others from being made.
func TestOneServiceIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "refused")
	const nodes = 40
	s.AddManyNodes(nodes)
	refused := "demo-" + s.NodeName("n000") // the first in the order of names
	createService := func(ctx context.Context, dryRun []string) error {
		_, err := s.ServiceClient().Create(ctx, framework.NewForeignService(refused, nil), metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	allow := s.deny("services", admissionregistrationv1.Create, fmt.Sprintf("object.metadata.name != %q", refused))
	s.waitUntil(true, createService)
	s.Create("demo")
	s.WaitLocalService("demo", "the others exist, and the LocalService tells of the one that does not", func(ls *v1alpha1.LocalService) error {
		return errors.Join(
			framework.Equal("status.services", ls.Status.Services, nodes-1),
			framework.CheckCondition(ls, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonWriteFailed),
			framework.CheckConditionSays(ls, v1alpha1.ConditionReady, "refused by a policy"),
			framework.CheckConditionSays(ls, v1alpha1.ConditionReady, refused),
		)
	})
	allow()
	s.waitUntil(false, createService)
	s.MustOwn(s.WaitReady("demo"), nodes)
}

// limitServices is a quota for the Services of the scene's namespace. It is in force when the function returns.
func (s *scene) limitServices(count int64) {
	s.T.Helper()
	quotas := s.Kube.CoreV1().ResourceQuotas(s.Namespace)
	limit := corev1.ResourceList{corev1.ResourceServices: *resource.NewQuantity(count, resource.DecimalSI)}
	_, err := quotas.Create(s.Ctx(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "quota"}, Spec: corev1.ResourceQuotaSpec{Hard: limit}}, metav1.CreateOptions{})
	s.Must(err)
	s.Eventually("the quota is in force", func(ctx context.Context) error {
		quota, err := quotas.Get(ctx, "quota", metav1.GetOptions{})
		if err == nil && len(quota.Status.Hard) == 0 {
			err = errors.New("it has no status")
		}
		return err
	})
}

// TestQuota tests that a LocalService that may not have all its Services says so, and goes on when it may.
func TestQuota(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "quota")
	s.AddNodes("a", "b", "c", "d", "e")
	s.limitServices(3)
	s.Create("demo")
	s.WaitLocalService("demo", "three Services exist, and the LocalService tells why no more", func(ls *v1alpha1.LocalService) error {
		return errors.Join(
			framework.Equal("status.services", ls.Status.Services, 3),
			framework.CheckCondition(ls, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonWriteFailed),
			framework.CheckConditionSays(ls, v1alpha1.ConditionReady, "exceeded quota"),
		)
	})
	s.Must(s.Kube.CoreV1().ResourceQuotas(s.Namespace).Delete(s.Ctx(), "quota", metav1.DeleteOptions{}))
	s.MustOwn(s.WaitReady("demo"), 5)
}

// TestPodsLabelIsRefused tests that a label that may not be written is told in an event about the pod, and not tried
// over and over.
func TestPodsLabelIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "podrefused")
	f := s.newFence()
	node := s.AddNodes("a")[0]
	s.CreatePod("pod", node, map[string]string{"app": "demo"})
	labelPod := func(ctx context.Context, dryRun []string) error {
		pod, err := s.PodClient().Get(ctx, "pod", metav1.GetOptions{})
		if err != nil {
			return err
		}
		pod.Labels[nodeLabel] = "any"
		_, err = s.PodClient().Update(ctx, pod, metav1.UpdateOptions{DryRun: dryRun})
		return err
	}
	allow := s.deny("pods", admissionregistrationv1.Update, fmt.Sprintf("!(%q in object.metadata.labels)", nodeLabel))
	s.waitUntil(true, labelPod)
	s.ResetCount()
	s.CreateReady("demo")
	s.Eventually("an event about the pod tells", func(ctx context.Context) error {
		events, err := s.Events(ctx, "pod", "NodeLabelRefused")
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return errors.New("there is none")
		}
		return framework.Equal("type", events[0].Type, corev1.EventTypeWarning)
	})
	f.passPods()
	f.passLocalServices()
	const early = 3 // so many after a longer time each
	if writes := s.Requests().Resource("pods").Writes(); len(writes) > early {
		s.Fatalf("the controller's writes of pods: %s; want few that are refused", writes)
	}
	// A change of the pod is a reason to try again before the time, once.
	const changes = 5
	for i := range changes {
		s.PatchPod("pod", fmt.Sprintf(`{"status":{"message":"change %d"}}`, i), "status")
		f.passPods()
	}
	if writes := s.Requests().Resource("pods").Writes(); len(writes) > early+changes || len(writes.Where(framework.Failed)) != len(writes) {
		s.Fatalf("the controller's writes of pods: %s; want at most 1 more for each of %d changes, all refused", writes, changes)
	}
	allow()
	s.waitUntil(false, labelPod)
	s.PatchPod("pod", `{"metadata":{"annotations":{"example.com/any":"thing"}}}`)
	s.WaitLabelled("pod", node)
}

// TestQuotaIsNotPressed tests that where a quota has room for few Services little is tried in the first minute, also
// while something happens to those that there are, and that the cause is told once.
func TestQuotaIsNotPressed(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "pressed")
	const nodes, quota = 40, 5
	f := s.newFence()
	s.AddManyNodes(nodes)
	s.limitServices(quota)
	f.passNodes() // That nodes come would be a reason to try again.
	s.ResetCount()
	ls := s.Create("demo")
	s.WaitNotReady("demo", v1alpha1.ReasonWriteFailed, "exceeded quota")
	owned := s.MustOwn(ls, quota)
	since := s.Requests().Resource("services").Where(framework.Failed).First()
	for i := 0; time.Since(since) < time.Minute; i++ {
		for name := range owned {
			s.EditService(name, func(service *corev1.Service) { service.Annotations[theirs] = fmt.Sprint(i) })
		}
		time.Sleep(time.Second) // What is counted is what happens in a time.
	}
	requests := s.Requests().Where(func(r *framework.Request) bool {
		after := r.RequestReceivedTimestamp.Sub(since)
		return r.Verb != "watch" && after > 0 && after < time.Minute
	})
	t.Logf("in the minute after the first refusal: %s", requests)
	if len(requests) > 60 {
		t.Errorf("%d requests in the minute after the first refusal: %s", len(requests), requests)
	}
	s.WaitEvents("demo", v1alpha1.ReasonWriteFailed, "it is told once", framework.OneWarning(""))
}
