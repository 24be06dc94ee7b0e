package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// The nodes of these tests: one named as on many clouds, and one whose name is not a valid label value.
var (
	cloudNode = "ip-10-0-0-3.ec2.internal"
	longNode  = strings.Repeat("n", 60) + ".example.com"
)

// TestAdmissionGuard tests that a user with all permissions in a namespace cannot get another node's traffic.
func TestAdmissionGuard(t *testing.T) {
	s := newAdmissionScene(t)
	s.Launch(barePod("before", "k8s01", map[string]string{nodeLabel: "k8s02"})) // No policy corrects it.
	s.installPolicies()
	s.grant("--clusterrole=admin")
	s.MustKubectl("create", "role", "more", "--verb=patch", "--resource=pods/ephemeralcontainers,pods/resize")
	s.grant("--role=more")
	t.Run("creation and binding", func(t *testing.T) { s.in(t).testCreationAndBinding() })
	t.Run("changes", func(t *testing.T) { s.in(t).testChanges() })
	t.Run("status", func(t *testing.T) { s.in(t).testStatus() })
	t.Run("failing policy", func(t *testing.T) { s.in(t).testFailingPolicy() })
	t.Run("long node name", func(t *testing.T) { s.in(t).testLongNodeName() })
	t.Run("another key", func(t *testing.T) { // For a controller with -node-label-key.
		const key = "example.com/node"
		s := s.in(t)
		s.changePolicies(nodeLabel, key)
		s.waitPolicies(key, probed{true, true, true, true})
		s.wantLabel(s.Launch(barePod("another-key", "k8s01", map[string]string{nodeLabel: "any"})), "any")
	})
}

// grant gives mallory the permissions of a role.
func (s *scene) grant(role string) {
	s.T.Helper()
	s.MustKubectl("create", "rolebinding", role[strings.Index(role, "=")+1:], role, "--user=mallory")
}

// patchAsMallory makes a merge patch of a pod, as a user whom the policies restrict.
func (s *scene) patchAsMallory(pod, patch, subresource string, dryRun ...string) error {
	s.T.Helper()
	pods, options := s.as("mallory").CoreV1().Pods(s.Namespace), metav1.PatchOptions{DryRun: dryRun}
	_, err := pods.Patch(s.Ctx(), pod, types.MergePatchType, []byte(patch), options, subresource)
	return err
}

// wantRefused fails unless an error says that something is forbidden, and why.
func (s *scene) wantRefused(what string, err error, why string) {
	s.T.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), why) {
		s.T.Errorf("%s: want it refused because %s\ngot: %v", what, why, err)
	}
}

// testCreationAndBinding: the node label of a template or a Binding is corrected, and never refused.
func (s *scene) testCreationAndBinding() {
	lie := map[string]string{nodeLabel: "k8s02", "team": "blue"}
	for _, c := range []struct {
		name, node, boundTo, want string
		labels                    map[string]string // of the pod, and of the Binding
	}{
		{name: "pending", labels: lie},
		{name: "running", node: "k8s01", labels: lie, want: "k8s01"},
		{name: "without-labels", node: cloudNode, want: cloudNode},
		{name: "on-long", node: longNode, labels: lie},
		{name: "bound", boundTo: "k8s01", labels: lie, want: "k8s01"},
		{name: "bound-without-labels", boundTo: cloudNode, want: cloudNode},
		{name: "bound-to-long", boundTo: longNode, labels: lie},
	} {
		pod := barePod(c.name, c.node, c.labels)
		if c.labels == nil {
			pod.Labels = nil
		}
		s.Launch(pod)
		if c.boundTo != "" {
			s.BindPod(c.name, c.boundTo, c.labels)
		}
		pod = s.GetPod(c.name)
		s.wantLabel(pod, c.want)
		if pod.Labels["team"] != c.labels["team"] {
			s.T.Errorf("%s: other labels are lost: %v", c.name, pod.Labels)
		}
	}
	s.Launch(barePod("bound-the-old-way", "", nil))
	binding := framework.NewBinding("bound-the-old-way", "k8s01", lie)
	s.Must(s.Kube.CoreV1().RESTClient().Post().Namespace(s.Namespace).Resource("bindings").Body(binding).
		Do(s.Ctx()).Error())
	s.wantLabel(s.GetPod("bound-the-old-way"), "k8s01")
}

func (s *scene) testChanges() {
	const (
		label   = `label vm/rack is the name of the node that the pod runs on`
		leave   = `. Leave it as it is.`
		set     = label + ` (k8s01): it cannot be set to "k8s02"` + leave
		again   = label + ` (k8s01): it cannot be set to "k8s03"` + leave
		pending = label + `, and is set when it has one: it cannot be set to "k8s01"` + leave
		allowed = ""
	)
	for _, c := range []struct{ what, pod, patch, subresource, want string }{
		{"a lie", "running", `{"metadata":{"labels":{"vm/rack":"k8s02"}}}`, "", set},
		{"no labels at all, to release it", "running", `{"metadata":{"labels":null}}`, "", allowed},
		{"a lie when there is no label", "running", `{"metadata":{"labels":{"vm/rack":"k8s02"}}}`, "", set},
		{"the truth when there is no label", "running", `{"metadata":{"labels":{"vm/rack":"k8s01"}}}`, "", allowed},
		{"a label without a node", "pending", `{"metadata":{"labels":{"vm/rack":"k8s01"}}}`, "", pending},
		{"one lie for another", "before", `{"metadata":{"labels":{"vm/rack":"k8s03"}}}`, "", again},
		{"a lie with the status", "running", `{"metadata":{"labels":{"vm/rack":"k8s02"}}}`, "status",
			`cannot patch resource "pods/status"`},
		{"another label", "running", `{"metadata":{"labels":{"team":"red"}}}`, "", allowed},
		{"an annotation", "running", `{"metadata":{"annotations":{"team":"red"}}}`, "", allowed},
		{"the truth once more", "running", `{"metadata":{"labels":{"vm/rack":"k8s01"}}}`, "", allowed},
		{"another label beside a lie", "before", `{"metadata":{"labels":{"team":"red"}}}`, "", allowed},
		{"a lie no more", "before", `{"metadata":{"labels":{"vm/rack":null}}}`, "", allowed},
		{"the truth instead", "before", `{"metadata":{"labels":{"vm/rack":"k8s01"}}}`, "", allowed},
		{"a debug container, which leaves labels as they are", "running", `{"metadata":{"labels":{"vm/rack":"k8s02"}},
			"spec":{"ephemeralContainers":[{"name":"debug","image":"x"}]}}`, "ephemeralcontainers", allowed},
		{"a resize, which does as well", "running", `{"metadata":{"labels":{"vm/rack":"k8s02"}}}`, "resize", allowed},
	} {
		if err := s.patchAsMallory(c.pod, c.patch, c.subresource); c.want != allowed {
			s.wantRefused(c.what, err, c.want)
		} else if err != nil {
			s.T.Errorf("%s: %v", c.what, err)
		}
	}
	for pod, label := range map[string]string{"running": "k8s01", "before": "k8s01", "pending": ""} {
		s.wantLabel(s.GetPod(pod), label)
	}
}

// testStatus: the permission to write the status of pods allows changes of their labels. No role for users includes it,
// and Kubernetes itself restricts kubelets. For clusters with other roles the documentation says what to change.
func (s *scene) testStatus() {
	lie := labelPatch(nodeLabel, "k8s02")
	kubelet := s.as("system:node:k8s01", "system:nodes", "system:authenticated").CoreV1().Pods(s.Namespace)
	_, err := kubelet.Patch(s.Ctx(), "running", types.MergePatchType, lie, metav1.PatchOptions{}, "status")
	s.wantRefused("a lie of a kubelet", err, "cannot update labels through pod status")

	s.MustKubectl("create", "role", "status", "--verb=patch", "--resource=pods/status")
	s.grant("--role=status")
	s.changePolicies("resources: [pods]", "resources: [pods, pods/status]")
	s.Eventually("it is refused to others", func(context.Context) error {
		err := s.patchAsMallory("running", string(lie), "status", metav1.DryRunAll)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "it cannot be set to") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	s.PatchPod("running", `{"status":{"message":"still running"}}`, "status") // As its kubelet does.
}

// testFailingPolicy: even if the policies fail in a later version of Kubernetes, pods can be created and bound.
func (s *scene) testFailingPolicy() {
	s.changePolicies(".orValue('')\n  - name: labels", ".orValue('') + string(dyn(object).what)\n  - name: labels")
	s.waitPolicies(nodeLabel, probed{guard: true})
	s.installPolicies()
}

// testLongNodeName: if a node's name is not a valid label value, the controller writes the label, and nobody else can.
func (s *scene) testLongNodeName() {
	// Nothing runs it here: only its permissions matter.
	_, err := s.Kubectl(s.Ctx(), "apply", "-k", framework.ModuleFile("artifacts", "deploy"))
	s.Must(err)
	controller := s.launchAsDeployed()
	s.localService("demo")
	s.WaitLabelled("on-long", longNode)
	s.WaitLabelled("bound-to-long", longNode)
	err = s.patchAsMallory("bound-to-long", `{"metadata":{"labels":{"vm/rack":"k8s01"}}}`, "")
	s.wantRefused("a lie", err, "Leave it as it is.")
	s.Must(controller.Stop())
}
