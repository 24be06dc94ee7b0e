package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	spdxjson "github.com/spdx/tools-golang/json"
)

// The release that `make test-release` makes.
const (
	testVersion    = "v0.0.0-test"
	testRepository = "registry.example.com/lsc"
)

const (
	sources = "../.."
	maxSize = 40e6 // of a file in the image
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
				want = append(want, scripts...)
			}
			if got := slices.Sorted(maps.Keys(archived)); !slices.Equal(got, slices.Sorted(slices.Values(want))) ||
				len(archived[ownLicense]) == 0 {
				t.Errorf("the plugin's archive has %v, and should have %v", got, want)
			}
		})
	}
	t.Run("image", func(t *testing.T) { checkImage(t, dist) })
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
	want := []string{"install.yaml", "crd.yaml", name + ".yaml", "hostnames.yaml", "guard.yaml", "metrics-secure.yaml",
		"admission.yaml",
		"example.yaml", "quickstart.yaml", otherLicenses, "rules.yaml", "dashboard.json", "localservice.yaml",
		name + ".oci.tar", name + "-0.0.0-test.tgz"}
	for _, platform := range slices.Concat(platforms, otherPlatforms) {
		want = append(want, controller.file("", platform), controller.file("", platform)+".spdx.json")
	}
	for _, platform := range pluginPlatforms {
		want = append(want, plugin.archive("", platform), plugin.file("", platform)+".spdx.json")
	}
	var got []string
	sums := read(t, dist, "checksums.txt")
	for _, entry := range must(os.ReadDir(dist)) {
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
	info := must(buildinfo.Read(bytes.NewReader(binary)))
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
	checkSBOM(t, info, binary, file+".spdx.json")
}

// checkSBOM reads the bill of materials as others would, and looks for all that the linker says is in the binary.
func checkSBOM(t *testing.T, info *buildinfo.BuildInfo, binary []byte, file string) {
	t.Helper()
	doc := must(spdxjson.Read(strings.NewReader(read(t, file))))
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
	want := map[string]string{module: testVersion, "stdlib": strings.TrimPrefix(info.GoVersion, "go")}
	for _, dep := range info.Deps {
		want[linked(dep).Path] = linked(dep).Version
	}
	if !maps.Equal(listed, want) || len(want) < 20 {
		t.Errorf("the bill of materials has %v; in the binary is %v", listed, want)
	}
	if main := doc.Packages[0]; main.PackageName != module || len(main.PackageChecksums) != 1 ||
		main.PackageChecksums[0].Value != fmt.Sprintf("%x", sha256.Sum256(binary)) {
		t.Errorf("the first package is %+v", main)
	}
}

// checkLicenses looks for the license of each module that the linker says is in the binary.
func checkLicenses(t *testing.T, licenses, binary []byte) {
	t.Helper()
	info := must(buildinfo.Read(bytes.NewReader(binary)))
	contains(t, licenses, "\nGo "+info.GoVersion+": LICENSE\n")
	for _, dep := range info.Deps {
		contains(t, licenses, "\n"+linked(dep).Path+" "+linked(dep).Version+": ")
	}
}

// checkImage checks that the tarball has the image, under the names by which tools look for it, and that it is the same
// when it is built again elsewhere.
func checkImage(t *testing.T, dist string) {
	folder := t.TempDir()
	for file, content := range untar(t, []byte(read(t, dist, name+".oci.tar"))) {
		target := filepath.Join(folder, file)
		err := errors.Join(os.MkdirAll(filepath.Dir(target), 0o700), os.WriteFile(target, content, 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	root := must(layout.ImageIndexFromPath(folder))
	descriptors := must(root.IndexManifest()).Manifests
	if len(descriptors) != 1 || descriptors[0].Annotations["org.opencontainers.image.ref.name"] != testVersion ||
		descriptors[0].Annotations["io.containerd.image.name"] != testRepository+":"+testVersion {
		t.Fatalf("the layout has not the one image, but %+v", descriptors)
	}
	index := must(root.ImageIndex(descriptors[0].Digest))
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest := must(index.IndexManifest())
	r := release{version: testVersion, ref: testRepository + ":" + testVersion,
		revision: manifest.Annotations["org.opencontainers.image.revision"],
		created:  must(time.Parse(time.RFC3339, manifest.Annotations["org.opencontainers.image.created"]))}
	if len(manifest.Manifests) != len(platforms) {
		t.Fatalf("the image has %d platforms, not %d", len(manifest.Manifests), len(platforms))
	}
	for i, descriptor := range manifest.Manifests {
		if !descriptor.Platform.Equals(platforms[i]) {
			t.Errorf("platform %s is called %s", platforms[i], descriptor.Platform)
		}
		checkPlatform(t, must(index.Image(descriptor.Digest)), platforms[i], r, dist)
	}
	again := t.TempDir()
	must(makeImage(t.Context(), r, platforms, copySources(t), again))
	for _, entry := range must(os.ReadDir(again)) {
		if !entry.IsDir() && read(t, again, entry.Name()) != read(t, dist, entry.Name()) {
			t.Errorf("%s is not the same when it is built again elsewhere", entry.Name())
		}
	}
}

// checkPlatform checks that the image of a platform has what a registry and a node need, and the released files.
func checkPlatform(t *testing.T, image v1.Image, platform v1.Platform, r release, dist string) {
	t.Helper()
	config := must(image.ConfigFile())
	if config.Config.User != "65532:65532" || !config.Platform().Equals(platform) ||
		!config.Created.Equal(r.created) || !slices.Equal(config.Config.Entrypoint, []string{"/" + name}) {
		t.Errorf("the configuration is %+v", config)
	}
	for _, label := range []string{"version", "revision", "created", "source", "licenses", "title", "description"} {
		if config.Config.Labels["org.opencontainers.image."+label] == "" {
			t.Errorf("the label %s is missing", label)
		}
	}
	layers := must(image.Layers())
	if len(layers) != 1 {
		t.Fatalf("the image has %d layers, not 1", len(layers))
	}
	archive := must(layers[0].Uncompressed())
	defer archive.Close()
	files, modes := map[string][]byte{}, map[string]int64{}
	eachEntry(t, archive, func(header *tar.Header, content []byte) {
		files[header.Name], modes[header.Name] = content, header.Mode
		if header.Uid != 0 || !header.ModTime.Equal(r.created) || header.Size > maxSize {
			t.Errorf("a file in the image for %s is %+v", platform, header)
		}
		t.Logf("%s: %s %.1f MB", platform, header.Name, float64(header.Size)/1e6)
	})
	if want := map[string]int64{name: 0o755, ownLicense: 0o644, otherLicenses: 0o644}; !maps.Equal(modes, want) {
		t.Errorf("the image has the files %v, not %v", modes, want)
	}
	checkLicenses(t, files[otherLicenses], files[name])
	if string(files[name]) != read(t, controller.file(dist, platform)) ||
		string(files[otherLicenses]) != read(t, dist, otherLicenses) {
		t.Errorf("the files in the image for %s are not the released ones", platform)
	}
}

// copySources copies what the controller is built from to another folder, where files have other times.
func copySources(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	files := must(filepath.Glob(sources + "/*.go"))
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
