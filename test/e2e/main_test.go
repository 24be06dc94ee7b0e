// Package e2e tests the whole on three real nodes (bin/playground): pods that run, DNS, kube-proxy, and the controller
// in the cluster, as artifacts/deploy installs it.
//
// Most tests share a cluster. Those that need it exclusively, because they remove nodes, stop the controller or change
// what all pods get, run first, one after the other. Then the others run at the same time, each in a namespace of its
// own. Some start a cluster of their own: the walk-through, which shows how to, and tests of admission policies that
// need an attacker instead of nodes, or another version of Kubernetes. The migration, which waits for minutes and uses
// the namespace default, has a target of its own in the Makefile.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// nodes are the nodes that it has during all tests.
	nodes = []string{"k8s01", "k8s02", "k8s03"}
)

func TestMain(m *testing.M) {
	commands := map[string]func(io.Reader, io.Writer) error{clientCommand: client, askCommand: keepAsking}
	if run := commands[os.Args[len(os.Args)-1]]; run != nil {
		if err := run(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	framework.Main(m, func(ctx context.Context) (func() error, error) {
		controller, err1 := framework.ControllerProgram.Path()
		app, err2 := framework.AppProgram.Path()
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		var err error
		cluster, err = framework.StartCluster(ctx, framework.ClusterOptions{
			Nodes:  nodes,
			Images: map[string]string{controllerImage: controller, appImage: app},
			Args:   []string{"--dual-stack"}, // What does not ask for it has IPv4 only.
		})
		if err != nil {
			return nil, err
		}
		if err := installController(ctx); err != nil {
			return nil, errors.Join(err, errors.New(cluster.Describe("")), cluster.Stop())
		}
		return func() error { return errors.Join(checkControllerLogs(), cluster.Stop()) }, nil
	})
}

// installController installs the controller as documented, and waits until both replicas are ready.
func installController(ctx context.Context) error {
	for _, name := range []string{"guard.yaml", "local-service-controller.yaml", "hostnames.yaml"} {
		path, err := forUser(framework.ModuleFile("artifacts", "deploy", name), filepath.Dir(cluster.Kubeconfig))
		if err == nil {
			_, err = cluster.Kubectl(ctx, "create", "-f", path)
		}
		if err != nil {
			return err
		}
	}
	return waitRollout(ctx)
}

// forUser returns the path of manifests that this user's playground can run: the playground of an ordinary user has
// only that one user, who is root in it. A changed copy of the manifests is written to the folder.
func forUser(path, folder string) (string, error) {
	if os.Geteuid() == 0 {
		return path, nil
	}
	manifests, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	asRoot := strings.NewReplacer("runAsNonRoot: true", "runAsNonRoot: false", "65532", "0",
		"enforce: restricted", "enforce: baseline")
	path = filepath.Join(folder, filepath.Base(path))
	return path, os.WriteFile(path, []byte(asRoot.Replace(string(manifests))), 0o600)
}

// waitRollout waits until both replicas of the controller are ready.
func waitRollout(ctx context.Context) error {
	_, err := cluster.Kubectl(ctx, "-n", controllerNamespace, "rollout", "status", "deployment/"+controllerName,
		"--timeout=2m")
	return err
}

// checkControllerLogs finds what no test may cause: a controller that panics, or ends by itself.
func checkControllerLogs() error {
	ctx, cancel := context.WithTimeout(context.Background(), framework.DefaultTimeout)
	defer cancel()
	ours := metav1.ListOptions{LabelSelector: "app=" + controllerName}
	pods, err := cluster.Kube.CoreV1().Pods(controllerNamespace).List(ctx, ours)
	if err != nil {
		return err
	}
	logs := func(args ...string) (string, error) {
		return cluster.Kubectl(ctx, append([]string{"-n", controllerNamespace, "logs"}, args...)...)
	}
	var errs []error
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil {
			continue
		}
		name := pod.Name
		for _, status := range pod.Status.ContainerStatuses {
			if status.RestartCount > 0 {
				log, err := logs("--previous", "--tail=60", name)
				err2 := fmt.Errorf("controller %s was restarted; the log before ends with:\n%s", name, log)
				errs = append(errs, err, err2)
			}
		}
		log, err := logs(name)
		if i := strings.Index(log, "panic"); i >= 0 {
			errs = append(errs, fmt.Errorf("controller %s has panicked: %s", name, log[i:min(len(log), i+4000)]))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
