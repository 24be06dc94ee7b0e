package integration

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

func TestWrongFlags(t *testing.T) {
	t.Parallel()
	tests := []struct {
		args []string
		says []string
	}{
		{[]string{"-workers=0"}, []string{"-workers=0 must be at least 1"}},
		{[]string{"--workers=0"}, []string{"-workers=0 must be at least 1"}},
		{[]string{"-write-concurrency=-1"}, []string{"-write-concurrency=-1 must be at least 1"}},
		{[]string{"-resync-period=-1s"}, []string{"-resync-period=-1s must not be negative"}},
		{[]string{"-resync-period=soon"}, []string{`invalid value "soon" for flag -resync-period`}},
		{[]string{"-max-delete-fraction=1.5"}, []string{"-max-delete-fraction=1.5 must be from 0 (delete nothing) to 1 (no limit)"}},
		{[]string{"-max-delete-fraction=NaN"}, []string{"-max-delete-fraction=NaN must be from 0"}},
		{[]string{"-max-services-per-namespace=-1"}, []string{"-max-services-per-namespace=-1 must not be negative"}},
		{[]string{"-leader-election-lease-duration=2s"}, []string{"-leader-election-lease-duration=2s must be at least 3s"}},
		{[]string{"-node-label-key=a b"}, []string{"-node-label-key=a b is no label key"}},
		{[]string{"-node-label-key="}, []string{"-node-label-key= is no label key"}},
		{[]string{"-node-label-key=owner"}, []string{"-node-label-key=owner", "choose another one"}},
		{[]string{"-logging-format=xml"}, []string{"xml"}},
		{[]string{"-v=loud"}, []string{`invalid value "loud" for flag -v`}},
		{[]string{"-no-such-flag"}, []string{"flag provided but not defined: -no-such-flag"}},
		{[]string{"kubeconfig=FILE"}, []string{`unexpected argument "kubeconfig=FILE"`, "flags begin with a dash"}},
		{[]string{"-workers=0", "-write-concurrency=0"}, []string{"-workers=0", "-write-concurrency=0"}},
	}
	for _, test := range tests {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			wantOutput(t, 2, nil, test.args, test.says...)
		})
	}
}

// wantOutput fails unless the program ends with an exit code, and prints these texts but no trace of a crash.
func wantOutput(t *testing.T, wantCode int, env, args []string, texts ...string) {
	t.Helper()
	exitCode, out := framework.RunProgram(t, env, args...)
	if exitCode != wantCode {
		t.Errorf("exit code %d; want %d", exitCode, wantCode)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			t.Errorf("the output lacks %q", text)
		}
	}
	if strings.Contains(out, "goroutine ") {
		t.Error("the output has a stack trace")
	}
	if t.Failed() {
		t.Logf("the output:\n%s", out)
	}
}

func TestProgramEndsByItself(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("}{"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name      string
		exitCode  int
		env, args []string
		says      []string
	}{
		{"help", 0, nil, []string{"-help"},
			[]string{"local-service-controller gives every node a Service of its own", "-kubeconfig", "-leader-elect", "-node-label-key", "-logging-format"}},
		{"no cluster", 1, nil, nil,
			[]string{"there is no cluster to work for: say which with -kubeconfig=FILE or $KUBECONFIG"}},
		{"no such kubeconfig", 1, nil, []string{"-kubeconfig=/nonexistent/config"},
			[]string{"read the kubeconfig", "/nonexistent/config"}},
		{"broken kubeconfig", 1, nil, []string{"-kubeconfig=" + broken},
			[]string{"read the kubeconfig", broken}},
		{"broken $KUBECONFIG", 1, []string{"KUBECONFIG=" + broken}, nil,
			[]string{"read the kubeconfig", broken}},
		{"address in use", 1, nil, []string{"-kubeconfig=" + shared.Kubeconfig, "-http-address=" + listener.Addr().String()},
			[]string{"address already in use", "choose another address with -http-address, or none with -http-address="}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			wantOutput(t, test.exitCode, test.env, test.args, test.says...)
		})
	}
}

func TestHTTPServer(t *testing.T) {
	t.Parallel()
	controller := shared.Controllers()[0]
	tests := []struct {
		path   string
		status int
		says   []string
	}{
		{"/healthz", http.StatusOK, []string{"ok"}},
		{"/readyz", http.StatusOK, []string{"ok"}},
		{"/metrics", http.StatusOK, []string{
			`workqueue_depth{name="localservice"}`, `workqueue_depth{name="pod"}`, `workqueue_retries_total{name="localservice"}`,
			"rest_client_requests_total{", `localservice_service_writes_total{action="Create",result="success"}`,
			`localservice_status_writes_total{result="success"}`, `localservice_pod_label_writes_total{result="success"}`,
			"localservice_pods_labelled_at_binding 0",
			"kubernetes_build_info{", "process_resident_memory_bytes",
		}},
		{"/debug/pprof/", http.StatusNotFound, nil},
	}
	// Something to count.
	s := newScene(t, shared, "metrics")
	node := s.AddNodes("a")[0]
	s.CreateReady("demo")
	s.CreatePod("pod", node, map[string]string{"app": "demo"})
	s.WaitLabelled("pod", node)
	for _, test := range tests {
		t.Run(test.path, func(t *testing.T) {
			status, body, err := controller.Get(t.Context(), test.path)
			if err != nil {
				t.Fatal(err)
			}
			if status != test.status {
				t.Errorf("status %d; want %d", status, test.status)
			}
			for _, text := range test.says {
				if !strings.Contains(body, text) {
					t.Errorf("%s lacks %q", test.path, text)
				}
			}
			if t.Failed() {
				t.Logf("the answer:\n%s", body)
			}
		})
	}
}

// TestLogsAsJSON tests that every line is an object, and holds what a log collector looks for.
func TestLogsAsJSON(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "json")
	s.AddNodes("a")
	controller := s.NewController(t, "-logging-format=json", "-v=2")
	s.CreateReady("demo")
	s.Must(controller.Stop())
	written := false
	for line := range strings.Lines(controller.Output()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("a line of the log is no JSON: %v: %s", err, line)
			continue
		}
		if entry["msg"] == nil || entry["ts"] == nil {
			t.Errorf("a line of the log lacks msg or ts: %s", line)
		}
		if localService, ok := entry["localService"].(map[string]any); ok && entry["msg"] == "Services written" {
			written = localService["namespace"] == s.Namespace && localService["name"] == "demo"
		}
	}
	if !written {
		t.Errorf("the log does not tell of the Services that were written:\n%s", controller.Output())
	}
}

// TestLogAtDefaultVerbosity tests that the log of a controller that works without trouble is short.
func TestLogAtDefaultVerbosity(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "quiet")
	controller := s.NewController(t)
	s.settle()
	s.Must(controller.Stop())
	// The mutation detector, which only tests switch on, says so.
	lines := slices.DeleteFunc(controller.LogLines(""), func(line string) bool { return strings.Contains(line, "Mutation detector") })
	if len(lines) > 5 {
		t.Errorf("the log has %d lines although nothing needs attention:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}

func TestLabelAllPods(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "allpods")
	s.NewController(t, "-label-all-pods")
	f := s.newFence()
	node := s.AddNodes("a")[0]
	s.CreatePod("without-labels", node, nil)
	s.CreatePod("not-selected", node, map[string]string{"app": "other"})
	s.CreatePod("later", "", nil)
	s.BindPod("later", node, nil)
	completed := s.CreatePod("not-scheduled", "", nil)
	pods := []string{"without-labels", "not-selected", "later"}
	for _, pod := range pods {
		s.WaitLabelled(pod, node)
	}
	f.passPods()
	for _, pod := range pods {
		s.wantOnePatch(pod)
	}
	s.wantPodUntouched(completed)
}

func TestNodeLabelKey(t *testing.T) {
	t.Parallel()
	const key = "example.com/node"
	s := newScene(t, solo(t), "labelkey")
	s.NewController(t, "-node-label-key="+key)
	node := s.AddNodes("a")[0]
	s.CreateReady("demo")
	s.CreatePod("pod", node, map[string]string{"app": "demo"})
	s.Eventually("the pod has the label", func(ctx context.Context) error {
		pod, err := s.PodClient().Get(ctx, "pod", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return framework.Equal("labels", pod.Labels, map[string]string{"app": "demo", key: node})
	})
	service := s.GetService("demo-" + node)
	for _, err := range []error{
		framework.Equal("selector", service.Spec.Selector, map[string]string{"app": "demo", key: node}),
		framework.Equal("labels", service.Labels, map[string]string{v1alpha1.OwnerLabelKey: "demo", key: node}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	// The CustomResourceDefinition does not know of the other key. The controller does.
	s.Create("bad", func(ls *v1alpha1.LocalService) { ls.Spec.Selector[key] = node })
	s.WaitLocalService("bad", "the LocalService tells what is wrong", func(ls *v1alpha1.LocalService) error {
		return errors.Join(
			framework.CheckCondition(ls, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec),
			framework.CheckConditionSays(ls, v1alpha1.ConditionReady, "remove it, and use nodeSelector to choose nodes"),
		)
	})
	s.Update("bad", func(ls *v1alpha1.LocalService) { delete(ls.Spec.Selector, key) })
	s.MustOwn(s.WaitReady("bad"), 1)
}

// TestAllNodes tests a LocalService without a nodeSelector, and the end by Ctrl-C.
func TestAllNodes(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "allnodes")
	controller := s.NewController(t)
	nodes := s.AddNodes("a", "b")
	s.Create("demo", func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = nil })
	for _, node := range nodes {
		s.WaitServiceExists("demo-" + node)
	}
	s.WaitReady("demo")
	s.DeleteNode(nodes[0])
	s.WaitServiceGone("demo-" + nodes[0])
	s.Must(controller.Signal(os.Interrupt))
	if exitCode, err := controller.Wait(); err != nil || exitCode != 0 {
		t.Errorf("after Ctrl-C: exit code %d, %v", exitCode, err)
	}
}

// TestWithoutHTTPServer tests that the controller works without listening anywhere, and finds its cluster by
// $KUBECONFIG, too.
func TestWithoutHTTPServer(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "nohttp")
	controller, err := framework.StartController(framework.ControllerOptions{
		Args: []string{"-http-address="},
		Env:  []string{"KUBECONFIG=" + s.Kubeconfig},
	})
	s.Must(err)
	t.Cleanup(controller.Kill)
	s.AddNodes("a")
	s.MustOwn(s.CreateReady("demo"), 1)
	s.Must(controller.Stop())
}

// TestWarnings tests that a warning of the API server, which comes with the Service of each node, is logged at most
// once.
func TestWarnings(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "warning")
	controller := s.NewController(t)
	s.AddNodes("a", "b", "c", "d", "e")
	s.CreateReady("demo", func(ls *v1alpha1.LocalService) { ls.Spec.TrafficDistribution = new("PreferClose") })
	if lines := controller.LogLines("PreferClose"); len(lines) > 1 {
		t.Errorf("the API server's warning is logged %d times:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}
