package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestWhatIsMissing tests a controller that is started too early: the API server cannot be reached, then it does not
// know LocalServices, then it grants nothing. Each time the log says once what to do, although the answers may differ a
// little, and in the end the controller works. It needs only the permissions in artifacts/deploy, even if an
// admission plug-in guards owner references, and survives the deletion of the CustomResourceDefinition. It starts anew
// when that lacks a field that a LocalService has.
func TestWhatIsMissing(t *testing.T) {
	t.Parallel()
	const namespace, account = framework.ControllerNamespace, framework.ControllerAccount
	options := framework.ControlPlane()
	options.WithoutCRD = true
	options.Args = append(options.Args,
		"--apiserver-flag=--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement")
	cluster := framework.NewCluster(t, options)
	ctx := t.Context()
	cluster.RunKubectl(t, "create", "namespace", namespace)
	cluster.RunKubectl(t, "create", "serviceaccount", account, "--namespace", namespace)
	proxy := framework.NewProxy(t, cluster.AccountKubeconfig(t, namespace, account))
	proxy.IsClosed.Store(true)
	controller := cluster.LaunchController(t, "-kubeconfig="+proxy.Kubeconfig, "-leader-elect",
		"-leader-election-namespace="+namespace)

	// waits fails unless the controller waits with one line that has these texts, even after several attempts.
	waits := func(tries func(), texts ...string) {
		t.Helper()
		if _, err := controller.WaitLog(ctx, append(texts, "Waiting: ")...); err != nil {
			t.Fatal(err)
		}
		tries()
		if lines := controller.LogLines(append(texts, "Waiting: ")...); len(lines) != 1 {
			t.Errorf("the log says %d times what it waits for:\n%s", len(lines), strings.Join(lines, "\n"))
		}
		for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
			if status, body, err := controller.Get(ctx, path); err != nil || status != want {
				t.Errorf("%s: %d %s %v; want %d", path, status, body, err, want)
			}
		}
	}
	// requests waits until the controller has made a number of additional requests for a path.
	requests := func(path string, more int) func() {
		return func() {
			mark := cluster.Audit.Mark()
			cluster.Eventually(t, namespace, "the controller asks for "+path+" again", func(context.Context) error {
				isAbout := func(r *framework.Request) bool { return strings.HasPrefix(r.RequestURI, path) }
				return atLeast(len(cluster.Audit.Since(mark).ByController().Where(isAbout)), more)
			})
		}
	}
	const groupPath = "/apis/localservice.dev/v1alpha1"
	const installCRD = "install crd.yaml of the release (in the source artifacts/examples/crd.yaml)"

	// Each check of the API server makes several attempts to connect, for ten seconds in total.
	waits(func() {
		cluster.Eventually(t, namespace, "the controller has looked several times", func(context.Context) error {
			return atLeast(int(proxy.Requests.Load()), 25)
		})
	}, "cannot be used: check -kubeconfig, and that the cluster runs")
	proxy.IsClosed.Store(false)
	waits(requests(groupPath, 2), "the cluster does not know LocalServices", installCRD)
	crd := framework.ModuleFile("artifacts", "examples", "crd.yaml")
	remove := func(field string) {
		cluster.RunKubectl(t, "replace", "-f", crd)
		cluster.RunKubectl(t, "patch", "customresourcedefinition", framework.CRDName, "--type=json", fmt.Sprintf(
			`--patch=[{"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/%s"}]`, field))
	}
	published := func(field string, want int) {
		cluster.Eventually(t, namespace, "the schema is published", func(ctx context.Context) error {
			schema, err := cluster.Kubectl(ctx, "get", "--raw", "/openapi/v3"+groupPath)
			return errors.Join(err, framework.Equal(field, min(strings.Count(schema, `"`+field+`":`), 1), want))
		})
	}
	if err := cluster.InstallCRD(ctx); err != nil {
		t.Fatal(err)
	}
	remove("spec/properties/publishNotReadyAddresses") // It is replaced before the work begins, so nothing says this.
	const grant = "Permissions are missing: " +
		"grant them as in local-service-controller.yaml of the release (in the source artifacts/deploy)"
	for _, resource := range []string{"localservices", "nodes", "services", "endpointslices"} {
		if _, err := controller.WaitLog(ctx, grant, fmt.Sprintf(`cannot watch resource \"%s\"`, resource)); err != nil {
			t.Fatal(err)
		}
	}
	cluster.RunKubectl(t, "replace", "-f", crd)
	published("publishNotReadyAddresses", 1)
	for _, manifest := range []string{"guard.yaml", "local-service-controller.yaml"} {
		cluster.RunKubectl(t, "apply", "--validate=strict", "-f",
			framework.ModuleFile("artifacts", "deploy", manifest))
	}
	if err := controller.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	began := cluster.Audit.Mark()
	s := newScene(t, cluster, "works")
	s.work("demo")
	if lines := controller.LogLines("older than the controller"); len(lines) > 0 {
		t.Error(lines)
	}

	t.Run("the CustomResourceDefinition goes and comes back", func(t *testing.T) {
		s := s.in(t)
		s.MustKubectl("delete", "customresourcedefinition", framework.CRDName)
		const complaint = "The cluster does not know this resource any more: " + installCRD
		_, err := controller.WaitLog(ctx, complaint)
		s.Must(err)
		s.Must(s.InstallCRD(ctx))
		s.work("again")
		if lines := controller.LogLines(complaint); len(lines) != 1 {
			t.Errorf("the log says %d times that the CustomResourceDefinition is missing:\n%s",
				len(lines), strings.Join(lines, "\n"))
		}
	})
	t.Run("the CustomResourceDefinition is older", func(t *testing.T) {
		s := s.in(t)
		s.AddNodes("older")
		s.CreateReady("older")
		remove("status/properties/readyNodes")
		port := 80
		s.Eventually("the log says what to do", func(context.Context) error {
			port++ // The status follows each change of the spec.
			s.MustKubectl("patch", "localservice", "older", "--type=merge",
				fmt.Sprintf(`--patch={"spec": {"ports": [{"port": %d, "targetPort": 8080}]}}`, port))
			return atLeast(len(controller.LogLines("readyNodes", "older than the controller; apply crd.yaml")), 1)
		})
		remove("spec/properties/publishNotReadyAddresses")
		published("publishNotReadyAddresses", 0)
		_, err := s.LaunchController(t, "-kubeconfig="+proxy.Kubeconfig).WaitLog(s.Ctx(), installCRD,
			"older than the controller: the API server drops fields",
			`fields=["spec.publishNotReadyAddresses"]`)
		s.Must(err)
		s.WaitLocalService("older", "says what may be lacking", func(ls *v1alpha1.LocalService) error {
			message := meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionReady).Message
			if !strings.Contains(message, "may have dropped spec.publishNotReadyAddresses from this LocalService") {
				return errors.New(message)
			}
			return nil
		})
		s.MustKubectl("replace", "-f", crd)
		s.WaitReady("older")
	})
	t.Run("the CustomResourceDefinition becomes older", func(t *testing.T) {
		s := s.in(t)
		s.AddNodes("loses")
		s.CreateReady("loses", func(ls *v1alpha1.LocalService) { ls.Spec.PublishNotReadyAddresses = true })
		remove("spec/properties/publishNotReadyAddresses")
		published("publishNotReadyAddresses", 0)
		s.MustKubectl("annotate", "localservice", "loses", "a=b") // If the watch goes on, only a write shows the loss.
		_, err := controller.WaitLog(ctx, `lacks the fields [\"spec.publishNotReadyAddresses\"] now`)
		s.Must(err)
		if code, err := controller.Wait(); code != 1 || err != nil {
			t.Errorf("the controller ended with exit code %d, %v", code, err)
		}
		s.MustKubectl("replace", "-f", crd)
		published("publishNotReadyAddresses", 1)
	})
	t.Run("the service account is deleted and created again", func(t *testing.T) {
		s := s.in(t)
		args := []string{"-kubeconfig=" + proxy.Kubeconfig, "-leader-elect=false"}
		working := s.LaunchController(t, args...)
		s.Must(working.WaitReady(ctx))
		s.MustKubectl("delete", "serviceaccount", account, "--namespace", namespace)
		s.MustKubectl("create", "serviceaccount", account, "--namespace", namespace)
		s.Eventually("the API server does not know the token any more", func(ctx context.Context) error {
			if out, err := s.Kubectl(ctx, "get", "nodes", "--kubeconfig="+proxy.Kubeconfig); err == nil {
				return errors.New(out)
			}
			return nil
		})
		proxy.Break() // Watches that have begun may go on.
		const badToken = "the API server does not accept the token: it has expired or is of another cluster, or the service " +
			"account was deleted and created again: recreate the controller's pods"
		_, err := working.WaitLog(ctx, "The caches are stale: "+badToken)
		s.Must(err)
		_, err = s.LaunchController(t, args...).WaitLog(ctx, "Waiting: "+badToken)
		s.Must(err)
	})
	if denied := cluster.Audit.Since(began).ByController().Where(isForbidden); len(denied) > 0 {
		t.Errorf("with the permissions in artifacts/deploy the controller was denied: %s", denied)
	}
	if lines := controller.LogLines("Forbidden"); len(lines) > 0 {
		t.Errorf("the log reports missing permissions:\n%s", strings.Join(lines, "\n"))
	}
}

// work makes a controller do all its work: create, patch, adopt and delete Services, label a pod, write the status
// and an event. Its nodes are gone in the end.
func (s *scene) work(name string) {
	s.T.Helper()
	nodes := s.AddNodes(name+"-a", name+"-b")
	s.CreateReady(name)
	s.CreatePod(name, nodes[0], map[string]string{"app": name})
	s.WaitLabelled(name, nodes[0])
	s.Update(name, func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].Port = 81 })
	s.WaitReady(name)
	s.MustKubectl("delete", "localservice", name, "--cascade=orphan")
	s.Eventually("the Services are orphans", func(context.Context) error {
		return framework.Equal("owners", s.GetService(name+"-"+nodes[0]).OwnerReferences, nil)
	})
	s.CreateReady(name)
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

// atLeast returns an error that says how often something has happened, if that is not often enough.
func atLeast(n, want int) error {
	if n < want {
		return fmt.Errorf("it has happened %d times; want %d", n, want)
	}
	return nil
}
