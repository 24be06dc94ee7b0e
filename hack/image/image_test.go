package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
)

const (
	sources = "../.."
	maxSize = 40e6 // unpacked, of one platform
)

var testRelease = release{
	version: "v1.2.3", revision: "0123456789012345678901234567890123456789", ref: "localhost/" + name + ":v1.2.3",
	created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
}

// TestImage builds the image twice, from two folders into two folders, and looks into the first.
func TestImage(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	digest, err := makeImage(t.Context(), testRelease, sources, first)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("is the same when it is built again elsewhere", func(t *testing.T) {
		again, err := makeImage(t.Context(), testRelease, copySources(t), second)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(digest)
		if again != digest {
			t.Errorf("the digest is %s, and built again %s", digest, again)
		}
		entries, err := os.ReadDir(first)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if !entry.IsDir() && read(t, first, entry.Name()) != read(t, second, entry.Name()) {
				t.Errorf("%s is not the same when it is built again", entry.Name())
			}
		}
	})
	t.Run("has what a registry and a node need", func(t *testing.T) { checkLayout(t, first, digest) })
	for _, platform := range platforms {
		t.Run("bill of materials of "+platform.String(), func(t *testing.T) {
			checkSBOM(t, controller.file(first, platform))
		})
	}
}

// copySources copies what the controller is built from to another folder, where files have other times.
func copySources(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	files, err := filepath.Glob(sources + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, sources+"/go.mod", sources+"/go.sum", sources+"/LICENSE") {
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(file)), []byte(read(t, file)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tree := range []string{"cmd", "hack/licenses", "internal", "pkg"} {
		if err := os.CopyFS(filepath.Join(folder, tree), os.DirFS(filepath.Join(sources, tree))); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func checkLayout(t *testing.T, folder string, digest v1.Hash) {
	root, err := layout.ImageIndexFromPath(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest != digest ||
		manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "v1.2.3" ||
		manifest.Manifests[0].Annotations["io.containerd.image.name"] != testRelease.ref {
		t.Errorf("the layout has not the one image, named %s, but %+v", testRelease.ref, manifest.Manifests)
	}
	index, err := root.ImageIndex(digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	if manifest, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != len(platforms) {
		t.Fatalf("the image has %d platforms, not %d", len(manifest.Manifests), len(platforms))
	}
	for i, descriptor := range manifest.Manifests {
		if !descriptor.Platform.Equals(platforms[i]) {
			t.Errorf("platform %s is called %s", platforms[i], descriptor.Platform)
		}
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, image, platforms[i])
		files := layerOf(t, image)
		checkLicenses(t, files[otherLicenses], files[name])
	}
}

func checkImage(t *testing.T, image v1.Image, platform v1.Platform) {
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || !config.Platform().Equals(platform) ||
		!config.Created.Equal(testRelease.created) || len(config.Config.Entrypoint) != 1 ||
		config.Config.Entrypoint[0] != "/"+name {
		t.Errorf("the configuration is %+v", config)
	}
	for _, label := range []string{"version", "revision", "created", "source", "licenses", "title", "description"} {
		if config.Config.Labels["org.opencontainers.image."+label] == "" {
			t.Errorf("the label %s is missing", label)
		}
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("the image has %d layers, not 1 (%v)", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	compressed, err := layers[0].Size()
	if err != nil {
		t.Fatal(err)
	}
	modes, archive := map[string]int64{}, tar.NewReader(content)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		modes[header.Name] = header.Mode
		if header.Uid != 0 || !header.ModTime.Equal(testRelease.created) || header.Size > maxSize {
			t.Errorf("a file in the image for %s is %+v", platform, header)
		}
		t.Logf("%s: %s %.1f MB", platform, header.Name, float64(header.Size)/1e6)
	}
	t.Logf("%s: %.1f MB to pull", platform, float64(compressed)/1e6)
	want := map[string]int64{name: 0o755, ownLicense: 0o644, otherLicenses: 0o644}
	if !maps.Equal(modes, want) {
		t.Errorf("the image has the files %v, not %v", modes, want)
	}
}

// layerOf returns the files of an image of one layer.
func layerOf(t *testing.T, image v1.Image) map[string][]byte {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	layer, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	return untar(t, layer)
}

// checkLicenses looks for the license of each module that the linker says is in the binary.
func checkLicenses(t *testing.T, licenses, binary []byte) {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	contains(t, licenses, "\nGo "+info.GoVersion+": LICENSE\n")
	for _, dep := range info.Deps {
		contains(t, licenses, "\n"+linked(dep).Path+" "+linked(dep).Version+": ")
	}
}

// checkSBOM reads the bill of materials as others would, and looks for all that the linker says is in the binary.
func checkSBOM(t *testing.T, binary string) {
	f, err := os.Open(binary + ".spdx.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	doc, err := spdxjson.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	if doc.SPDXVersion != "SPDX-2.3" {
		t.Errorf("the version is %s, not SPDX-2.3", doc.SPDXVersion)
	}
	listed, ids := map[string]string{}, map[string]bool{}
	for _, p := range doc.Packages {
		listed[p.PackageName] = p.PackageVersion
		if id := string(p.PackageSPDXIdentifier); ids[id] {
			t.Errorf("two packages are called %s", id)
		} else {
			ids[id] = true
		}
		if ref := p.PackageExternalReferences[0]; ref.Locator != "pkg:golang/"+p.PackageName+"@"+p.PackageVersion {
			t.Errorf("%s is to be looked up as %s", p.PackageName, ref.Locator)
		}
	}
	depended := map[string]bool{}
	for _, r := range doc.Relationships {
		depended[string(r.RefB.ElementRefID)] = true
	}
	for id := range ids {
		if !depended[id] {
			t.Errorf("nothing relates to %s", id)
		}
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{module: testRelease.version, "stdlib": strings.TrimPrefix(info.GoVersion, "go")}
	for _, dep := range info.Deps {
		want[linked(dep).Path] = linked(dep).Version
	}
	for path, version := range want {
		if listed[path] != version {
			t.Errorf("%s %s is in the binary; the bill of materials has version %q", path, version, listed[path])
		}
	}
	if len(listed) != len(want) || len(want) < 20 {
		t.Errorf("the bill of materials has %d packages, the binary %d", len(listed), len(want))
	}
	if main := doc.Packages[0]; main.PackageName != module || len(main.PackageChecksums) != 1 {
		t.Errorf("the first package is %+v", main)
	}
	var _ *spdx.Document = doc //nolint:staticcheck // The type is 2.3: no older document was converted.
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
