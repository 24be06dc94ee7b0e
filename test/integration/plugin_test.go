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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

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

// TestStatusPlugin inspects a LocalService with `kubectl localservice`, in a cluster whose EndpointSlices are real. One
// of mode Hostnames is inspected in test/e2e.
func TestStatusPlugin(t *testing.T) {
	t.Parallel()
	cluster := framework.NewCluster(t, framework.ClusterOptions{ControlPlaneOnly: true})
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

	const format = `jsonpath={range .items[*]}{.node} {.endpoints.ready}/{.endpoints.total} {.reason}{"\n"}{end}`
	// The result depends on other controllers, such as that of EndpointSlices.
	s.Eventually("the plugin says why nodes do not answer", func(ctx context.Context) error {
		stdout, stderr, err := framework.PluginProgram.Run(ctx, nil, []string{"KUBECONFIG=" + s.Kubeconfig}, "nodes",
			"demo", "-o", format, "--namespace", s.Namespace)
		if err != nil || stderr != "" {
			return fmt.Errorf("%v: %s", err, stderr)
		}
		return framework.Equal("lines", strings.Split(strings.TrimSuffix(stdout, "\n"), "\n"), []string{
			nodes[0] + " 1/1 ",
			nodes[1] + " 0/1 PodsNotReady",
			nodes[2] + " 0/0 NoPods",
			nodes[3] + " 0/0 NameConflict",
			nodes[4] + " 0/0 PodsTerminating",
			nodes[5] + " 0/0 PodsUnlabelled",
			nodes[6] + " 1/1 ",
		})
	})
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
