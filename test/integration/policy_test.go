package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestPodsChangedByPolicy: a policy that changes more of a pod at each update, which the API server does not accept,
// keeps the label from the pod. The event says so.
func TestPodsChangedByPolicy(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "policy")
	defer s.addPolicy("UPDATE", "pods", `Object{spec: Object.spec{schedulerName: "other"}}`)()
	s.CreatePod("tried", "", nil)
	s.Eventually("the policy is in force", func(ctx context.Context) error {
		_, err := s.PodClient().Patch(ctx, "tried", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsInvalid(err) {
			return fmt.Errorf("it refuses nothing: %v", err)
		}
		return nil
	})
	node := s.AddNodes("a")[0]
	s.CreateReady("demo")
	s.CreatePod("pod", node, app)
	s.Eventually("an event says why the pod has no label", func(ctx context.Context) error {
		events, err := s.Events(ctx, "demo", "NodeLabelRefused")
		if err != nil || len(events) == 0 || !strings.Contains(events[0].Message, "changes the pod in the same request") {
			return fmt.Errorf("%v: %v", err, events)
		}
		return nil
	})
}

// TestServicesChangedByPolicy: what a policy adds to Services, the guard refuses. Ready says what to do, although it has
// only the beginning of a long answer.
func TestServicesChangedByPolicy(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "policy")
	defer s.addPolicy("CREATE", "services", `Object{metadata: Object.metadata{finalizers: ["example.com/a"]}}`)()
	s.Eventually("the policy is in force", func(ctx context.Context) error {
		tried, err := s.ServiceClient().Create(ctx, framework.NewForeignService("tried", nil),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil || len(tried.Finalizers) == 0 {
			return fmt.Errorf("it changes nothing: %v", err)
		}
		return nil
	})
	s.AddNodes("a")
	s.Create("demo")
	s.WaitNotReady("demo", v1alpha1.ReasonWriteFailed, "exempt system:serviceaccount:")
}

// addPolicy makes a policy that changes each object of a resource in the namespace when there is such an operation, and
// returns the function that removes it.
func (s *scene) addPolicy(operation, resource, change string) func() {
	s.T.Helper()
	manifest := filepath.Join(s.T.TempDir(), "policy.yaml")
	s.Must(os.WriteFile(manifest, fmt.Appendf(nil, `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [%[2]s], resources: [%[3]s]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: '%[4]s'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}
`, s.Namespace, operation, resource, change), 0o600))
	s.MustKubectl("apply", "-f", manifest)
	return func() { s.MustKubectl("delete", "-f", manifest) } // The context of a cleanup is done.
}
