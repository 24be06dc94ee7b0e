package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"
)

// krewManifest is what Krew reads of a manifest. A field that it does not know is a mistake.
type krewManifest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string         `json:"version"`
		Homepage         string         `json:"homepage"`
		ShortDescription string         `json:"shortDescription"`
		Description      string         `json:"description"`
		Platforms        []krewPlatform `json:"platforms"`
	} `json:"spec"`
}

type krewPlatform struct {
	Selector struct {
		MatchLabels struct {
			OS   string `json:"os"`
			Arch string `json:"arch"`
		} `json:"matchLabels"`
	} `json:"selector"`
	URI    string `json:"uri"`
	SHA256 string `json:"sha256"`
	Bin    string `json:"bin"`
	Files  []struct {
		From string `json:"from"`
		To   string `json:"to"`
	} `json:"files"`
}

// checkKrew checks the plugin's manifest by the rules of Krew's documentation, does with the archives what Krew does to
// install them, and runs the plugin of this platform.
func checkKrew(t *testing.T, dist string) {
	var manifest krewManifest
	if err := yaml.UnmarshalStrict([]byte(read(t, dist, "localservice.yaml")), &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || manifest.Kind != "Plugin" ||
		manifest.Metadata.Name+".yaml" != "localservice.yaml" || manifest.Spec.Version != testVersion ||
		manifest.Spec.Homepage != source || manifest.Spec.Description == "" ||
		manifest.Spec.ShortDescription == "" || len(manifest.Spec.ShortDescription) > 80 ||
		strings.Contains(read(t, dist, "localservice.yaml"), "VERSION") {
		t.Errorf("the manifest is not as Krew wants it: %+v", manifest)
	}
	if len(manifest.Spec.Platforms) != len(pluginPlatforms) {
		t.Errorf("the manifest has %d platforms, the release %d", len(manifest.Spec.Platforms), len(pluginPlatforms))
	}
	for _, platform := range pluginPlatforms {
		t.Run(platform.String(), func(t *testing.T) {
			i := slices.IndexFunc(manifest.Spec.Platforms, func(p krewPlatform) bool {
				return p.Selector.MatchLabels.OS == platform.OS && p.Selector.MatchLabels.Arch == platform.Architecture
			})
			if i < 0 {
				t.Fatal("the manifest does not have it")
			}
			installed := manifest.Spec.Platforms[i].install(t, dist, platform)
			if platform.OS != runtime.GOOS || platform.Architecture != runtime.GOARCH {
				return
			}
			out, err := exec.CommandContext(t.Context(), installed, "--version").CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte(testVersion)) {
				t.Errorf("the installed plugin says %s, %v", out, err)
			}
		})
	}
}

// install copies the files of a platform from the archive to a folder, and returns the path of what Krew runs.
func (p krewPlatform) install(t *testing.T, dist string, platform v1.Platform) string {
	t.Helper()
	archive := plugin.archive(dist, platform)
	if want := source + "/releases/download/" + testVersion + "/" + filepath.Base(archive); p.URI != want {
		t.Errorf("the archive is at %s; want it at %s", p.URI, want)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, archive)))); p.SHA256 != sum {
		t.Errorf("%s has the checksum %s, the manifest says %s", archive, sum, p.SHA256)
	}
	folder, files := t.TempDir(), unpack(t, archive)
	for _, file := range p.Files {
		data, found := files[file.From]
		if !found {
			t.Fatalf("%s has no %s", archive, file.From)
		}
		if err := os.WriteFile(filepath.Join(folder, file.To, file.From), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{ownLicense, p.Bin} {
		if _, err := os.Stat(filepath.Join(folder, file)); err != nil {
			t.Error(err)
		}
	}
	return filepath.Join(folder, p.Bin)
}
