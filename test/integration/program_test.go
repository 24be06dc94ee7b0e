package integration

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestProgramEndsByItself tests when the program ends, its exit codes, and that it says why, without a stack trace.
func TestProgramEndsByItself(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	inUse := listener.Addr().String()
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
			[]string{"gives every node a Service of its own", "-kubeconfig", "-leader-elect", "-logging-format"}},
		{"version", 0, nil, []string{"-version"}, []string{"local-service-controller version v"}},
		{"wrong flag", 2, nil, []string{"-workers=0"}, []string{"-workers=0 must be at least 1"}},
		{"no cluster", 1, nil, nil,
			[]string{"there is no cluster to work for: say which with -kubeconfig=FILE or $KUBECONFIG"}},
		{"no such kubeconfig", 1, nil, []string{"-kubeconfig=/nonexistent/config"},
			[]string{"read the kubeconfig", "/nonexistent/config"}},
		{"broken kubeconfig", 1, nil, []string{"-kubeconfig=" + broken},
			[]string{"read the kubeconfig", broken}},
		{"broken $KUBECONFIG", 1, []string{"KUBECONFIG=" + broken}, nil,
			[]string{"read the kubeconfig", broken}},
		{"no certificate", 1, []string{"KUBECONFIG=" + shared.MustControllerKubeconfig(t)},
			[]string{"-metrics-secure-address=127.0.0.1:0",
				"-metrics-tls-cert-file=/nonexistent/tls.crt", "-metrics-tls-key-file=" + broken},
			[]string{"read the certificate for /metrics", "/nonexistent/tls.crt"}},
		{"secure address in use", 1, []string{"KUBECONFIG=" + shared.MustControllerKubeconfig(t)},
			[]string{"-metrics-secure-address=" + inUse},
			[]string{"address already in use", "choose another address with -metrics-secure-address"}},
		{"address in use", 1, []string{"KUBECONFIG=" + shared.MustControllerKubeconfig(t)}, []string{"-http-address=" + inUse},
			[]string{"address already in use", "choose another address with -http-address, or none with "}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, err := framework.StartController(framework.ControllerOptions{Args: test.args, Env: test.env})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Kill)
			if exitCode, err := c.Wait(); err != nil || exitCode != test.exitCode {
				t.Errorf("exit code %d, %v; want %d", exitCode, err, test.exitCode)
			}
			out := c.Output()
			for _, text := range test.says {
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
		})
	}
}

// TestLogsAsJSON tests that every line of the log is an object, and holds what a log collector looks for. This
// controller listens on no address, finds its cluster through $KUBECONFIG, and ends after Ctrl-C as after SIGTERM.
func TestLogsAsJSON(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "json")
	controller, err := framework.StartController(framework.ControllerOptions{
		Args: []string{"-http-address=", "-logging-format=json", "-v=2"},
		Env:  []string{"KUBECONFIG=" + s.MustControllerKubeconfig(t)},
	})
	s.Must(err)
	t.Cleanup(controller.Kill)
	s.AddNodes("a")
	s.CreateReady("demo")
	s.Must(controller.Signal(os.Interrupt))
	if exitCode, err := controller.Wait(); err != nil || exitCode != 0 {
		t.Errorf("after Ctrl-C: exit code %d, %v", exitCode, err)
	}
	written := false
	for line := range strings.Lines(controller.Output()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry["msg"] == nil || entry["ts"] == nil {
			t.Errorf("a line of the log is no JSON with msg and ts: %v: %s", err, line)
		}
		if localService, ok := entry["localService"].(map[string]any); ok && entry["msg"] == "Services written" {
			written = localService["namespace"] == s.Namespace && localService["name"] == "demo"
		}
	}
	if !written {
		t.Errorf("the log does not mention the Services that were written:\n%s", controller.Output())
	}
}

// TestNodeLabelKey tests a label other than the default one, on the Services of all nodes and on all pods.
func TestNodeLabelKey(t *testing.T) {
	t.Parallel()
	const key = "example.com/node"
	s := newScene(t, solo(t), "labelkey")
	permissions := allShipped(t)
	permissions.NodeLabelKey = key
	s.NewController(t, "-kubeconfig="+s.NewAccount(t, s.Namespace, "controller", permissions), "-node-label-key="+key,
		"-label-all-pods")
	node := s.AddNodes("a")[0]
	s.CreateReady("demo", func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = nil })
	s.CreatePod("pod", "", map[string]string{"app": "of-nobody"})
	s.BindPod("pod", node, nil)
	s.Eventually("the pod has the label", func(ctx context.Context) error {
		pod, err := s.PodClient().Get(ctx, "pod", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return framework.Equal("labels", pod.Labels, map[string]string{"app": "of-nobody", key: node})
	})
	service := s.GetService("demo-" + node)
	if err := errors.Join(
		framework.Equal("selector", service.Spec.Selector, map[string]string{"app": "demo", key: node}),
		framework.Equal("labels", service.Labels, map[string]string{v1alpha1.OwnerLabelKey: "demo", key: node}),
	); err != nil {
		t.Error(err)
	}
	// The CustomResourceDefinition does not know the other key. The controller does, and reports it by name.
	s.Create("bad", func(ls *v1alpha1.LocalService) { ls.Spec.Selector[key] = "any" })
	s.WaitNotReady("bad", v1alpha1.ReasonInvalidSpec, "spec.selector names the node label "+key)
	s.Update("bad", func(ls *v1alpha1.LocalService) { delete(ls.Spec.Selector, key) })
	s.WaitReady("bad")
}

func TestProfiling(t *testing.T) {
	t.Parallel()
	for controller, want := range map[*framework.Controller]int{solo(t).NewController(t, "-profiling"): http.StatusOK,
		shared.Controllers()[0]: http.StatusNotFound} {
		status, body, err := controller.Get(t.Context(), "/debug/pprof/")
		if err != nil || status != want || strings.Contains(body, "goroutine") != (want == http.StatusOK) {
			t.Errorf("/debug/pprof/: %d, want %d; %v %s", status, want, err, body)
		}
	}
}
