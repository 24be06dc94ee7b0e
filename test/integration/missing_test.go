package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

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
