package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestAdmissionGuard has somebody who may do everything in a namespace try to get another node's traffic.
func TestAdmissionGuard(t *testing.T) {
	s := newAdmissionScene(t, framework.ClusterOptions{ControlPlaneOnly: true, Args: withoutPodGC})
	s.Launch(barePod("before", "k8s01", map[string]string{nodeLabel: "k8s02"})) // No policy corrects it.
	s.installPolicies()
	s.grant("mallory", rbacv1.RoleRef{Kind: "ClusterRole", Name: "admin"})
	admin := s.as("mallory").CoreV1().Pods(s.Namespace)

	t.Run("create", func(t *testing.T) {
		s := s.in(t)
		pod, err := admin.Create(t.Context(), barePod("pending", "", map[string]string{nodeLabel: "k8s02"}), metav1.CreateOptions{})
		s.Must(err)
		s.wantLabel(pod, "")
		pod, err = admin.Create(t.Context(), barePod("running", "k8s01", map[string]string{nodeLabel: "k8s02"}), metav1.CreateOptions{})
		s.Must(err)
		s.wantLabel(pod, "k8s01")
		only := barePod("unlabelled", "k8s01", nil)
		only.Labels = nil
		s.wantLabel(s.Launch(only), "k8s01")
	})
	t.Run("refused", func(t *testing.T) { s.in(t).testRefused() })
	t.Run("allowed", func(t *testing.T) { s.in(t).testAllowed() })
	t.Run("binding", func(t *testing.T) {
		s := s.in(t)
		s.grantVerbs("mallory", "create", "pods/binding", "bindings")
		client := s.as("mallory").CoreV1()
		for name, bind := range map[string]func(b *corev1.Binding) error{
			"bound": func(b *corev1.Binding) error {
				return client.Pods(s.Namespace).Bind(t.Context(), b, metav1.CreateOptions{})
			},
			"bound-the-old-way": func(b *corev1.Binding) error {
				return client.RESTClient().Post().Namespace(s.Namespace).Resource("bindings").Body(b).Do(t.Context()).Error()
			},
		} {
			s.Launch(barePod(name, "", nil))
			s.Must(bind(framework.NewBinding(name, "k8s01", map[string]string{nodeLabel: "k8s02", "team": "blue"})))
			pod := s.GetPod(name)
			s.wantLabel(pod, "k8s01")
			if pod.Labels["team"] != "blue" || pod.Labels["app"] != "demo" {
				t.Errorf("other labels are lost: %v", pod.Labels)
			}
		}
	})
	t.Run("status", func(t *testing.T) { s.in(t).testStatus() })
	t.Run("failing policy", func(t *testing.T) { s.in(t).testFailingPolicy() })
	t.Run("long node name", func(t *testing.T) { s.in(t).testLongNodeName() })
	t.Run("another key", func(t *testing.T) { s.in(t).testAnotherKey("example.com/node") })
}

func (s *scene) grant(user string, role rbacv1.RoleRef) {
	s.T.Helper()
	_, err := s.Kube.RbacV1().RoleBindings(s.Namespace).Create(s.Ctx(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "grant-"},
		RoleRef:    role,
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	s.Must(err)
}

func (s *scene) grantVerbs(user, verb string, resources ...string) {
	s.T.Helper()
	role, err := s.Kube.RbacV1().Roles(s.Namespace).Create(s.Ctx(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "grant-"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: resources, Verbs: []string{verb}}},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.grant(user, rbacv1.RoleRef{Kind: "Role", Name: role.Name})
}

func (s *scene) testRefused() {
	admin := s.as("mallory").CoreV1().Pods(s.Namespace)
	patch := func(pod string, kind types.PatchType, data string, subresources ...string) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			options := metav1.PatchOptions{}
			if kind == types.ApplyPatchType {
				options.FieldManager, options.Force = "mallory", new(true)
			}
			_, err := admin.Patch(ctx, pod, kind, []byte(data), options, subresources...)
			return err
		}
	}
	kubectl := func(args ...string) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, err := s.Kubectl(ctx, append([]string{"--namespace=" + s.Namespace, "--as=mallory"}, args...)...)
			return err
		}
	}
	set := `label vm/rack is the name of the node that the pod runs on (k8s01): it cannot be set to "k8s02". Leave it as it is.`
	removed := `label vm/rack is the name of the node that the pod runs on (k8s01): it cannot be removed. Leave it as it is.`
	pending := `label vm/rack is the name of the node that the pod runs on, and is set when it has one: it cannot be set to "k8s01". Leave it as it is.`
	for name, c := range map[string]struct {
		try  func(ctx context.Context) error
		want string
	}{
		"update": {func(ctx context.Context) error {
			pod := s.GetPod("running")
			pod.Labels[nodeLabel] = "k8s02"
			_, err := admin.Update(ctx, pod, metav1.UpdateOptions{})
			return err
		}, set},
		"update without the label": {func(ctx context.Context) error {
			pod := s.GetPod("running")
			pod.Labels = nil
			_, err := admin.Update(ctx, pod, metav1.UpdateOptions{})
			return err
		}, removed},
		"merge patch":       {patch("running", types.MergePatchType, string(labelPatch(nodeLabel, "k8s02"))), set},
		"strategic patch":   {patch("running", types.StrategicMergePatchType, string(labelPatch(nodeLabel, "k8s02"))), set},
		"JSON patch":        {patch("running", types.JSONPatchType, `[{"op":"replace","path":"/metadata/labels/vm~1rack","value":"k8s02"}]`), set},
		"JSON patch away":   {patch("running", types.JSONPatchType, `[{"op":"remove","path":"/metadata/labels"}]`), removed},
		"server-side apply": {patch("running", types.ApplyPatchType, `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"vm/rack":"k8s02"}}}`), set},
		"status patch":      {patch("running", types.MergePatchType, string(labelPatch(nodeLabel, "k8s02")), "status"), `cannot patch resource "pods/status"`},
		"kubectl label":     {kubectl("label", "--overwrite", "pod/running", "vm/rack=k8s02"), set},
		"kubectl unlabel":   {kubectl("label", "pod/running", "vm/rack-"), removed},
		"pod without node":  {kubectl("label", "pod/pending", "vm/rack=k8s01"), pending},
		"one lie to another": {patch("before", types.MergePatchType, string(labelPatch(nodeLabel, "k8s03"))),
			strings.Replace(set, "k8s02", "k8s03", 1)},
	} {
		err := c.try(s.Ctx())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			s.T.Errorf("%s: want it refused because %s\ngot: %v", name, c.want, err)
		}
		if status := apierrors.APIStatus(nil); errors.As(err, &status) && !apierrors.IsForbidden(err) {
			s.T.Errorf("%s: refused, but not as forbidden: %v", name, err)
		}
	}
	s.wantLabel(s.GetPod("running"), "k8s01")
	s.wantLabel(s.GetPod("pending"), "")
}

func (s *scene) testAllowed() {
	admin := s.as("mallory").CoreV1().Pods(s.Namespace)
	s.grantVerbs("mallory", "patch", "pods/ephemeralcontainers", "pods/resize")
	for _, c := range []struct {
		name, pod, patch string
		subresources     []string
	}{
		{"another label", "running", `{"metadata":{"labels":{"team":"blue"}}}`, nil},
		{"an annotation", "running", `{"metadata":{"annotations":{"team":"blue"}}}`, nil},
		{"the truth once more", "running", string(labelPatch(nodeLabel, "k8s01")), nil},
		{"another label, of a pod with a false one", "before", `{"metadata":{"labels":{"team":"blue"}}}`, nil},
		{"no false label any more", "before", `{"metadata":{"labels":{"vm/rack":null}}}`, nil},
		{"the truth instead", "before", string(labelPatch(nodeLabel, "k8s01")), nil},
		{"a debug container, which leaves labels as they are", "running", `{"metadata":{"labels":{"vm/rack":"k8s02"}},"spec":{"ephemeralContainers":[{"name":"debug","image":"x"}]}}`, []string{"ephemeralcontainers"}},
		{"a resize, which leaves labels as they are", "running", string(labelPatch(nodeLabel, "k8s02")), []string{"resize"}},
	} {
		kind := types.StrategicMergePatchType
		if _, err := admin.Patch(s.Ctx(), c.pod, kind, []byte(c.patch), metav1.PatchOptions{}, c.subresources...); err != nil {
			s.T.Errorf("%s: %v", c.name, err)
		}
	}
	s.wantLabel(s.GetPod("running"), "k8s01")
	s.wantLabel(s.GetPod("before"), "k8s01")
}

// testStatus: who may write the status of pods may change their labels by that way. No role for users includes it, and
// kubelets are held back by Kubernetes itself. For clusters with other roles the documentation says what to change.
func (s *scene) testStatus() {
	try := func(user string, groups ...string) error {
		_, err := s.as(user, groups...).CoreV1().Pods(s.Namespace).Patch(s.Ctx(), "running", types.MergePatchType, labelPatch(nodeLabel, "k8s02"),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		return err
	}
	if err := try("system:node:k8s01", "system:nodes", "system:authenticated"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot update labels through pod status") {
		s.T.Errorf("want it refused to a kubelet, got %v", err)
	}
	s.grantVerbs("mallory", "patch", "pods/status")
	dir := changedPolicies(s.T, "resources: [pods]", "resources: [pods, pods/status]")
	s.MustKubectl("apply", "-k", dir)
	s.Eventually("it is refused to others", func(context.Context) error {
		if err := try("mallory"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "it cannot be set to") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	s.Must(s.kubeletSays("running", "still running"))
	s.MustKubectl("apply", "-k", admissionDir(s.T))
}

// kubeletSays changes a pod's status as its kubelet does.
func (s *scene) kubeletSays(pod, message string) error {
	_, err := s.PodClient().Patch(s.Ctx(), pod, types.StrategicMergePatchType, fmt.Appendf(nil, `{"status":{"message":%q}}`, message), metav1.PatchOptions{}, "status")
	return err
}

// testFailingPolicy: whatever the policies come to in a later Kubernetes, pods can be created and bound.
func (s *scene) testFailingPolicy() {
	s.MustKubectl("apply", "-k", changedPolicies(s.T, ".orValue('')\n  - name: labels", ".orValue('') + string(dyn(object).what)\n  - name: labels"))
	s.Eventually("the policies that label fail, and harm nobody", func(ctx context.Context) error {
		p, err := s.probe(ctx, nodeLabel)
		if err == nil && p != (probed{guard: true}) {
			err = fmt.Errorf("those that work: %+v", p)
		}
		return err
	})
	s.installPolicies()
}

// testLongNodeName: a node's name that is no label value is left to the controller, and to nobody else.
func (s *scene) testLongNodeName() {
	node := strings.Repeat("n", 60) + ".example.com"
	s.Launch(barePod("long", "", nil))
	s.BindPod("long", node, map[string]string{nodeLabel: "k8s02"})
	s.wantLabel(s.GetPod("long"), "")
	s.wantLabel(s.Launch(barePod("long-from-the-start", node, map[string]string{nodeLabel: "k8s02"})), "")

	deploy, err := framework.ModuleFile("artifacts", "deploy")
	s.Must(err)
	_, err = s.Kubectl(s.Ctx(), "apply", "-k", deploy) // Nothing runs it here; it is for the permissions.
	s.Must(err)
	controller := s.LaunchController(s.T, "-kubeconfig="+s.AccountKubeconfig(s.T, controllerNamespace, controllerName), "-leader-elect=false")
	s.Must(controller.WaitReady(s.Ctx()))
	s.localService("demo")
	want := naming.NodeLabelValue(node)
	for _, name := range []string{"long", "long-from-the-start"} {
		s.WaitLabelled(name, want)
	}
	admin := s.as("mallory").CoreV1().Pods(s.Namespace)
	for _, patch := range []string{string(labelPatch(nodeLabel, "k8s01")), `{"metadata":{"labels":{"vm/rack":null}}}`} {
		if _, err := admin.Patch(s.Ctx(), "long", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
			s.T.Errorf("%s: want it refused, got %v", patch, err)
		}
	}
	s.Must(controller.Stop())
}

// testAnotherKey: the policies for a controller with -node-label-key.
func (s *scene) testAnotherKey(key string) {
	s.applyPolicies(changedPolicies(s.T, nodeLabel, key), key)
	s.Launch(barePod("another-key", "", map[string]string{key: "k8s02", nodeLabel: "any"}))
	s.BindPod("another-key", "k8s01", nil)
	if labels := s.GetPod("another-key").Labels; labels[key] != "k8s01" || labels[nodeLabel] != "any" {
		s.T.Errorf("the pod's labels are %v", labels)
	}
	_, err := s.as("mallory").CoreV1().Pods(s.Namespace).Patch(s.Ctx(), "another-key", types.MergePatchType, labelPatch(key, "k8s02"), metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "label "+key) {
		s.T.Errorf("want it refused, got %v", err)
	}
}
