package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

func TestStatusKubectl(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "kubectl")
	s.AddNodes("a", "b")
	s.CreateReady("demo")

	t.Run("get", func(t *testing.T) {
		s := s.in(t)
		for _, resource := range []string{"lsvc", "localservice", "localservices", "localservices.localservice.dev"} {
			wantTable(t, s.MustKubectl("get", resource),
				`NAME +NODES +ANSWERING +STATUS +AGE`,
				`demo +2 +0/2 +NoneAnswering +[0-9ms]+`)
		}
		wantTable(t, s.MustKubectl("get", "lsvc", "-o", "wide"),
			`NAME +NODES +ANSWERING +STATUS +MODE +SERVICES +AGE`,
			`demo +2 +0/2 +NoneAnswering +Services +2 +[0-9ms]+`)
	})
	t.Run("get all", func(t *testing.T) {
		out := s.in(t).MustKubectl("get", "all")
		for _, want := range []string{"localservice.localservice.dev/demo", "service/demo-" + s.NodeName("a")} {
			if !strings.Contains(out, want) {
				t.Errorf("kubectl get all does not show %s:\n%s", want, out)
			}
		}
	})
}

// TestAdoptionCommand: the message of NameTaken has the command after which a Service that somebody made for a node is
// adopted, and keeps its UID. With the plugin's, the name is no conflict any more, either.
func TestAdoptionCommand(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "adopt")
	var before []*corev1.Service
	for _, node := range s.AddNodes("a.b", "c") {
		before = append(before, s.CreateService(framework.NewForeignService(naming.ServiceName("demo", node), nil)))
	}
	ls := s.Create("demo")
	ls = s.WaitNotReady(ls.Name, v1alpha1.ReasonNameTaken, "have each adopted, such as: kubectl patch service")
	run := func(text string) {
		t.Helper()
		command := regexp.MustCompile(`kubectl (patch service .* --type=merge -p) '([^']*)'`).FindStringSubmatch(text)
		if command == nil {
			t.Fatalf("no command in %s", text)
		}
		s.MustKubectl(append(strings.Fields(command[1]), command[2])...)
	}
	run(meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionReady).Message)
	s.WaitNotReady(ls.Name, v1alpha1.ReasonNameTaken, "have it adopted: kubectl patch service")
	stdout, stderr, err := framework.PluginProgram.Run(s.Ctx(), nil, []string{"KUBECONFIG=" + s.Kubeconfig}, "nodes",
		ls.Name, "--namespace", s.Namespace)
	if err != nil || !strings.Contains(stdout, "the name is taken by a Service without an owner") {
		t.Errorf("%v: %s", err, stdout)
	}
	run(stderr)
	ls = s.WaitReady(ls.Name)
	for _, was := range before {
		if now := s.GetService(was.Name); now.UID != was.UID || !metav1.IsControlledBy(now, ls) {
			t.Errorf("%s was not adopted, but is %v", was.Name, now.ObjectMeta)
		}
	}
}

// TestStatusPlugin: kubectl runs the plugin, and its completion, from $PATH. It changes $PATH, so it cannot run
// at the same time as other tests.
func TestStatusPlugin(t *testing.T) {
	script := framework.ModuleFile("cmd", "kubectl-localservice")
	t.Setenv("PATH", filepath.Dir(framework.PluginProgram.MustPath(t))+":"+script+":"+os.Getenv("PATH"))
	s := newScene(t, shared, "plugin-found")
	node := s.AddNodes("a")[0]
	s.CreateReady("demo")
	// Flags of kubectl itself, before the plugin's name, are not for plugins.
	out, err := s.Kubectl(s.Ctx(), "localservice", "nodes", "demo", "--namespace", s.Namespace, "-o", "name")
	s.Must(err)
	if out != "service/demo-"+node+"\n" {
		t.Errorf("kubectl localservice nodes prints %q", out)
	}
	out, err = s.Kubectl(s.Ctx(), "create", "localservice", "other", "--selector", "app=other", "--port",
		"http=80:8080", "--port", "dns=53/UDP", "--headless", "--node-selector", "disk=ssd", "--namespace", s.Namespace)
	s.Must(err)
	if out != "localservice.localservice.dev/other created\nwarning: clients must connect to port 8080 (not 80): a "+
		"headless Service does not translate ports\n" {
		t.Errorf("kubectl create localservice prints %q", out)
	}
	out, err = s.Kubectl(s.Ctx(), "__complete", "localservice", "url", "--namespace", s.Namespace, "d")
	s.Must(err)
	if !strings.HasPrefix(out, "demo\n") { // Before kubectl's own words on its error stream.
		t.Errorf("kubectl completes the name to\n%s", out)
	}
}

// TestAuthProvider: the plugin works with the kubeconfigs that login helpers for OpenID Connect write, as kubectl does.
// Until it has expired, client-go sends the ID token as it is; here it is a service account's.
func TestAuthProvider(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "auth-provider")
	s.Create("demo")
	read := framework.Permissions{OwnRules: []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}}
	config, err := clientcmd.LoadFromFile(s.NewAccount(t, s.Namespace, "reader", read))
	s.Must(err)
	for name, user := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "oidc",
			Config: map[string]string{"id-token": user.Token, "idp-issuer-url": "https://127.0.0.1:1",
				"client-id": "test"}}}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	s.Must(clientcmd.WriteToFile(*config, path))
	out, errOut, err := framework.PluginProgram.Run(s.Ctx(), nil, []string{"KUBECONFIG=" + path}, "nodes",
		"--namespace="+s.Namespace)
	if err != nil || !strings.Contains(errOut, "LocalService "+s.Namespace+"/demo: nodes") {
		t.Errorf("%v: %s\n%s", err, errOut, out)
	}
}

// TestProxyWithoutBookmarks: behind a proxy that drops bookmarks, as some do, a watch shows what there is and what
// changes.
func TestProxyWithoutBookmarks(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "bookmarks")
	nodes := s.AddNodes("a", "b")
	s.CreateReady("demo")
	proxy := framework.NewProxy(t, s.Kubeconfig)
	proxy.DropsBookmarks.Store(true)
	cmd := exec.Command(framework.PluginProgram.MustPath(t), "nodes", "demo", "-w", "--namespace="+s.Namespace,
		"--kubeconfig="+proxy.Kubeconfig)
	plugin, err := framework.StartProcess(cmd, syscall.SIGTERM)
	s.Must(err)
	t.Cleanup(plugin.Kill)
	ctx, cancel := context.WithTimeout(s.Ctx(), framework.DefaultTimeout)
	defer cancel()
	for _, node := range nodes {
		_, err := plugin.WaitFor(ctx, "it shows "+node, func() string {
			return regexp.MustCompile(`(?m)^` + node + ` +demo-` + node).FindString(plugin.Output())
		})
		s.Must(err)
	}
	s.DeleteNode(nodes[0])
	_, err = plugin.WaitFor(ctx, "it shows the change", func() string {
		return regexp.MustCompile(`(?m)^` + nodes[0] + ` .*gone`).FindString(plugin.Output())
	})
	s.Must(err)
}

// wantTable fails unless a table has these lines, which are regular expressions.
func wantTable(t *testing.T, table string, lines ...string) {
	t.Helper()
	if !regexp.MustCompile(`^` + strings.Join(lines, ` *\n`) + ` *\n$`).MatchString(table) {
		t.Errorf("the table\n%s is not\n%s", table, strings.Join(lines, "\n"))
	}
}
