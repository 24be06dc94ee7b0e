// images writes a tarball, as `docker save` does, with the images that Kubernetes' conformance tests of workloads and
// networks run, under the names that they have there. All are the same files, run in different ways: agnhost, which
// is Kubernetes' own collection of servers and clients for tests, and programs of this machine that the tests call.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"

	imageutils "k8s.io/kubernetes/test/utils/image"
)

// ownName is one more name of agnhost, by which the playground is told of the tarball.
const ownName = "localhost/conformance:1"

// image is what an image runs.
type image struct {
	names      []string
	entrypoint []string
	cmd        []string
	stopSignal string
}

// images are those that the tests name. agnhost and its previous version differ in nothing that they use. nginx only
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
	agnhost := flag.String("agnhost", "", "`file` of the program agnhost, linked statically")
	porter := flag.String("porter", "", "`folder` with the certificate of agnhost's command porter")
	out := flag.String("out", "", "`file` to write")
	flag.Parse()
	if err := run(*agnhost, *porter, *out); err != nil {
		fmt.Fprintln(os.Stderr, "making the images:", err)
		os.Exit(1)
	}
}

func run(agnhost, porter, out string) error {
	files, err := collect(agnhost, porter)
	if err != nil {
		return err
	}
	var layer bytes.Buffer
	if err := writeTar(&layer, files); err != nil {
		return err
	}
	archive, err := newArchive(layer.Bytes())
	if err != nil {
		return err
	}
	temporary := out + ".new"
	f, err := os.Create(temporary)
	if err != nil {
		return err
	}
	if err := errors.Join(writeTar(f, archive), f.Close()); err != nil {
		return err
	}
	return os.Rename(temporary, out)
}

// newArchive returns the files of a tarball with the images, which share a layer.
func newArchive(layer []byte) ([]file, error) {
	files := []file{{name: "layer.tar", mode: 0o644, content: layer}}
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
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("config%d.json", i)
		files = append(files, file{name: name, mode: 0o644, content: config})
		manifest = append(manifest, map[string]any{
			"Config": name, "RepoTags": image.names, "Layers": []string{"layer.tar"},
		})
	}
	content, err := json.Marshal(manifest)
	return append(files, file{name: "manifest.json", mode: 0o644, content: content}), err
}

// file is an entry of a tarball: a file, or with target a symbolic link.
type file struct {
	name    string
	mode    int64
	content []byte
	target  string
}

func writeTar(out io.Writer, files []file) error {
	w := tar.NewWriter(out)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Linkname: f.target}
		switch {
		case f.target != "":
			header.Typeflag = tar.TypeSymlink
		case f.content == nil:
			header.Typeflag = tar.TypeDir
		default:
			header.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	return w.Close()
}
