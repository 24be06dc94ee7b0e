package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// wantPlugin waits until the plugin prints these lines about the scene's namespace, and no warning except that nodes
// cannot be listed. It waits because the result depends on other controllers, such as that of EndpointSlices.
func (s *scene) wantPlugin(lines []string, args ...string) {
	s.T.Helper()
	args = append(args, "--namespace", s.Namespace)
	s.Eventually(fmt.Sprintf("the plugin answers to %v", args), func(ctx context.Context) error {
		stdout, stderr, err := framework.PluginProgram.Run(ctx, nil, []string{"KUBECONFIG=" + s.Kubeconfig}, args...)
		if err != nil || stderr != "" && !strings.HasPrefix(stderr, "warning: you may not list nodes") {
			return fmt.Errorf("%v: %s", err, stderr)
		}
		return framework.Equal("lines", strings.Split(strings.TrimSuffix(stdout, "\n"), "\n"), lines)
	})
}

// setPodStatus does what a kubelet does: the pod is ready, or its container waits for a reason.
func (s *scene) setPodStatus(name, ip, waits string) {
	s.T.Helper()
	ready, state := corev1.ConditionTrue, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	restarts := int32(0)
	if waits != "" {
		ready = corev1.ConditionFalse
		state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: waits}}
	}
	if waits == "CrashLoopBackOff" {
		restarts = 7
	}
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: waits == "", State: state,
			RestartCount: restarts}},
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	s.Must(err)
	s.PatchPod(name, string(patch), "status")
}

// TestStatusPlugin inspects LocalServices with `kubectl localservice`, in a cluster whose EndpointSlices are real.
func TestStatusPlugin(t *testing.T) {
	t.Parallel()
	cluster := framework.NewCluster(t, framework.ClusterOptions{ControlPlaneOnly: true, Hostnames: true})
	t.Run("Services", func(t *testing.T) { pluginWithServices(t, cluster) })
	t.Run("Hostnames", func(t *testing.T) { pluginWithHostnames(t, cluster) })
}

func pluginWithServices(t *testing.T, cluster *framework.Cluster) {
	controller := cluster.NewController(t)
	s := newScene(t, cluster, "plugin")
	nodes := s.AddNodes("1", "2", "3", "4", "5", "6", "7.example.com")
	s.CreateService(framework.NewForeignService("demo-"+nodes[3], nil))
	s.Create("demo")
	for i, name := range map[int]string{0: "a", 1: "b", 4: "c", 5: "d", 6: "e"} {
		s.CreatePod(name, nodes[i], app)
		s.WaitLabelled(name, nodes[i])
	}
	s.waitConflict("demo", len(nodes), 1)

	// From here on, nobody repairs what the test breaks.
	s.Must(controller.Stop())
	for i, name := range []string{"a", "c", "d", "e"} {
		s.setPodStatus(name, fmt.Sprintf("10.1.0.%d", i+1), "")
	}
	s.setPodStatus("b", "10.1.0.9", "CrashLoopBackOff")
	s.PatchPod("c", `{"metadata":{"finalizers":["example.org/hold"]}}`)
	s.Must(s.PodClient().Delete(s.Ctx(), "c", metav1.DeleteOptions{}))
	s.PatchPod("d", `{"metadata":{"labels":{"`+nodeLabel+`":null}}}`)

	s.wantPlugin([]string{
		nodes[0] + " 1/1 ",
		nodes[1] + " 0/1 PodsNotReady",
		nodes[2] + " 0/0 NoPods",
		nodes[3] + " 0/0 NameConflict",
		nodes[4] + " 0/0 PodsTerminating",
		nodes[5] + " 0/0 PodsUnlabelled",
		nodes[6] + " 1/1 ",
	}, "nodes", "demo", "-o",
		`jsonpath={range .items[*]}{.node} {.endpoints.ready}/{.endpoints.total} {.reason}{"\n"}{end}`)
}

func pluginWithHostnames(t *testing.T, cluster *framework.Cluster) {
	controller := cluster.NewController(t)
	s := newScene(t, cluster, "plugin-names")
	s.allowViewer()
	nodes := []string{s.NodeName("1"), s.NodeName("2"), s.NodeName("3"), s.NodeName("4")}
	for i, zone := range []string{"a", "a", "B"} {
		s.CreateNode(nodes[i], map[string]string{"zone": zone})
	}
	s.CreateNode(nodes[3], nil)
	s.Create("demo", func(ls *v1alpha1.LocalService) { ls.Spec.Mode = v1alpha1.ModeHostnames })
	for i, name := range []string{"a", "b", "c"} {
		s.CreatePod(name, nodes[i], app)
	}
	s.setPodStatus("a", "10.1.1.1", "")
	s.setPodStatus("b", "10.1.1.2", "CrashLoopBackOff")
	s.setPodStatus("c", "10.1.1.3", "")
	const format = `jsonpath={range .items[*]}{.node}={.hostname} {.endpoints.ready}/{.endpoints.total} ` +
		`{.reason}{"\n"}{end}`
	of := func(name, rest string) string { return name + "=" + name + " " + rest }
	published := []string{of(nodes[0], "1/1 "), of(nodes[1], "0/1 PodsNotReady"), of(nodes[2], "1/1 ")}
	s.wantPlugin(append(published, of(nodes[3], "0/0 NoPods")), "nodes", "demo", "-o", format)
	s.wantPlugin(published, "nodes", "demo", "-o", format, "--as=viewer")
	url := "http://" + nodes[2] + ".demo." + s.Namespace + ".svc.cluster.local:8080"
	s.wantPlugin([]string{url}, "url", "demo", nodes[2], "--as=viewer")

	s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.GroupBy = "zone" })
	b := naming.Hostname("B")
	s.wantPlugin([]string{"B=" + b + " 1/1 ", "a=a 1/2 PodsNotReady", nodes[3] + "= 0/0 NodeWithoutName"},
		"nodes", "demo", "-o", format)
	s.wantPlugin([]string{"a=a 1/2 PodsNotReady", b + "=" + b + " 1/1 "}, "nodes", "demo", "-o", format, "--as=viewer")

	// From here on, nobody reacts to changes.
	s.Must(controller.Stop())
	s.setPodStatus("c", "10.1.1.3", "CrashLoopBackOff")
	s.wantPlugin([]string{"B=" + b + " 0/1 NameOutdated", "a=a 1/2 PodsNotReady", nodes[3] + "= 0/0 NodeWithoutName"},
		"nodes", "demo", "-o", format)
	s.DeleteService("demo")
	s.wantPlugin([]string{"B=" + b + " 0/0 ServiceMissing", "a=a 0/0 ServiceMissing",
		nodes[3] + "= 0/0 NodeWithoutName"}, "nodes", "demo", "-o", format)

	restarted := cluster.NewController(t)
	s.wantPlugin([]string{"B=" + b + " 0/1 PodsNotReady", "a=a 1/2 PodsNotReady", nodes[3] + "= 0/0 NodeWithoutName"},
		"nodes", "demo", "-o", format)
	s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.Mode, ls.Spec.GroupBy = "", "" })
	s.wantPlugin([]string{"Services: The mode is being changed: the names of the previous mode, <node>.demo,"},
		"nodes", "demo", "-o", "go-template={{.mode}}: {{slice .message 0 71}}\n")
	s.Must(restarted.Stop())
}

// allowViewer lets the user viewer see what there is in the scene's namespace, and nothing of the cluster.
func (s *scene) allowViewer() {
	s.T.Helper()
	meta := metav1.ObjectMeta{Name: "viewer"}
	see := func(group string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"get", "list"}}
	}
	rbac := s.Kube.RbacV1()
	_, err := rbac.Roles(s.Namespace).Create(s.Ctx(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		see(v1alpha1.SchemeGroupVersion.Group, "localservices"), see("", "services", "pods"),
		see("discovery.k8s.io", "endpointslices")}}, metav1.CreateOptions{})
	s.Must(err)
	_, err = rbac.RoleBindings(s.Namespace).Create(s.Ctx(), &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "viewer"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "viewer"}}}, metav1.CreateOptions{})
	s.Must(err)
}

// TestStatusPluginIsFound: kubectl runs the plugin, and its completion, from $PATH. It changes $PATH, so it cannot run
// at the same time as other tests.
func TestStatusPluginIsFound(t *testing.T) {
	script := framework.MustModuleFile(t, "cmd", "kubectl-localservice")
	t.Setenv("PATH", filepath.Dir(framework.PluginProgram.MustPath(t))+":"+script+":"+os.Getenv("PATH"))
	s := newScene(t, shared, "plugin-found")
	node := s.AddNodes("a")[0]
	s.CreateReady("demo")
	// Flags of kubectl itself, before the plugin's name, are not for plugins.
	out, err := s.Kubectl(s.Ctx(), "localservice", "nodes", "demo", "--namespace", s.Namespace)
	s.Must(err)
	wantTable(t, out, `NODE +SERVICE +DNS-NAME +ENDPOINTS +REASON`,
		node+` +demo-`+node+` +demo-`+node+`\.\S+ +0/0 +no pod with app=demo here`,
		`No pod in namespace \S+ has the labels app=demo\.`,
		`LocalService \S+/demo: nodes 1, answering 0/1, status NoPodsReady\.`)
	out, err = s.Kubectl(s.Ctx(), "__complete", "localservice", "url", "demo", "--namespace", s.Namespace, "")
	s.Must(err)
	if !strings.HasPrefix(out, node+"\n:4\n") { // Before kubectl's own words on its error stream.
		t.Errorf("kubectl completes the node to\n%s", out)
	}
}
