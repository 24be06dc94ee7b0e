package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/distribution/reference"
)

// imageSource is a static binary and the name of the image that it becomes; or a tarball that has an image already, in
// any form that containerd reads, and under that name.
type imageSource struct{ Ref, Binary string }

func (s imageSource) isTarball() bool { return filepath.Ext(s.Binary) == ".tar" }

// pauseImage returns the image whose container holds the namespaces of every pod. CoreDNS runs in it, too, from a
// mounted binary.
func pauseImage(playground string) imageSource {
	return imageSource{Ref: "localhost/playground-pause:1", Binary: filepath.Join(libexec(playground), "pause")}
}

// parseImageSource parses REF=BINARY.
func parseImageSource(s string) (imageSource, error) {
	ref, binary, ok := strings.Cut(s, "=")
	if !ok || ref == "" || binary == "" {
		return imageSource{}, fmt.Errorf("%q is not of the form REF=BINARY or REF=TARBALL.tar, "+
			"such as localhost/app:1=bin/app", s)
	}
	name, err := reference.ParseDockerRef(ref)
	if err != nil {
		return imageSource{}, fmt.Errorf("%q is not an image's name: %w", ref, err)
	}
	path, err := filepath.Abs(binary)
	if err != nil {
		return imageSource{}, fmt.Errorf("making the path of %s absolute: %w", binary, err)
	}
	source := imageSource{Ref: name.String(), Binary: path}
	if source.isTarball() {
		return source, nil
	}
	return source, checkStatic(path)
}

// checkStatic reports a binary that could not run as the only file of an image.
func checkStatic(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("making an image of %s: it has to be a Linux binary: %w", path, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("making an image of %s: it is not static and would find no libraries; build it "+
				"with CGO_ENABLED=0", path)
		}
	}
	return nil
}

// file is where the archive of an image is kept for nodes that start later. A new archive for the same name replaces
// the old one.
func (s imageSource) file(dir workdir) string {
	return dir.path("images", fmt.Sprintf("%x.tar", sha256.Sum256([]byte(s.Ref))))
}

// write makes the archive. It is complete as soon as it can be seen, as a node may be starting just now.
func (s imageSource) write(dir workdir) (err error) {
	tmp, err := os.CreateTemp(dir.path("images"), "new-*")
	if err != nil {
		return fmt.Errorf("making the image %s: %w", s.Ref, err)
	}
	defer os.Remove(tmp.Name())
	if err := errors.Join(s.archive(tmp), tmp.Close()); err != nil {
		return fmt.Errorf("making the image %s: %w", s.Ref, err)
	}
	if err := os.Rename(tmp.Name(), s.file(dir)); err != nil {
		return fmt.Errorf("making the image %s: %w", s.Ref, err)
	}
	return nil
}

// archive writes a docker-archive: an image with one layer, which has the binary as its only file, and a user who is
// not root, as pods with runAsNonRoot need. A tarball is copied.
func (s imageSource) archive(out io.Writer) error {
	content, err := os.ReadFile(s.Binary)
	if err != nil {
		return err
	}
	if s.isTarball() {
		_, err := out.Write(content)
		return err
	}
	name, layer := filepath.Base(s.Binary), &bytes.Buffer{}
	err = writeTar(layer, tarFile{name, 0o755, content})
	config, err1 := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/" + name}, "User": "65532:65532"},
		"rootfs": map[string]any{"type": "layers",
			"diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))}},
	})
	manifest, err2 := json.Marshal([]any{map[string]any{
		"Config": "config.json", "RepoTags": []string{s.Ref}, "Layers": []string{"layer.tar"},
	}})
	return errors.Join(err, err1, err2, writeTar(out, tarFile{"layer.tar", 0o644, layer.Bytes()},
		tarFile{"config.json", 0o644, config}, tarFile{"manifest.json", 0o644, manifest}))
}

type tarFile struct {
	name    string
	mode    int64
	content []byte
}

func writeTar(out io.Writer, files ...tarFile) error {
	w := tar.NewWriter(out)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content))}); err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	return w.Close()
}

// importImages gives containerd the images whose archives match.
func importImages(ctx context.Context, c *containerd.Client, pattern string) error {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return fmt.Errorf("looking for images: %w", err)
	}
	var errs []error
	for _, file := range files {
		errs = append(errs, importImage(ctx, c, file))
	}
	return errors.Join(errs...)
}

func importImage(ctx context.Context, c *containerd.Client, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("importing an image: %w", err)
	}
	defer f.Close()
	if _, err := c.Import(ctx, f); err != nil {
		return fmt.Errorf("importing the image %s: %w", file, err)
	}
	return nil
}
