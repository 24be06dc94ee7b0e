package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// quickStart types the commands of the quick start on a cluster of its own. It loads the images into the cluster after
// the start, as the page says for other clusters. Afterwards it puts the controller of the work tree there, as somebody
// does who has changed it.
func quickStart(t *testing.T) {
	folder := t.TempDir()
	install, err := forUser(framework.ModuleFile("artifacts", "deploy", "install.yaml"), folder)
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(t, "artifacts/deploy/install.yaml", install)
	ready := []string{"…", "ready: KUBECONFIG=/tmp/playground-…/kubeconfig"}
	if err := r.start("bin/playground up --nodes control-plane,k8s01,k8s02", ready); err != nil {
		t.Fatal(err)
	}
	r.load(controllerImage + "=" + framework.ControllerProgram.MustPath(t))
	r.load(localImage(t, busyboxImage))
	r.env = append(r.env, "KUBECONFIG="+filepath.Join(r.dir, "kubeconfig"))
	const role = "node-role.kubernetes.io/control-plane"
	for _, args := range [][]string{{"label", "node", "control-plane", role + "="},
		{"taint", "node", "control-plane", role + ":NoSchedule"}} {
		mark := exec.CommandContext(t.Context(), framework.PlaygroundProgram.MustPath(t),
			append([]string{"kubectl"}, args...)...)
		mark.Env = r.env
		if output, err := mark.CombinedOutput(); err != nil {
			t.Fatalf("making a control plane of a node: %v\n%s", err, output)
		}
	}
	r.fast = true
	r.read("docs/quickstart.md", "quick-start", 8)
	r.fast = false
	r.read(".github/CONTRIBUTING.md", "loop", 10)
}
