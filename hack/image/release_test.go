package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// The release that `make test-release` makes.
const (
	testVersion    = "v0.0.0-test"
	testRepository = "registry.example.com/lsc"
)

// TestRelease checks that the folder of a release has everything, and that all of it is of one build.
func TestRelease(t *testing.T) {
	dist := os.Getenv("DIST")
	if dist == "" {
		t.Skip("run `make test-release`")
	}
	t.Run("files and checksums", func(t *testing.T) { checkFiles(t, dist) })
	for _, platform := range slices.Concat(platforms, otherPlatforms) {
		t.Run(platform.String(), func(t *testing.T) {
			checkBinary(t, []byte(read(t, controller.file(dist, platform))), platform, controller.file(dist, platform))
		})
	}
	for _, platform := range pluginPlatforms {
		t.Run("plugin for "+platform.String(), func(t *testing.T) {
			archived := unpack(t, plugin.archive(dist, platform))
			binary := archived[plugin.executable(platform)]
			checkBinary(t, binary, platform, plugin.file(dist, platform))
			checkLicenses(t, archived[otherLicenses], binary)
			want := []string{ownLicense, otherLicenses, plugin.executable(platform)}
			if platform.OS != windows {
				want = append(want, completion)
			}
			if got := slices.Sorted(maps.Keys(archived)); !slices.Equal(got, slices.Sorted(slices.Values(want))) ||
				len(archived[ownLicense]) == 0 {
				t.Errorf("the plugin's archive has %v, and should have %v", got, want)
			}
		})
	}
	t.Run("image", func(t *testing.T) { checkReleasedImage(t, dist) })
	t.Run("chart", func(t *testing.T) {
		files := untar(t, ungzip(t, read(t, dist, "local-service-controller-0.0.0-test.tgz")))
		contains(t, files[name+"/Chart.yaml"], "version: 0.0.0-test\n", "appVersion: "+testVersion+"\n",
			testRepository+":"+testVersion)
		contains(t, files[name+"/values.yaml"], "repository: "+testRepository+"\n")
		for _, file := range []string{"values.schema.json", "README.md", "files/crd.yaml",
			"templates/deployment.yaml"} {
			if len(files[name+"/"+file]) == 0 {
				t.Errorf("the chart lacks %s", file)
			}
		}
	})
	t.Run("Krew", func(t *testing.T) { checkKrew(t, dist) })
	t.Run("manifests", func(t *testing.T) {
		const image = "image: " + testRepository + ":" + testVersion + "\n"
		contains(t, []byte(read(t, dist, "install.yaml")), image, "kind: CustomResourceDefinition\n",
			"kind: Deployment\n")
		contains(t, []byte(read(t, dist, "local-service-controller.yaml")), image)
		contains(t, []byte(read(t, dist, "admission.yaml")), "\n---\n", "name: local-service-node-label-binding\n",
			"name: local-service-node-label-guard\n")
	})
}

// checkFiles wants every file that a release has, and no other, and each in the checksums.
func checkFiles(t *testing.T, dist string) {
	want := []string{"install.yaml", "crd.yaml", name + ".yaml", "hostnames.yaml", "metrics-secure.yaml",
		"admission.yaml",
		"example.yaml", "quickstart.yaml", otherLicenses, "rules.yaml", "dashboard.json", "localservice.yaml",
		name + ".oci.tar", name + "-0.0.0-test.tgz"}
	for _, platform := range slices.Concat(platforms, otherPlatforms) {
		want = append(want, controller.file("", platform), controller.file("", platform)+".spdx.json")
	}
	for _, platform := range pluginPlatforms {
		want = append(want, plugin.archive("", platform), plugin.file("", platform)+".spdx.json")
	}
	entries, err := os.ReadDir(dist)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	sums := read(t, dist, "checksums.txt")
	for _, entry := range entries {
		if entry.Name() == "checksums.txt" {
			continue
		}
		got = append(got, entry.Name())
		sum := fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(read(t, dist, entry.Name()))), entry.Name())
		if !strings.Contains(sums, sum) {
			t.Errorf("the checksums lack %s", sum)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("the release has %s,\nand should have %s", got, want)
	}
	if lines := strings.Count(sums, "\n"); lines != len(got) {
		t.Errorf("there are %d checksums for %d files", lines, len(got))
	}
}

// checkBinary checks that a binary is of its platform and version, and that its bill of materials is about it.
func checkBinary(t *testing.T, binary []byte, platform v1.Platform, file string) {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, setting := range info.Settings {
		settings[setting.Key] = setting.Value
	}
	if settings["GOOS"] != platform.OS || settings["GOARCH"] != platform.Architecture ||
		settings["CGO_ENABLED"] != "0" ||
		settings["-trimpath"] != "true" {
		t.Errorf("%s is built with %v", file, settings)
	}
	contains(t, binary, testVersion)
	contains(t, []byte(read(t, file+".spdx.json")), fmt.Sprintf("%x", sha256.Sum256(binary)))
}

// checkReleasedImage checks that the tarball has the image under its name, and in it the released binaries.
func checkReleasedImage(t *testing.T, dist string) {
	folder := t.TempDir()
	for file, content := range untar(t, []byte(read(t, dist, name+".oci.tar"))) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, file)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if ref := manifest.Manifests[0].Annotations["io.containerd.image.name"]; ref != testRepository+":"+testVersion {
		t.Errorf("the image is called %s", ref)
	}
	index, err := root.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	if manifest, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	for _, descriptor := range manifest.Manifests {
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			t.Fatal(err)
		}
		layer := layerOf(t, image)
		if string(layer[name]) != read(t, controller.file(dist, *descriptor.Platform)) {
			t.Errorf("the binary in the image for %s is not the released one", descriptor.Platform)
		}
		if string(layer[otherLicenses]) != read(t, dist, otherLicenses) {
			t.Errorf("the licenses in the image for %s are not the released ones", descriptor.Platform)
		}
	}
}

func contains(t *testing.T, data []byte, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !bytes.Contains(data, []byte(part)) {
			t.Errorf("%q is not there", part)
		}
	}
}

// unpack returns the files of an archive.
func unpack(t *testing.T, file string) map[string][]byte {
	t.Helper()
	if filepath.Ext(file) != ".zip" {
		return untar(t, ungzip(t, read(t, file)))
	}
	archive, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	files := map[string][]byte{}
	for _, entry := range archive.File {
		if files[entry.Name], err = fs.ReadFile(archive, entry.Name); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func ungzip(t *testing.T, data string) []byte {
	t.Helper()
	reader, err := gzip.NewReader(strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func untar(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	reader := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}
