package alerts

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestScrapeRecipe makes Prometheus relabel, as the recipe says, what its discovery finds in a cluster of three nodes
// with LocalServices of both modes. Debian's Prometheus is built without the discovery of Kubernetes. So what it finds
// was recorded from that of Prometheus v0.316.0, with the labels that the recipe reads.
func TestScrapeRecipe(t *testing.T) {
	config := filepath.Join(t.TempDir(), "prometheus.yaml")
	recorded, err := filepath.Abs(filepath.Join("testdata", "endpointslices.json"))
	if err != nil {
		t.Fatal(err)
	}
	writeRecipe(t, config, recorded)
	for job, want := range map[string][]string{
		"agent": {"agent k8s01", "agent k8s02", "agent k8s03"},
		"zones": {"regional k8s01 regional eu-west-1a", "regional k8s02 regional eu-west-1a",
			"regional k8s03 regional eu-west-1b"},
		"cache": {"cache k8s01", "cache k8s02", "cache k8s03"},
	} {
		t.Run(job, func(t *testing.T) {
			t.Parallel()
			if got := relabelled(t, config, job); !slices.Equal(got, want) {
				t.Errorf("the targets are %q, want %q", got, want)
			}
		})
	}
}

// writeRecipe writes the recipe with another discovery: a file.
func writeRecipe(t *testing.T, to, targets string) {
	t.Helper()
	var config struct {
		ScrapeConfigs []map[string]any `json:"scrape_configs"`
	}
	recipe := framework.ModuleFile("artifacts", "prometheus", "scrape.yaml")
	if err := yaml.UnmarshalStrict([]byte(readFile(t, recipe)), &config); err != nil {
		t.Fatal(err)
	}
	for _, job := range config.ScrapeConfigs {
		delete(job, "kubernetes_sd_configs")
		job["file_sd_configs"] = []map[string][]string{{"files": {targets}}}
	}
	data, err := yaml.Marshal(config)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// relabelled returns the targets of a job: the app of each pod, and the labels that identify its series.
func relabelled(t *testing.T, config, job string) (targets []string) {
	t.Helper()
	promtool := exec.CommandContext(t.Context(), framework.PromtoolProgram.MustPath(t), "check", "service-discovery",
		"--timeout=2s", config, job)
	out, err := promtool.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var found []struct{ DiscoveredLabels, Labels map[string]string }
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	for _, target := range found {
		if len(target.Labels) == 0 {
			continue // The recipe drops it.
		}
		app, _, _ := strings.Cut(target.DiscoveredLabels["__meta_kubernetes_pod_name"], "-")
		identity := []string{app, target.Labels["instance"], target.Labels["app"], target.Labels["group"]}
		targets = append(targets, strings.TrimSpace(strings.Join(identity, " ")))
	}
	slices.Sort(targets)
	return targets
}
