package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"sigs.k8s.io/yaml"
)

// The release that `make test-release` makes.
const (
	testVersion    = "v0.0.0-test"
	testRepository = "registry.example.com/lsc"
)

const (
	plugin  = "kubectl-localservice"
	maxSize = 40e6 // of a file in the image
)

var (
	imagePlatforms      = []string{"linux_amd64", "linux_arm64"}
	controllerPlatforms = append(slices.Clone(imagePlatforms), "darwin_amd64", "darwin_arm64")
	pluginPlatforms     = append(slices.Clone(controllerPlatforms), "windows_amd64")
)

// TestRelease checks that the folder of a release has everything, and that all of it is of one build.
func TestRelease(t *testing.T) {
	dist := os.Getenv("DIST")
	if dist == "" {
		t.Skip("run `make test-release`")
	}
	t.Run("files and checksums", func(t *testing.T) { checkFiles(t, dist) })
	for _, platform := range controllerPlatforms {
		t.Run(platform, func(t *testing.T) {
			checkBinary(t, []byte(read(t, dist, name+"_"+platform)), platform, dist, name)
		})
	}
	t.Run("plugin", func(t *testing.T) { checkPlugin(t, dist) })
	t.Run("image", func(t *testing.T) { checkImage(t, dist) })
	t.Run("chart", func(t *testing.T) {
		files := unpack(t, dist, "local-service-controller-0.0.0-test.tgz")
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
		"admission.yaml", "example.yaml", "quickstart.yaml", "THIRD_PARTY_LICENSES", "rules.yaml", "dashboard.json",
		"localservice.yaml", name + ".oci.tar", name + "-0.0.0-test.tgz"}
	for _, platform := range controllerPlatforms {
		want = append(want, name+"_"+platform, name+"_"+platform+".cdx.json")
	}
	for _, platform := range pluginPlatforms {
		want = append(want, plugin+"_"+platform+".tar.gz", plugin+"_"+platform+".cdx.json")
	}
	var got []string
	sums := read(t, dist, "checksums.txt")
	for _, entry := range must(os.ReadDir(dist)) {
		if entry.Name() == "checksums.txt" {
			continue
		}
		got = append(got, entry.Name())
		contains(t, []byte(sums), fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(read(t, dist, entry.Name()))),
			entry.Name()))
	}
	if slices.Sort(want); !slices.Equal(want, got) || strings.Count(sums, "\n") != len(got) {
		t.Errorf("the release has %s,\nand should have %s; the checksums are\n%s", got, want, sums)
	}
}

// checkBinary checks that a binary is of its platform and version, that its bill of materials has all that the linker
// says is in it, and the licenses, too.
func checkBinary(t *testing.T, binary []byte, platform, dist, program string) {
	t.Helper()
	info := must(buildinfo.Read(bytes.NewReader(binary)))
	settings := map[string]string{}
	for _, setting := range info.Settings {
		settings[setting.Key] = setting.Value
	}
	if settings["GOOS"]+"_"+settings["GOARCH"] != platform || settings["CGO_ENABLED"] != "0" ||
		settings["-trimpath"] != "true" {
		t.Errorf("%s for %s is built with %v", program, platform, settings)
	}
	contains(t, binary, testVersion)
	bill := read(t, dist, program+"_"+platform+".cdx.json")
	contains(t, []byte(bill), fmt.Sprintf("%x", sha256.Sum256(binary)))
	var listed struct{ Components []struct{ PURL string } }
	if err := json.Unmarshal([]byte(bill), &listed); err != nil {
		t.Fatal(err)
	}
	// The bill has the standard library beside the modules.
	if len(listed.Components) != len(info.Deps)+1 || len(info.Deps) < 20 {
		t.Errorf("the bill of materials has %d components, the binary %d modules", len(listed.Components),
			len(info.Deps))
	}
	licenses := []byte(read(t, dist, "THIRD_PARTY_LICENSES"))
	contains(t, licenses, "\ngo/LICENSE\n")
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		contains(t, []byte(bill), `"pkg:golang/`+dep.Path+"@"+dep.Version)
		contains(t, licenses, "\n"+dep.Path+"/")
	}
}

// checkPlugin checks the plugin's manifest for Krew by the rules of Krew's documentation, does with the archives what
// Krew does to install them, and runs the plugin of this platform.
func checkPlugin(t *testing.T, dist string) {
	var manifest struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, Homepage, ShortDescription, Description string
			Platforms                                        []struct {
				Selector         struct{ MatchLabels struct{ OS, Arch string } }
				URI, SHA256, Bin string
				Files            []struct{ From, To string }
			}
		}
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, dist, "localservice.yaml")), &manifest); err != nil {
		t.Fatal(err)
	}
	spec := manifest.Spec
	wantEqual(t, map[string][2]string{"apiVersion": {manifest.APIVersion, "krew.googlecontainertools.github.com/v1alpha2"},
		"kind": {manifest.Kind, "Plugin"}, "name": {manifest.Metadata.Name, "localservice"},
		"version": {spec.Version, testVersion}, "homepage": {spec.Homepage, source}})
	if spec.Description == "" || spec.ShortDescription == "" || len(spec.ShortDescription) > 80 {
		t.Errorf("Krew wants descriptions, a short one of up to 80 bytes, not %q, %q", spec.Description,
			spec.ShortDescription)
	}
	var platforms []string
	for _, p := range spec.Platforms {
		platform := p.Selector.MatchLabels.OS + "_" + p.Selector.MatchLabels.Arch
		platforms = append(platforms, platform)
		archive := plugin + "_" + platform + ".tar.gz"
		if p.URI != source+"/releases/download/"+testVersion+"/"+archive ||
			p.SHA256 != fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, dist, archive)))) {
			t.Errorf("the archive of %s is not at %s with the checksum %s", platform, p.URI, p.SHA256)
		}
		files := unpack(t, dist, archive)
		checkBinary(t, files["./"+p.Bin], platform, dist, plugin)
		want := []string{"./", "./LICENSE", "./THIRD_PARTY_LICENSES", "./" + p.Bin}
		if !strings.HasSuffix(p.Bin, ".exe") {
			want = append(want, "./kubectl-create-localservice", "./kubectl_complete-localservice")
		}
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
			t.Errorf("the archive for %s has %v, and should have %v", platform, got, want)
		}
		folder := t.TempDir()
		for _, file := range p.Files {
			data := files["./"+file.From]
			if err := os.WriteFile(filepath.Join(folder, file.To, file.From), data, 0o755); err != nil ||
				len(data) == 0 {
				t.Fatalf("%s has no %s: %v", archive, file.From, err)
			}
		}
		if platform == runtime.GOOS+"_"+runtime.GOARCH {
			out, err := exec.CommandContext(t.Context(), filepath.Join(folder, p.Bin), "--version").CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte(testVersion)) {
				t.Errorf("the installed plugin says %s, %v", out, err)
			}
		}
	}
	if !slices.Equal(platforms, pluginPlatforms) {
		t.Errorf("Krew gets the plugin for %v; it is built for %v", platforms, pluginPlatforms)
	}
}

// checkImage checks that the tarball has the image, under the names by which tools look for it, and that it is the same
// when it is built again elsewhere.
func checkImage(t *testing.T, dist string) {
	folder := t.TempDir()
	eachEntry(t, strings.NewReader(read(t, dist, name+".oci.tar")), func(header *tar.Header, content []byte) {
		target := filepath.Join(folder, header.Name)
		err := errors.Join(os.MkdirAll(filepath.Dir(target), 0o700), os.WriteFile(target, content, 0o600))
		if err != nil {
			t.Fatal(err)
		}
	})
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
	created := must(time.Parse(time.RFC3339, manifest.Annotations["org.opencontainers.image.created"]))
	var platforms []string
	for _, descriptor := range manifest.Manifests {
		platform := descriptor.Platform.OS + "_" + descriptor.Platform.Architecture
		platforms = append(platforms, platform)
		checkPlatform(t, must(index.Image(descriptor.Digest)), platform, created, dist)
	}
	if !slices.Equal(platforms, imagePlatforms) {
		t.Errorf("the image is for %v, not for %v", platforms, imagePlatforms)
	}

	sources, again := t.TempDir(), t.TempDir() // where files have other times
	const copies = `cd ../.. && git ls-files -z --cached --others --exclude-standard | xargs -0 ls -d 2>/dev/null |
		tar -cT - | tar -xm -C "$0" && hack=$PWD/hack && cd "$0" && "$hack/image.sh" "$2" "$3:$2" "$1"`
	out, err := exec.CommandContext(t.Context(), "bash", "-c", copies, sources, again, testVersion,
		testRepository).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	same := []string{name + "_linux_amd64", name + "_linux_arm64", "THIRD_PARTY_LICENSES", name + ".oci.tar"}
	for _, file := range same {
		if read(t, again, file) != read(t, dist, file) {
			t.Errorf("%s is not the same when it is built again elsewhere", file)
		}
	}
}

// wantEqual checks values, by name: what they are, and what they must be.
func wantEqual(t *testing.T, values map[string][2]string) {
	t.Helper()
	for what, value := range values {
		if value[0] != value[1] {
			t.Errorf("the %s is %q, want %q", what, value[0], value[1])
		}
	}
}

// checkPlatform checks that the image of a platform has what a registry and a node need, and the released files.
func checkPlatform(t *testing.T, image v1.Image, platform string, created time.Time, dist string) {
	t.Helper()
	config := must(image.ConfigFile())
	wantEqual(t, map[string][2]string{"user": {config.Config.User, "65532:65532"},
		"platform":   {config.OS + "_" + config.Architecture, platform},
		"created":    {config.Created.UTC().String(), created.UTC().String()},
		"entrypoint": {fmt.Sprint(config.Config.Entrypoint), fmt.Sprint([]string{"/" + name})}})
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
	modes := map[string]int64{}
	eachEntry(t, archive, func(header *tar.Header, content []byte) {
		modes[header.Name] = header.Mode
		if header.Uid != 0 || !header.ModTime.Equal(created) || header.Size > maxSize {
			t.Errorf("a file in the image for %s is %+v", platform, header)
		}
		released := filepath.Join(dist, header.Name)
		switch header.Name {
		case name:
			released += "_" + platform
		case "LICENSE":
			released = "../../LICENSE"
		}
		if string(content) != read(t, released) {
			t.Errorf("%s in the image for %s is not %s", header.Name, platform, released)
		}
	})
	want := map[string]int64{name: 0o755, "LICENSE": 0o644, "THIRD_PARTY_LICENSES": 0o644}
	if !maps.Equal(modes, want) {
		t.Errorf("the image has the files %v, not %v", modes, want)
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
func unpack(t *testing.T, path ...string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	eachEntry(t, must(gzip.NewReader(strings.NewReader(read(t, path...)))), func(header *tar.Header, content []byte) {
		files[header.Name] = content
	})
	return files
}

// eachEntry calls do for each file of a tarball.
func eachEntry(t *testing.T, archive io.Reader, do func(header *tar.Header, content []byte)) {
	t.Helper()
	reader := tar.NewReader(archive)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		do(header, must(io.ReadAll(reader)))
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// must returns a value, and panics if there is an error instead.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
