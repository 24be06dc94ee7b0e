package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const pluginName = "kubectl-localservice"

// plugin runs the plugin in the scene's namespace.
func (s *scene) plugin(args ...string) (stdout, stderr string, err error) {
	s.T.Helper()
	return framework.PluginProgram.Run(s.Ctx(), nil, []string{"KUBECONFIG=" + s.pluginKubeconfig()}, args...)
}

// pluginKubeconfig is the cluster's kubeconfig, with the scene's namespace in its context.
func (s *scene) pluginKubeconfig() string {
	s.T.Helper()
	config, err := clientcmd.LoadFromFile(s.Kubeconfig)
	s.Must(err)
	for _, c := range config.Contexts {
		c.Namespace = s.Namespace
	}
	path := filepath.Join(s.T.TempDir(), "kubeconfig")
	s.Must(clientcmd.WriteToFile(*config, path))
	return path
}

// wantPlugin waits until the plugin prints these lines. Its answers follow other controllers, such as that of
// EndpointSlices.
func (s *scene) wantPlugin(lines []string, args ...string) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("the plugin answers to %v", args), func(context.Context) error {
		stdout, stderr, err := s.plugin(args...)
		if err != nil || stderr != "" {
			return fmt.Errorf("%v: %s", err, stderr)
		}
		return framework.Equal("lines", strings.Split(strings.TrimSuffix(stdout, "\n"), "\n"), lines)
	})
}

// setPodStatus does what a kubelet does: the pod is ready, or its container waits for a reason.
func (s *scene) setPodStatus(name, ip, waits string) {
	s.T.Helper()
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
	}
	if waits != "" {
		status.Conditions[0].Status = corev1.ConditionFalse
		status.ContainerStatuses[0].Ready = false
		status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: waits}}
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	s.Must(err)
	s.PatchPod(name, string(patch), "status")
}

// TestStatusPlugin looks at a LocalService with `kubectl localservice`, in a cluster whose EndpointSlices are real.
func TestStatusPlugin(t *testing.T) {
	t.Parallel()
	cluster := framework.NewCluster(t, framework.ClusterOptions{ControlPlaneOnly: true})
	controller := cluster.NewController(t)
	s := newScene(t, cluster, "plugin")
	nodes := s.AddNodes("1", "2", "3", "4", "5", "6", "7.example.com")
	services := map[string]string{}
	for _, node := range nodes {
		services[node] = naming.ServiceName("demo", node)
	}
	taken := services[nodes[3]]
	s.CreateService(framework.NewForeignService(taken, nil))
	ls := s.Create("demo")
	for i, name := range map[int]string{0: "a", 1: "b", 4: "c", 5: "d", 6: "e"} {
		s.CreatePod(name, nodes[i], map[string]string{"app": "demo"})
		s.WaitLabelled(name, nodes[i])
	}
	s.WaitServices(ls, slices.DeleteFunc(slices.Collect(maps.Values(services)), func(name string) bool { return name == taken })...)

	// From here on nobody corrects what the test spoils.
	s.Must(controller.Stop())
	for i, name := range []string{"a", "c", "d", "e"} {
		s.setPodStatus(name, fmt.Sprintf("10.1.0.%d", i+1), "")
	}
	s.setPodStatus("b", "10.1.0.9", "CrashLoopBackOff")
	s.PatchPod("c", `{"metadata":{"finalizers":["example.org/hold"]}}`)
	s.Must(s.PodClient().Delete(s.Ctx(), "c", metav1.DeleteOptions{}))
	s.PatchPod("d", `{"metadata":{"labels":{"`+nodeLabel+`":null}}}`)

	t.Run("reasons", func(t *testing.T) {
		s := s.in(t)
		s.wantPlugin([]string{
			nodes[0] + " 1/1 ",
			nodes[1] + " 0/1 PodsNotReady",
			nodes[2] + " 0/0 NoPods",
			nodes[3] + " 0/0 NameConflict",
			nodes[4] + " 0/0 PodsTerminating",
			nodes[5] + " 0/0 PodsUnlabelled",
			nodes[6] + " 1/1 ",
		}, "nodes", "demo", "-o", `jsonpath={range .items[*]}{.node} {.endpoints.ready}/{.endpoints.total} {.reason}{"\n"}{end}`)
	})
	t.Run("table", func(t *testing.T) {
		s := s.in(t)
		stdout, _, err := s.plugin("nodes", "lsvc/demo", "-o", "wide")
		s.Must(err)
		suffix := `\.` + s.Namespace + `\.svc\.cluster\.local`
		line := func(node int, columns string) string {
			name := regexp.QuoteMeta(services[nodes[node]])
			return regexp.QuoteMeta(nodes[node]) + ` +` + name + ` +` + name + suffix + ` +` + columns
		}
		wantTable(t, stdout,
			`NODE +SERVICE +DNS-NAME +ENDPOINTS +PODS +ADDRESSES +REASON`,
			line(0, `1/1 +a +10\.1\.0\.1`),
			line(1, `0/1 +b +<none> +not ready: b \(CrashLoopBackOff\)`),
			line(2, `0/0 +<none> +<none> +no pod with app=demo here`),
			line(3, `0/0 +<none> +<none> +the name is taken by a Service that nothing controls: .*`),
			line(4, `0/0 +c +<none> +only terminating pods: c`),
			line(5, `0/0 +d +<none> +no label `+nodeLabel+`=`+nodes[5]+`: d; .*`),
			line(6, `1/1 +e +10\.1\.0\.4`))
	})
	t.Run("names", func(t *testing.T) {
		s := s.in(t)
		stdout, _, err := s.plugin("nodes", "demo", "-o", "name")
		s.Must(err)
		// Other commands take them.
		if out := s.MustKubectl(append([]string{"get", "-o", "name"}, strings.Fields(stdout)...)...); out != stdout || strings.Count(out, "\n") != 6 {
			t.Errorf("kubectl get of\n%s\nprints\n%s", stdout, out)
		}
	})
	t.Run("requests", func(t *testing.T) {
		s := s.in(t)
		mark := s.Audit.Mark()
		_, _, err := s.plugin("nodes", "demo")
		s.Must(err)
		requests := s.Audit.Since(mark).Where(func(r *framework.Request) bool { return strings.HasPrefix(r.UserAgent, pluginName+"/") })
		count := map[string]int{}
		for i := range requests {
			count[requests[i].Verb+" "+framework.Resource(&requests[i])]++
		}
		s.Must(framework.Equal("requests", count, map[string]int{
			"get localservices": 1, "list nodes": 1, "list services": 2, "list endpointslices": 1, "list pods": 1}))
	})
	t.Run("url", func(t *testing.T) {
		s := s.in(t)
		// Headless: clients connect to the pods' own port.
		s.wantPlugin([]string{"http://" + services[nodes[6]] + "." + s.Namespace + ":8080"}, "url", "demo", nodes[6], "--port", "80")
		s.wantPluginError("the name is taken by a Service that nothing controls", "url", "demo", nodes[3])
		s.wantPluginError("there is no node nowhere", "url", "demo", "nowhere")
	})
	t.Run("completion", func(t *testing.T) {
		s := s.in(t)
		for word, want := range map[string]string{"de": "demo\n:4\n", "x": ":4\n"} {
			stdout, _, err := s.plugin("__complete", "nodes", word)
			s.Must(err)
			s.Must(framework.Equal("completion of "+word, stdout, want))
		}
	})
	t.Run("without permission to list nodes", func(t *testing.T) {
		s := s.in(t)
		user := s.namespacedUser()
		stdout, stderr, err := s.plugin("nodes", "demo", "--no-headers", "--as", user)
		s.Must(err)
		if strings.Count(stdout, "\n") != 6 || !strings.Contains(stderr, "you may not list nodes") {
			t.Errorf("stdout:\n%s\nstderr: %s", stdout, stderr)
		}
		s.wantPluginError("kubectl auth can-i get localservices.localservice.dev", "nodes", "demo", "--as", "nobody")
	})
	t.Run("a pod with the label of another node", func(t *testing.T) {
		s := s.in(t)
		s.PatchPod("e", `{"metadata":{"labels":{"`+nodeLabel+`":"`+nodes[0]+`"}}}`)
		s.wantPlugin([]string{nodes[0] + " 2 PodsOfOtherNode", nodes[6] + " 0 PodsUnlabelled"}, "nodes", "demo", "-o",
			`jsonpath={range .items[?(@.node=="`+nodes[0]+`")]}{.node} {.endpoints.ready} {.reason}{"\n"}{end}`+
				`{range .items[?(@.node=="`+nodes[6]+`")]}{.node} {.endpoints.ready} {.reason}{"\n"}{end}`)
	})
	t.Run("nobody makes Services", func(t *testing.T) {
		s := s.in(t)
		s.Create("other")
		stdout, _, err := s.plugin("nodes", "other", "--no-headers")
		s.Must(err)
		if strings.Count(stdout, "the controller has not seen the LocalService yet: is it running?\n") != len(nodes) {
			t.Errorf("it does not say that the controller is not running:\n%s", stdout)
		}
	})
}

// TestStatusPluginErrors asks a cluster that has never heard of LocalServices.
func TestStatusPluginErrors(t *testing.T) {
	t.Parallel()
	cluster := framework.NewCluster(t, framework.ClusterOptions{ControlPlaneOnly: true, WithoutCRD: true})
	s := newScene(t, cluster, "plugin-errors")
	s.wantPluginError("kubectl create -f artifacts/examples/crd.yaml", "nodes", "demo")
	s.wantPluginError("the cluster cannot be reached", "nodes", "demo", "--server", "https://127.0.0.1:1")
}

// TestStatusPluginIsFound: kubectl runs the plugin, and its completion, from $PATH. It changes $PATH, so it cannot run at the
// same time as other tests.
func TestStatusPluginIsFound(t *testing.T) {
	script := framework.MustModuleFile(t, "cmd", pluginName)
	t.Setenv("PATH", filepath.Dir(framework.PluginProgram.MustPath(t))+":"+script+":"+os.Getenv("PATH"))
	s := newScene(t, shared, "plugin-found")
	nodes := s.AddNodes("a")
	s.CreateReady("demo")
	wantTable(t, s.kubectlPlugin("nodes", "demo"),
		`NODE +SERVICE +DNS-NAME +ENDPOINTS +REASON`,
		nodes[0]+` +demo-`+nodes[0]+` +demo-`+nodes[0]+`\.\S+ +0/0 +no pod with app=demo here`)
	out, err := s.Kubectl(s.Ctx(), "__complete", "localservice", "url", "demo", "--namespace", s.Namespace, "")
	s.Must(err)
	if !strings.Contains(out, "\n"+nodes[0]+"\n:4\n") { // Among kubectl's own words on its error stream.
		t.Errorf("kubectl completes the node to\n%s", out)
	}
}

// kubectlPlugin runs the plugin through kubectl. Flags of kubectl itself, before the plugin's name, are not for plugins.
func (s *scene) kubectlPlugin(args ...string) string {
	s.T.Helper()
	out, err := s.Kubectl(s.Ctx(), append(append([]string{"localservice"}, args...), "--namespace", s.Namespace)...)
	s.Must(err)
	return out
}

// wantPluginError fails unless the plugin fails and says why.
func (s *scene) wantPluginError(want string, args ...string) {
	s.T.Helper()
	stdout, stderr, err := s.plugin(args...)
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 || stdout != "" || !strings.HasPrefix(stderr, "error: ") || !strings.Contains(stderr, want) {
		s.T.Errorf("%v: %v, stdout %q, stderr %q; want exit code 1 and %q", args, err, stdout, stderr, want)
	}
}

// namespacedUser is the name of a user who may see what is in the scene's namespace, and nothing else.
func (s *scene) namespacedUser() string {
	s.T.Helper()
	const user = "developer"
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"", "discovery.k8s.io", v1alpha1.GroupName},
		Resources: []string{"services", "pods", "endpointslices", "localservices"},
		Verbs:     []string{"get", "list"},
	}}}
	_, err1 := s.Kube.RbacV1().Roles(s.Namespace).Create(s.Ctx(), role, metav1.CreateOptions{})
	_, err2 := s.Kube.RbacV1().RoleBindings(s.Namespace).Create(s.Ctx(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	s.Must(errors.Join(err1, err2))
	// The authorizer learns of them a moment later.
	s.Eventually(user+" may look at LocalServices", func(context.Context) error {
		_, stderr, err := s.plugin("nodes", "demo", "--as", user)
		if err != nil {
			return fmt.Errorf("%w: %s", err, stderr)
		}
		return nil
	})
	return user
}
