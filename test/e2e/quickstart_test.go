package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
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
	install, err := forUser(framework.MustModuleFile(t, "artifacts", "deploy", "install.yaml"), folder)
	if err != nil {
		t.Fatal(err)
	}
	busybox := filepath.Join(folder, "busybox.tar")
	if err := writeBusybox(busybox); err != nil {
		t.Fatal(err)
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
func writeBusybox(path string) error {
	program, err := exec.LookPath("busybox")
	if err != nil {
		return fmt.Errorf("the quick start needs Debian's package busybox-static, which `make packages` installs: %w",
			err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	var layer, archive bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := addFile(w, "bin/busybox", content); err != nil {
		return err
	}
	for _, name := range []string{"sh", "mkdir", "httpd", "wget"} {
		link := &tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox"}
		if err := w.WriteHeader(link); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{
			"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))},
		},
	})
	if err != nil {
		return err
	}
	w = tar.NewWriter(&archive)
	const manifest = `[{"Config":"config.json","RepoTags":["docker.io/library/busybox:1.37"],"Layers":["layer.tar"]}]`
	for _, file := range []struct {
		name    string
		content []byte
	}{{"layer.tar", layer.Bytes()}, {"config.json", config}, {"manifest.json", []byte(manifest)}} {
		if err := addFile(w, file.name, file.content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, archive.Bytes(), 0o600)
}

func addFile(w *tar.Writer, name string, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
