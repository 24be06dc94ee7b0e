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
)

// TestPodsChangedByPolicy: a policy that changes more of a pod at each update, which the API server does not accept,
// keeps the label from the pod. The event says so.
func TestPodsChangedByPolicy(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "policy")
	name := s.Namespace
	manifest := filepath.Join(t.TempDir(), "policy.yaml")
	s.Must(os.WriteFile(manifest, fmt.Appendf(nil, `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [pods]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{spec: Object.spec{schedulerName: "other"}}'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}
`, name), 0o600))
	s.MustKubectl("apply", "-f", manifest)
	defer s.MustKubectl("delete", "-f", manifest) // The context of a cleanup is done.
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
