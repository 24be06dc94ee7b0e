package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestImageArchive(t *testing.T) {
	for _, size := range []int{0, 1, 511, 512, 513, 100_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			contents := bytes.Repeat([]byte{'x'}, size)
			binary := filepath.Join(t.TempDir(), "app")
			must(t, os.WriteFile(binary, contents, 0o600))
			var archive bytes.Buffer
			must(t, imageSource{Ref: "localhost/app:1", Binary: binary}.archive(&archive))
			files := untar(t, &archive)

			var manifest []struct {
				Config           string
				RepoTags, Layers []string
			}
			must(t, json.Unmarshal(files["manifest.json"], &manifest))
			if len(manifest) != 1 || len(manifest[0].Layers) != 1 ||
				!slices.Equal(manifest[0].RepoTags, []string{"localhost/app:1"}) {
				t.Fatalf("manifest is %s", files["manifest.json"])
			}
			var image struct {
				Config struct{ Entrypoint []string }
				RootFS struct {
					DiffIDs []string `json:"diff_ids"`
				}
			}
			must(t, json.Unmarshal(files[manifest[0].Config], &image))
			if !slices.Equal(image.Config.Entrypoint, []string{"/app"}) {
				t.Errorf("entrypoint is %v", image.Config.Entrypoint)
			}
			layer := files[manifest[0].Layers[0]]
			digest := fmt.Sprintf("sha256:%x", sha256.Sum256(layer))
			if !slices.Equal(image.RootFS.DiffIDs, []string{digest}) {
				t.Errorf("diff IDs are %v, and the layer's digest is %s", image.RootFS.DiffIDs, digest)
			}
			if got := untar(t, bytes.NewReader(layer)); len(got) != 1 || !bytes.Equal(got["app"], contents) {
				t.Errorf("the layer does not have just the binary")
			}
		})
	}
}

func TestTarballIsCopied(t *testing.T) {
	tarball := filepath.Join(t.TempDir(), "image.tar")
	must(t, os.WriteFile(tarball, []byte("an image"), 0o600))
	source, err := parseImageSource("localhost/app:1=" + tarball)
	must(t, err)
	var archive bytes.Buffer
	must(t, source.archive(&archive))
	if archive.String() != "an image" {
		t.Errorf("the archive has %q", &archive)
	}
}

func untar(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		files[h.Name], err = io.ReadAll(in)
		must(t, err)
	}
}

func TestParseImageSource(t *testing.T) {
	self, err := os.Executable() // static, as the tests are built with CGO_ENABLED=0
	must(t, err)
	for arg, want := range map[string]string{
		"app=" + self:                "docker.io/library/app:latest",
		"localhost/app:1=" + self:    "localhost/app:1",
		"example.com/a/b:v2=" + self: "example.com/a/b:v2",
	} {
		got, err := parseImageSource(arg)
		if err != nil || got.Ref != want || got.Binary != self {
			t.Errorf("%s: got %+v, %v", arg, got, err)
		}
	}
	text := filepath.Join(t.TempDir(), "script.sh")
	must(t, os.WriteFile(text, []byte("#!/bin/sh\n"), 0o600))
	for arg, want := range map[string]string{
		"app":                 "REF=BINARY",
		"=" + self:            "REF=BINARY",
		"app=":                "REF=BINARY",
		"App=" + self:         "not an image's name",
		"app=/does/not/exist": "no such file",
		"app=" + text:         "has to be a Linux binary",
	} {
		if _, err := parseImageSource(arg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %q in it", arg, err, want)
		}
	}
}

func TestImageFileIsPerName(t *testing.T) {
	a := imageSource{Ref: "localhost/a:1", Binary: "x"}
	b := imageSource{Ref: "localhost/a:1", Binary: "y"}
	c := imageSource{Ref: "localhost/c:1", Binary: "x"}
	if a.file("/d") != b.file("/d") || a.file("/d") == c.file("/d") {
		t.Error("an image has to replace the one of the same name, and no other")
	}
}
