package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestAdmissionOnNodes runs pods in all ways there are, with a real scheduler and real kubelets: no pod is ever seen
// with a node but not its label, and the controller has nothing to write.
func TestAdmissionOnNodes(t *testing.T) {
	s := newSharedAdmissionScene(t)
	s.installPolicies()
	s.localService("demo")
	seen := s.watchPods()

	workloads := s.createWorkloads()
	pods := 6 + 3 + 3 + 3 + 2 // Deployment, DaemonSet, StatefulSet, Job, pods with a node
	static := staticPod(t, s.Namespace, nodes[1], map[string]string{nodeLabel: "another-node"})
	pods++
	s.Eventually("all pods run, and those of the Job have run", func(ctx context.Context) error {
		if n := seen.count(); n != pods {
			return fmt.Errorf("%d of %d pods have a node", n, pods)
		}
		out, err := s.Kubectl(ctx, "--namespace="+s.Namespace, "wait", "--for=condition=Ready", "pod", "--selector=app,!job-name", "--timeout=0s")
		if err == nil {
			out, err = s.Kubectl(ctx, "--namespace="+s.Namespace, "wait", "--for=condition=Complete", "job/demo", "--timeout=0s")
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	s.grant("viewer", rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"})
	s.Eventually("who may only see the namespace sees that the policies work", func(ctx context.Context) error {
		// The DaemonSet's, and one that was created with a node. The others have had a label from elsewhere.
		return checkNodeLabels(ctx, s.Namespace, "demo", "viewer", "AtBinding 4 0", "Node labels: set with the binding, by the admission policies.")
	})

	// What others do with pods is none of our business.
	s.MustKubectl("label", "pod", "--all", "team=blue")
	s.MustKubectl("label", "pod", "--all", "team-")
	s.MustKubectl("annotate", "pod", "--all", "note=1")
	s.MustKubectl(append([]string{"delete", "--cascade=foreground", "--timeout=2m"}, workloads...)...)
	s.Eventually("the garbage collector has deleted the pods", func(ctx context.Context) error {
		list, err := s.PodClient().List(ctx, metav1.ListOptions{LabelSelector: "by"})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	})
	for _, r := range s.AllRequests().Writes() {
		refused := r.ResponseStatus.Code == 403 || r.ResponseStatus.Code == 422 || r.ResponseStatus.Code >= 500
		if refused && (r.ObjectRef.Resource == "pods" || r.ObjectRef.Resource == "bindings") && strings.HasPrefix(r.User.Username, "system:") {
			t.Errorf("%s may not %s %s %s: %d", r.User.Username, r.Verb, framework.Resource(&r), r.ObjectRef.Name, r.ResponseStatus.Code)
		}
	}

	if pod := s.GetPod(static); !isReady(pod) || pod.Annotations[corev1.MirrorPodAnnotationKey] == "" {
		t.Errorf("the static pod: annotations %v, status %+v", pod.Annotations, pod.Status)
	}
	seen.check(t)
	if writes := s.podWrites(); len(writes) > 0 {
		t.Errorf("the controller has written to pods: %s", writes)
	}
	if services := s.AllRequests().ByController().Namespace(s.Namespace).Resource("services").Verb("create"); len(services) != len(nodes) {
		t.Errorf("the controller has created %d Services", len(services))
	}
	s.removePolicies()
	if left := s.policies(); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	afterwards := barePod("afterwards", "", nil)
	afterwards.Spec.SchedulerName = ""
	s.Launch(afterwards)
	s.Eventually("the plugin sees that the policies are gone", func(ctx context.Context) error {
		return checkNodeLabels(ctx, s.Namespace, "demo", "viewer", "ByController 1 1",
			"Node labels: set by the controller, after the binding; with the binding on 1 of 2 pods.")
	})
	if t.Failed() {
		t.Log(s.Describe(s.Namespace))
	}
}

// createWorkloads makes pods in all ways there are, and returns the names of what is behind them. All templates but the
// DaemonSet's have a node label from elsewhere.
func (s *scene) createWorkloads() (names []string) {
	s.T.Helper()
	template := func(by string) (corev1.PodTemplateSpec, *metav1.LabelSelector) {
		own := map[string]string{"by": by}
		t := podTemplate()
		maps.Copy(t.Labels, own)
		if by != "daemonset" {
			t.Labels[nodeLabel] = "another-node"
		}
		t.Spec.TopologySpreadConstraints[0].LabelSelector = &metav1.LabelSelector{MatchLabels: own}
		return t, &metav1.LabelSelector{MatchLabels: own}
	}
	meta := metav1.ObjectMeta{Name: "demo"}
	apps := s.Kube.AppsV1()

	t, selector := template("deployment")
	_, err := apps.Deployments(s.Namespace).Create(s.Ctx(), &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: new(int32(6)), Selector: selector, Template: t}}, metav1.CreateOptions{})
	s.Must(err)
	t, selector = template("daemonset")
	_, err = apps.DaemonSets(s.Namespace).Create(s.Ctx(), &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: t}}, metav1.CreateOptions{})
	s.Must(err)
	t, selector = template("statefulset")
	_, err = apps.StatefulSets(s.Namespace).Create(s.Ctx(), &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)), ServiceName: "demo", Selector: selector, Template: t}}, metav1.CreateOptions{})
	s.Must(err)
	t, _ = template("job")
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	t.Spec.Containers = []corev1.Container{{Name: "help", Image: controllerImage, ImagePullPolicy: corev1.PullNever, Args: []string{"-help"}}}
	_, err = s.Kube.BatchV1().Jobs(s.Namespace).Create(s.Ctx(), &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Completions: new(int32(3)), Parallelism: new(int32(3)), Template: t}}, metav1.CreateOptions{})
	s.Must(err)

	s.wantLabel(s.Launch(barePod("with-node", nodes[0], nil)), nodes[0])
	s.wantLabel(s.Launch(barePod("with-node-and-label", nodes[2], map[string]string{nodeLabel: nodes[0]})), nodes[2])
	return []string{"deployments/demo", "daemonsets/demo", "statefulsets/demo", "jobs/demo"}
}

// TestAdmissionAThousandPods has a real scheduler bind a thousand pods: each is labelled in that write, and the
// controller writes nothing. When the policies are gone, it labels again.
func TestAdmissionAThousandPods(t *testing.T) {
	const pods = 1000
	s := newAdmissionScene(t, framework.ClusterOptions{ControlPlaneOnly: true, Args: []string{"--scheduler", "--controllers", "*,-node-lifecycle-controller"}})
	for i := range 10 {
		s.createNode(fmt.Sprintf("ip-10-0-0-%d.ec2.internal", i))
	}
	s.installPolicies()
	controller := s.NewController(t)
	s.localService("demo")
	seen := s.watchPods()
	s.createPods(pods, func(i int) map[string]string {
		if i%2 == 0 {
			return map[string]string{nodeLabel: "another-node"}
		}
		return nil
	})
	s.Eventually("all pods have a node", func(context.Context) error {
		if n := seen.count(); n != pods {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
	s.Eventually("the controller has made a Service for every node", func(ctx context.Context) error {
		list, err := s.Kube.CoreV1().Services(s.Namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != 10 {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	})
	seen.check(t)
	if writes := s.podWrites(); len(writes) > 0 {
		t.Errorf("the controller has written to pods: %s", writes)
	}
	bound := s.AllRequests().Namespace(s.Namespace).Resource("pods/binding").Verb("create").Where(func(r *framework.Request) bool { return r.ResponseStatus.Code == 201 })
	if len(bound) != pods {
		t.Errorf("the scheduler has bound %d pods", len(bound))
	}
	s.wantFoundOut(controller, "Pods arrive with their node label: the admission policy works", 1)

	s.removePolicies()
	if left := s.policies(); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	s.ResetCount()
	pod := barePod("afterwards", "", map[string]string{nodeLabel: "another-node"})
	pod.Spec.SchedulerName = ""
	s.Launch(pod)
	s.Eventually("the controller labels a new pod", func(context.Context) error {
		if pod := s.GetPod("afterwards"); pod.Spec.NodeName == "" || pod.Labels[nodeLabel] != pod.Spec.NodeName {
			return fmt.Errorf("node %q, labels %v", pod.Spec.NodeName, pod.Labels)
		}
		return nil
	})
	if writes := s.podWrites(); len(writes) != 1 {
		t.Errorf("the controller has written to pods: %s", writes)
	}
	s.wantFoundOut(controller, "Pods arrive without their node label", 0)
	if t.Failed() {
		t.Log(controller.Tail(40))
	}
}

// wantFoundOut fails unless the controller has said once, and tells by its metric, whether the policies work.
func (s *scene) wantFoundOut(controller *framework.Controller, text string, metric int) {
	s.T.Helper()
	if lines := controller.LogLines(text); len(lines) != 1 {
		s.T.Errorf("the controller has said %d times %q", len(lines), text)
	}
	_, body, err := controller.Get(s.Ctx(), "/metrics")
	s.Must(err)
	if want := fmt.Sprintf("\nlocalservice_pods_labelled_at_binding %d\n", metric); !strings.Contains(body, want) {
		s.T.Errorf("want the metric%s", want)
	}
}

// createPods creates pods of the demo app for the scheduler, as fast as it can.
func (s *scene) createPods(n int, labels func(i int) map[string]string) {
	s.T.Helper()
	var creating sync.WaitGroup
	next := make(chan int)
	for range 16 {
		creating.Go(func() {
			for i := range next {
				pod := barePod(fmt.Sprintf("pod-%d", i), "", labels(i))
				pod.Spec.SchedulerName = ""
				if _, err := s.PodClient().Create(s.Ctx(), pod, metav1.CreateOptions{}); err != nil {
					s.T.Error(err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	creating.Wait()
}

// withoutPodGC keeps pods on nodes that there are not: by default they are deleted within a minute.
var withoutPodGC = []string{"--controllers", "*,-pod-garbage-collector-controller"}

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

// TestAdmissionOlderServer installs everything on Kubernetes 1.35: what it does not know it says, and the rest works.
func TestAdmissionOlderServer(t *testing.T) {
	s := newAdmissionScene(t, framework.ClusterOptions{ControlPlaneOnly: true, Args: append([]string{"--apiserver-flag=--emulated-version=1.35"}, withoutPodGC...)})
	everything, err := framework.ModuleFile("artifacts", "with-admission")
	s.Must(err)
	_, err = s.Kubectl(t.Context(), "apply", "-k", everything)
	if err == nil || !strings.Contains(err.Error(), `no matches for kind "MutatingAdmissionPolicy" in version "admissionregistration.k8s.io/v1"`) {
		t.Errorf("want an error that names what is missing, got %v", err)
	}
	if _, err := s.Kube.AppsV1().Deployments(controllerNamespace).Get(t.Context(), controllerName, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	want := []string{"validatingadmissionpolicies/local-service-node-label-guard", "validatingadmissionpolicybindings/local-service-node-label-guard"}
	if got := s.policies(); !slices.Equal(got, want) {
		t.Errorf("there are %v", got)
	}
	s.Eventually("the guard works", func(ctx context.Context) error {
		p, err := s.probe(ctx, nodeLabel)
		if err == nil && p != (probed{guard: true}) {
			err = fmt.Errorf("those that work: %+v", p)
		}
		return err
	})

	// As the controller itself, which has to get by with the guard alone.
	controller := s.LaunchController(t, "-kubeconfig="+s.AccountKubeconfig(t, controllerNamespace, controllerName), "-leader-elect=false")
	s.Must(controller.WaitReady(t.Context()))
	s.localService("demo")
	s.Launch(barePod("stale", "", map[string]string{nodeLabel: "k8s02"}))
	s.BindPod("stale", "k8s01", nil)
	s.Launch(barePod("with-node", "k8s03", nil))
	for name, node := range map[string]string{"stale": "k8s01", "with-node": "k8s03"} {
		s.WaitLabelled(name, node)
	}

	if _, err := s.Kubectl(t.Context(), "delete", "-k", admissionDir(t)); err == nil || !strings.Contains(err.Error(), "no matches for kind") {
		t.Errorf("want an error that names what is missing, got %v", err)
	}
	if left := s.policies(); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// TestAdmissionUpgrade is in the middle of an upgrade from Kubernetes 1.35 to 1.36, with everything installed: one API
// server is new and has the policies, another one on the same data is still old. Whichever a request comes to, pods can
// be bound, all get their label, and nobody can set a false one.
func TestAdmissionUpgrade(t *testing.T) {
	s := newAdmissionScene(t, framework.ClusterOptions{ControlPlaneOnly: true, Args: append([]string{"--apiserver-flag=--emulated-version=1.35"}, withoutPodGC...)})
	everything, err := framework.ModuleFile("artifacts", "with-admission")
	s.Must(err)
	_, _ = s.Kubectl(t.Context(), "apply", "-k", everything) // TestAdmissionOlderServer has what this says.
	controller := s.LaunchController(t, "-kubeconfig="+s.AccountKubeconfig(t, controllerNamespace, controllerName), "-leader-elect=false")
	s.Must(controller.WaitReady(t.Context()))
	s.localService("demo")
	stale := map[string]string{nodeLabel: "k8s09"}
	s.Launch(barePod("from-before", "", stale))
	s.BindPod("from-before", "k8s01", nil)
	s.Launch(barePod("bound-by-old", "", stale))
	s.Launch(barePod("bound-by-new", "", stale))
	s.WaitLabelled("from-before", "k8s01")

	newer := s.in(t)
	newer.Cluster = s.NewSecondAPIServer(t, "--emulated-version")
	_, err = newer.Kubectl(t.Context(), "--kubeconfig="+newer.Kubeconfig, "apply", "-k", everything) // As the documentation says to.
	s.Must(err)
	newer.Eventually("all policies work in the new server", func(ctx context.Context) error {
		p, err := newer.probe(ctx, nodeLabel)
		if err == nil && p != (probed{true, true, true}) {
			err = fmt.Errorf("those that work: %+v", p)
		}
		return err
	})
	newer.BindPod("bound-by-new", "k8s02", stale)
	newer.wantLabel(newer.GetPod("bound-by-new"), "k8s02")
	newer.wantLabel(newer.Launch(barePod("made-by-new", "k8s03", stale)), "k8s03")
	s.BindPod("bound-by-old", "k8s02", nil)
	s.Launch(barePod("made-by-old", "k8s03", stale))
	for name, node := range map[string]string{"from-before": "k8s01", "bound-by-old": "k8s02", "made-by-old": "k8s03"} {
		s.WaitLabelled(name, node)
	}
	for server, side := range map[string]*scene{"old": s, "new": newer} {
		_, err := side.Kube.CoreV1().Pods(s.Namespace).Patch(t.Context(), "bound-by-new", types.MergePatchType, labelPatch(nodeLabel, "k8s09"), metav1.PatchOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "it cannot be set to") {
			t.Errorf("the %s server: want a false label refused, got %v", server, err)
		}
	}
	for _, name := range []string{"bound-by-new", "made-by-new"} {
		if writes := s.podWrites().Name(name); len(writes) > 0 {
			t.Errorf("the controller has written to %s: %s", name, writes)
		}
	}

	newer.MustKubectl("--kubeconfig="+newer.Kubeconfig, "delete", "-k", admissionDir(t))
	if left := newer.policies(); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	if t.Failed() {
		t.Log(controller.Tail(40))
	}
}
