package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
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
		{[]string{"-leader-election-lease-duration=1s"}, []string{"-leader-election-lease-duration=1s must be at least 2s"}},
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

// TestWhatIsMissing tells the story of a controller that is started too early: nothing listens at the API server's
// address, then it does not know LocalServices, then it grants nothing. Each time one line of the log says what to do,
// and in the end the controller works. It works with no more than the permissions in artifacts/deploy, also where owner
// references are guarded, and survives the CustomResourceDefinition.
func TestWhatIsMissing(t *testing.T) {
	t.Parallel()
	const namespace, account = "local-service-system", "local-service-controller"
	options := controlPlane()
	options.WithoutCRD = true
	options.Args = append(options.Args, "--apiserver-flag=--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement")
	cluster := framework.NewCluster(t, options)
	ctx := t.Context()
	kubectl := func(args ...string) {
		t.Helper()
		if _, err := cluster.Kubectl(ctx, args...); err != nil {
			t.Fatal(err)
		}
	}
	kubectl("create", "namespace", namespace)
	kubectl("create", "serviceaccount", account, "--namespace", namespace)
	proxy := cluster.NewProxy(t, cluster.AccountKubeconfig(t, namespace, account))
	controller := cluster.LaunchController(t, "-kubeconfig="+proxy.Kubeconfig, "-leader-elect", "-leader-election-namespace="+namespace)

	// waits fails unless the controller waits with one line that has these texts, also after some tries.
	waits := func(tries func(), texts ...string) {
		t.Helper()
		if _, err := controller.WaitLog(ctx, append(texts, "Waiting: ")...); err != nil {
			t.Fatal(err)
		}
		if tries != nil {
			tries()
		}
		if lines := controller.LogLines(append(texts, "Waiting: ")...); len(lines) != 1 {
			t.Errorf("the log says %d times what it waits for:\n%s", len(lines), strings.Join(lines, "\n"))
		}
		for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
			if status, body, err := controller.Get(ctx, path); err != nil || status != want {
				t.Errorf("%s: %d %s %v; want %d", path, status, body, err, want)
			}
		}
	}
	// requests waits until the controller has made so many more requests for a path.
	requests := func(path string, more int) func() {
		return func() {
			mark := cluster.Audit.Mark()
			cluster.Eventually(t, namespace, "the controller asks for "+path+" again", func(context.Context) error {
				n := len(cluster.Audit.Since(mark).ByController().Where(func(r *framework.Request) bool { return strings.HasPrefix(r.RequestURI, path) }))
				if n < more {
					return fmt.Errorf("it has asked %d times", n)
				}
				return nil
			})
		}
	}
	const groupPath = "/apis/localservice.dev/v1alpha1"

	waits(nil, "cannot be reached: check -kubeconfig, and that the cluster runs", "connection refused")
	proxy.Listen(t)
	waits(requests(groupPath, 2), "the cluster does not know LocalServices", "install it with `kubectl create -f artifacts/examples/crd.yaml`")
	if err := cluster.InstallCRD(ctx); err != nil {
		t.Fatal(err)
	}
	waits(requests(groupPath, 2), "permissions are missing: ",
		"list localservices.localservice.dev, watch localservices.localservice.dev, patch localservices/status.localservice.dev",
		"create services", "delete services", "patch pods", "create events.events.k8s.io",
		"update leases.coordination.k8s.io in namespace "+namespace,
		"grant them as in artifacts/deploy/local-service-controller.yaml")

	manifest, err := framework.ModuleFile("artifacts", "deploy", "local-service-controller.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kubectl("apply", "--validate=strict", "-f", manifest)
	if err := controller.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	s := newScene(t, cluster, "works")
	s.work("demo")

	t.Run("the CustomResourceDefinition goes and comes back", func(t *testing.T) {
		s := s.in(t)
		s.Must(s.RemoveCRD(ctx))
		_, err := controller.WaitLog(ctx, "The cluster does not know this resource any more: install it with `kubectl create -f artifacts/examples/crd.yaml`")
		s.Must(err)
		s.Must(s.InstallCRD(ctx))
		s.work("again")
		if lines := controller.LogLines("The cluster does not know this resource any more"); len(lines) != 1 {
			t.Errorf("the log says %d times that the CustomResourceDefinition is missing:\n%s", len(lines), strings.Join(lines, "\n"))
		}
	})
	if denied := cluster.Audit.Since(0).ByController().Where(func(r *framework.Request) bool {
		return r.User.Username == "system:serviceaccount:"+namespace+":"+account && r.ResponseStatus.Code == http.StatusForbidden
	}); len(denied) > 0 {
		t.Errorf("with the permissions in artifacts/deploy the controller was denied: %s", denied)
	}
	if lines := controller.LogLines("Forbidden"); len(lines) > 0 {
		t.Errorf("the log tells of missing permissions:\n%s", strings.Join(lines, "\n"))
	}
}

// TestUnreachable tests that a controller that waits for its API server does not fill the log, although what it is told
// each time differs a little.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	proxy := shared.NewProxy(t, shared.Kubeconfig)
	proxy.Block()
	proxy.Listen(t)
	controller, err := framework.StartController(framework.ControllerOptions{Args: []string{"-kubeconfig=" + proxy.Kubeconfig}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(controller.Kill)
	const complaint = "cannot be reached: check -kubeconfig, and that the cluster runs"
	// Each look at the API server is some attempts to connect, for ten seconds altogether.
	shared.Eventually(t, "none", "the controller has looked several times", func(context.Context) error {
		if n := proxy.Attempts(); n < 25 {
			return fmt.Errorf("it has tried %d times to connect", n)
		}
		return nil
	})
	if lines := controller.LogLines("Waiting: ", complaint); len(lines) != 1 {
		t.Errorf("the log says %d times what it waits for:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	if err := controller.Stop(); err != nil {
		t.Error(err)
	}
}

// work has a controller do all that it does: create, patch, replace and delete Services, label a pod, write the status
// and an event. Its nodes are gone in the end.
func (s *scene) work(name string) {
	s.T.Helper()
	nodes := s.AddNodes(name+"-a", name+"-b")
	s.CreateReady(name)
	s.CreatePod(name, nodes[0], map[string]string{"app": name})
	s.WaitLabelled(name, nodes[0])
	s.Update(name, func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].Port = 81 })
	s.WaitReady(name)
	s.Update(name, framework.WithClusterIP)
	s.WaitReady(name)
	for _, node := range nodes {
		s.DeleteNode(node)
		s.WaitServiceGone(name + "-" + node)
	}
	s.Eventually("there is an event", func(ctx context.Context) error {
		events, err := s.Events(ctx, name, "ServicesWritten")
		if err == nil && len(events) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
}

// TestWarnings tests that a warning of the API server, which comes with the Service of each node, is logged at most once.
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

// TestPermissionsTakenAway tests that a controller whose permissions are taken away while it works says so, and goes
// on when they are back.
func TestPermissionsTakenAway(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "revoked")
	kubectl := func(args ...string) { t.Helper(); s.MustKubectl(args...) }
	kubectl("create", "serviceaccount", "controller")
	binding := s.Namespace
	grant := func() {
		t.Helper()
		kubectl("create", "clusterrolebinding", binding, "--clusterrole=cluster-admin", "--serviceaccount="+s.Namespace+":controller")
		t.Cleanup(func() {
			_, _ = s.Kubectl(context.Background(), "delete", "clusterrolebinding", binding, "--ignore-not-found")
		})
	}
	grant()
	controller := s.LaunchController(t, "-kubeconfig="+s.AccountKubeconfig(t, s.Namespace, "controller"))
	s.Must(controller.WaitReady(s.Ctx()))
	node := s.AddNodes("a", "b")[0]
	s.CreateReady("demo")

	kubectl("delete", "clusterrolebinding", binding)
	s.DeleteService("demo-" + node)
	line, err := controller.WaitLog(s.Ctx(), s.Namespace+"/demo", "forbidden")
	s.Must(err)
	if !regexp.MustCompile(`create Service .* is forbidden`).MatchString(line) {
		t.Errorf("the log does not say what is forbidden: %s", line)
	}
	grant()
	s.WaitReady("demo")
	s.WaitServiceExists("demo-" + node)
}
