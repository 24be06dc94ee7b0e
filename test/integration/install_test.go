package integration

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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
	file := func(name, content string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	options := framework.ControlPlane()
	options.Args = append(options.Args, "--apiserver-flag=--admission-control-config-file="+
		file("admission.yaml", limitedPriority))
	cluster := framework.NewCluster(t, options)
	cluster.RunKubectl(t, "apply", "-f", file("policy.yaml", noChosenUser))
	refused := func(edit func(*corev1.PodSpec)) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "a", Image: "a"}}, SecurityContext: &corev1.PodSecurityContext{}}}
		edit(&pod.Spec)
		_, err := cluster.Kube.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("a pod was accepted")
		}
		return nil
	}
	cluster.Eventually(t, metav1.NamespaceDefault, "the cluster is strict", func(context.Context) error {
		if err := refused(func(spec *corev1.PodSpec) { spec.SecurityContext.RunAsUser = new(int64(65532)) }); err != nil {
			return err
		}
		return refused(func(spec *corev1.PodSpec) { spec.PriorityClassName = "system-cluster-critical" })
	})
	cluster.RunKubectl(t, "apply", "-f",
		framework.MustModuleFile(t, "artifacts", "deploy", "local-service-controller.yaml"))
	cluster.Eventually(t, framework.ControllerNamespace, "both pods are accepted", func(ctx context.Context) error {
		pods, err := cluster.Kube.CoreV1().Pods(framework.ControllerNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		return framework.Equal("pods", len(pods.Items), 2)
	})
}
