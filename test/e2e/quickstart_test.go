package e2e

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// quickStart types the commands of the quick start on a cluster of its own. It loads the images into the cluster after
// the start, as the page says for other clusters.
func quickStart(t *testing.T) {
	folder := t.TempDir()
	install, err := forUser(framework.ModuleFile("artifacts", "deploy", "install.yaml"), folder)
	if err != nil {
		t.Fatal(err)
	}
	busybox := filepath.Join(folder, "busybox.tar")
	if out, err := exec.Command("bash", "-c", writeBusybox, busybox, runtime.GOARCH).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r := newReader(t, "artifacts/deploy/install.yaml", install)
	ready := []string{"…", "ready: KUBECONFIG=/tmp/playground-…/kubeconfig"}
	if err := r.start("bin/playground up --nodes control-plane,k8s01,k8s02", ready); err != nil {
		t.Fatal(err)
	}
	controller := framework.ControllerProgram.MustPath(t)
	for _, image := range []string{controllerImage + "=" + controller, "busybox:1.37=" + busybox} {
		load := exec.CommandContext(t.Context(), framework.PlaygroundProgram.MustPath(t), "load", image)
		load.Env = r.env
		if output, err := load.CombinedOutput(); err != nil {
			t.Fatalf("loading %s: %v\n%s", image, err, output)
		}
	}
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
	r.read("docs/quickstart.md", "quick-start", 8)
}

// writeBusybox writes a docker-archive of Debian's busybox, with those of its commands that the quick start uses.
const writeBusybox = `
set -euo pipefail
busybox=$(command -v busybox) || { echo "install busybox-static first, as make packages does" >&2; exit 1; }
cd "$(mktemp -d)"
mkdir bin
cp "$busybox" bin/busybox
for command in sh mkdir httpd wget; do ln -s busybox "bin/$command"; done
tar -cf layer.tar bin
echo '{"architecture": "'"$1"'", "os": "linux", "config": {"Env": ["PATH=/bin"]}, "rootfs": {"type": "layers",
  "diff_ids": ["sha256:'"$(sha256sum layer.tar | cut -d ' ' -f 1)"'"]}}' >config.json
echo '[{"Config": "config.json", "RepoTags": ["docker.io/library/busybox:1.37"], "Layers": ["layer.tar"]}]' \
  >manifest.json
tar -cf "$0" layer.tar config.json manifest.json
rm -r "$PWD"
`
