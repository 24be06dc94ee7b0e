// images writes a tarball, as `docker save` does, with the images that Kubernetes' conformance tests of workloads and
// networks run, under the names that they have there. All are the same files, run in different ways: the layer whose
// tarball is the argument, of layer.sh.
package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	imageutils "k8s.io/kubernetes/test/utils/image"
)

// ownName is one more name of agnhost, by which the playground is told of the tarball.
const ownName = "localhost/conformance:1"

// image describes what an image runs.
type image struct {
	names      []string
	entrypoint []string
	cmd        []string
	stopSignal string
}

// images lists those that the tests name. agnhost and its previous version differ in nothing that they use. nginx only
// has to answer on port 80; busybox is no process 1 that ends when it is asked to.
var images = []image{
	{names: []string{imageutils.GetE2EImage(imageutils.Agnhost), imageutils.GetE2EImage(imageutils.AgnhostPrev),
		ownName}, entrypoint: []string{"/agnhost"}, cmd: []string{"pause"}},
	{names: []string{imageutils.GetE2EImage(imageutils.Pause)}, entrypoint: []string{"/agnhost", "pause"}},
	{names: []string{imageutils.GetE2EImage(imageutils.BusyBox), imageutils.GetE2EImage(imageutils.GlibcDnsTesting)},
		cmd: []string{"sh"}},
	{names: []string{imageutils.GetE2EImage(imageutils.Nginx)},
		cmd: []string{"/bin/busybox", "httpd", "-f", "-p", "80", "-h", "/www"}, stopSignal: "SIGKILL"},
}

func main() {
	layer, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = write(os.Stdout, layer)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "making the images:", err)
		os.Exit(1)
	}
}

// write writes a tarball with the images, which share a layer.
func write(out io.Writer, layer []byte) error {
	w := tar.NewWriter(out)
	add := func(name string, content []byte) error {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))})
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	}
	errs := []error{add("layer.tar", layer)}
	var manifest []any
	for i, image := range images {
		config, err := json.Marshal(map[string]any{
			"architecture": runtime.GOARCH,
			"os":           "linux",
			"config": map[string]any{
				"Entrypoint": image.entrypoint, "Cmd": image.cmd, "StopSignal": image.stopSignal, "WorkingDir": "/",
				"Env": []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
			},
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x",
				sha256.Sum256(layer))}},
		})
		name := fmt.Sprintf("config%d.json", i)
		errs = append(errs, err, add(name, config))
		manifest = append(manifest, map[string]any{
			"Config": name, "RepoTags": image.names, "Layers": []string{"layer.tar"},
		})
	}
	content, err := json.Marshal(manifest)
	errs = append(errs, err, add("manifest.json", content), w.Close())
	return errors.Join(errs...)
}
