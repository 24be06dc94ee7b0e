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
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

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
	t.Run("a pod with the label of another node", func(t *testing.T) {
		s := s.in(t)
		s.PatchPod("e", `{"metadata":{"labels":{"`+nodeLabel+`":"`+nodes[0]+`"}}}`)
		s.wantPlugin([]string{nodes[0] + " 2 PodsOfOtherNode", nodes[6] + " 0 PodsUnlabelled"}, "nodes", "demo", "-o",
			`jsonpath={range .items[?(@.node=="`+nodes[0]+`")]}{.node} {.endpoints.ready} {.reason}{"\n"}{end}`+
				`{range .items[?(@.node=="`+nodes[6]+`")]}{.node} {.endpoints.ready} {.reason}{"\n"}{end}`)
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

// TestStatusPluginIsFound: kubectl runs the plugin, and its completion, from $PATH. It changes $PATH, so it cannot run
// at the same time as other tests.
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
	if !strings.HasPrefix(out, nodes[0]+"\n:4\n") { // Before kubectl's own words on its error stream.
		t.Errorf("kubectl completes the node to\n%s", out)
	}
}

// kubectlPlugin runs the plugin through kubectl. Flags of kubectl itself, before the plugin's name, are not for
// plugins.
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
