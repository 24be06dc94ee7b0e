// Package e2e tests the whole on three real nodes (bin/playground): pods that run, DNS, kube-proxy, and the controller
// in the cluster, as artifacts/deploy installs it.
//
// Most tests share a cluster. Those that need it for themselves, because they take nodes away, the controller down or
// change what all pods get, run first, one after the other; the others then run at the same time, each in a namespace of
// its own. Some start a cluster of their own: the walk-through, which tells how to, and the tests of admission policies
// that need no nodes but a thousand pods, or another version of Kubernetes.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	controllerNamespace = "local-service-system"
	controllerName      = "local-service-controller"
	controllerImage     = "localhost/local-service-controller:dev"
	appImage            = "localhost/localservice-app:1"
)

var (
	// cluster is the cluster that the tests share.
	cluster *framework.Cluster
	// nodes are the nodes that it has from the beginning to the end.
	nodes = []string{"k8s01", "k8s02", "k8s03"}
	// playgroundBin, controllerBin, pluginBin and appBin are what is tested.
	playgroundBin, controllerBin, pluginBin, appBin string
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == clientCommand {
		os.Exit(client(os.Stdin, os.Stdout))
	}
	framework.Main(m, func(ctx context.Context) (func() error, error) {
		if err := findBinaries(); err != nil {
			return nil, err
		}
		var err error
		cluster, err = framework.StartCluster(ctx, framework.ClusterOptions{
			Nodes:  nodes,
			Images: map[string]string{controllerImage: controllerBin, appImage: appBin},
		})
		if err != nil {
			return nil, err
		}
		if err := installController(ctx); err != nil {
			return nil, errors.Join(err, errors.New(state("")), cluster.Stop())
		}
		return func() error { return errors.Join(checkControllerLogs(), cluster.Stop()) }, nil
	})
}

// findBinaries finds what `make build playground` builds, or what the environment names instead.
func findBinaries() error {
	var errs []error
	find := func(name, variable, target string) string {
		path := os.Getenv(variable)
		if path == "" {
			var err error
			if path, err = framework.ModuleFile("bin", name); err != nil {
				errs = append(errs, err)
				return ""
			}
		}
		path, err := filepath.Abs(path)
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the tests run %s: build it with `make %s`, or say with $%s where it is: %w", name, target, variable, err))
		}
		return path
	}
	playgroundBin = find("playground", "PLAYGROUND_BIN", "playground")
	controllerBin = find("local-service-controller", "CONTROLLER_BIN", "build")
	pluginBin = find("kubectl-localservice", "PLUGIN_BIN", "build")
	appBin = find("localservice-app", "APP_BIN", "build")
	return errors.Join(errs...)
}

// installController installs the controller as the documentation says to, and waits until both replicas are ready.
func installController(ctx context.Context) error {
	path, err := framework.ModuleFile("artifacts", "deploy", "local-service-controller.yaml")
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		// A playground of an ordinary user has only that one user, who is root in it.
		manifests, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		path = filepath.Join(filepath.Dir(cluster.Kubeconfig), "local-service-controller.yaml")
		asRoot := strings.NewReplacer("runAsNonRoot: true", "runAsNonRoot: false", "65532", "0", "enforce: restricted", "enforce: baseline")
		if err := os.WriteFile(path, []byte(asRoot.Replace(string(manifests))), 0o600); err != nil {
			return err
		}
	}
	if _, err := cluster.Kubectl(ctx, "create", "-f", path); err != nil {
		return err
	}
	_, err = cluster.Kubectl(ctx, "-n", controllerNamespace, "rollout", "status", "deployment/"+controllerName, "--timeout=2m")
	return err
}

// checkControllerLogs finds what no test may cause: a controller that panics, or ends by itself.
func checkControllerLogs() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pods, err := controllerPods(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i := range pods {
		for _, status := range pods[i].Status.ContainerStatuses {
			if status.RestartCount > 0 {
				log, err := cluster.Kubectl(ctx, "-n", controllerNamespace, "logs", "--previous", "--tail=60", pods[i].Name)
				errs = append(errs, err, fmt.Errorf("controller %s was restarted; the log before ends with:\n%s", pods[i].Name, log))
			}
		}
		log, err := cluster.Kubectl(ctx, "-n", controllerNamespace, "logs", pods[i].Name)
		if i := strings.Index(log, "panic"); i >= 0 {
			errs = append(errs, fmt.Errorf("controller %s has panicked: %s", pods[i].Name, log[i:min(len(log), i+4000)]))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// playground runs a command of the cluster's playground, and returns what it prints.
func playground(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, playgroundBin, args...)
	cmd.Env = append(os.Environ(), "PLAYGROUND_DIR="+filepath.Dir(cluster.Kubeconfig))
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("playground %s: %w: %s", strings.Join(args, " "), err, &stderr)
	}
	return out, nil
}

// plugin runs the kubectl plugin in a namespace.
func plugin(ctx context.Context, namespace string, args ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, pluginBin, append([]string{"--namespace=" + namespace}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig)
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("kubectl-localservice %s: %w: %s", strings.Join(args, " "), err, &errOut)
	}
	return out.String(), errOut.String(), err
}

// checkNodeLabels returns nil if the kubectl plugin, run as somebody, says this of the node labels of a LocalService's
// pods: how the newest got it, and how many with the binding and by the controller.
func checkNodeLabels(ctx context.Context, namespace, localService, user, want, line string) error {
	as := []string{"nodes", localService}
	if user != "" {
		as = append(as, "--as="+user)
	}
	got, _, err := plugin(ctx, namespace, append(as, "-o", "jsonpath={.nodeLabels.newest} {.nodeLabels.atBinding} {.nodeLabels.byController}")...)
	if err == nil && got != want {
		err = fmt.Errorf("the plugin says %q; want %q", got, want)
	}
	if err != nil {
		return err
	}
	_, stderr, err := plugin(ctx, namespace, as...)
	if err == nil && !strings.Contains(stderr, "\n"+line+"\n") && !strings.HasPrefix(stderr, line+"\n") {
		err = fmt.Errorf("the plugin says %q; want %q", stderr, line)
	}
	return err
}

// state is what there is in the cluster, for messages: with a namespace only what concerns that, and the nodes and the
// controller in any case.
func state(namespace string) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	where := "--all-namespaces"
	if namespace != "" {
		where = "--namespace=" + namespace
	}
	var b strings.Builder
	for _, args := range [][]string{
		{"get", "node", "--show-labels"},
		{"get", "localservice", where, "-o", "custom-columns=NAMESPACE:.metadata.namespace,NAME:.metadata.name,GENERATION:.metadata.generation,NODESELECTOR:.spec.nodeSelector,STATUS:.status"},
		{"get", "service", where, "-o", "wide", "--show-labels"},
		{"get", "endpointslice", where, "-o", "custom-columns=NAME:.metadata.name,ADDRESSES:.endpoints[*].addresses,READY:.endpoints[*].conditions.ready"},
		{"get", "pod", where, "-o", "wide", "--show-labels"},
		{"get", "event", where, "--sort-by=.metadata.creationTimestamp", "-o", "custom-columns=TYPE:.type,REASON:.reason,KIND:.involvedObject.kind,OBJECT:.involvedObject.name,MESSAGE:.message"},
		{"get", "pod,lease", "--namespace=" + controllerNamespace, "-o", "wide"},
		{"logs", "--namespace=" + controllerNamespace, "--selector=app=" + controllerName, "--prefix", "--tail=40"},
	} {
		out, err := cluster.Kubectl(ctx, args...)
		if err != nil {
			out = err.Error()
		}
		fmt.Fprintf(&b, "--- kubectl %s\n%s\n", strings.Join(args[:2], " "), lastLines(out, 60))
	}
	return b.String()
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
