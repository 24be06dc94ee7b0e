package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// limitedPriority is how GKE configures its API servers: pods with the priority classes of the system need a quota that
// is about these.
const limitedPriority = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchScopes:
      - {scopeName: PriorityClass, operator: In, values: [system-node-critical, system-cluster-critical]}
`

// noChosenUser is what OpenShift's restricted-v2 does to pods that choose their user: the namespace has a range of
// them.
const noChosenUser = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-chosen-user}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations:
  - expression: "!has(object.spec.securityContext) || !has(object.spec.securityContext.runAsUser) &&
      !has(object.spec.securityContext.runAsGroup) && !has(object.spec.securityContext.fsGroup)"
    message: the user is not in the range of the namespace
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-chosen-user}
spec: {policyName: no-chosen-user, validationActions: [Deny]}
`

// TestInstallOnStrictClusters: clusters with the rules of GKE and of OpenShift accept the pods of the controller.
func TestInstallOnStrictClusters(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(config, []byte(limitedPriority), 0o600); err != nil {
		t.Fatal(err)
	}
	options := framework.ControlPlane()
	options.Args = append(options.Args, "--apiserver-flag=--admission-control-config-file="+config)
	s := newScene(t, framework.NewCluster(t, options), "strict")
	s.Apply(noChosenUser)
	s.WaitServiceAccount()
	refused := func(says string, change func(*corev1.Pod)) error {
		_, err := s.PodClient().Create(t.Context(), framework.NewPod("a", "", nil, change),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), says) {
			return fmt.Errorf("not so: %s: %v", says, err)
		}
		return nil
	}
	s.Eventually("the cluster is strict", func(context.Context) error {
		return errors.Join(refused("the user is not in the range", func(pod *corev1.Pod) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(65532))}
		}), refused("insufficient quota", func(pod *corev1.Pod) {
			pod.Spec.PriorityClassName = "system-cluster-critical"
		}))
	})
	s.RunKubectl(t, "apply", "-f", framework.ModuleFile("artifacts", "deploy", "local-service-controller.yaml"))
	s.Eventually("both pods are accepted", func(ctx context.Context) error {
		pods, err := s.Kube.CoreV1().Pods(framework.ControllerNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		return framework.Equal("pods", len(pods.Items), 2)
	})
}
