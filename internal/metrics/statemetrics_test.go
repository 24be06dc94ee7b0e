package metrics

import (
	"fmt"
	"os"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// stateMetrics is the part of the format of kube-state-metrics that our file uses.
type stateMetrics struct {
	Kind string `json:"kind"`
	Spec struct {
		Resources []struct {
			GroupVersionKind struct{ Group, Version, Kind string } `json:"groupVersionKind"`
			MetricNamePrefix string                                `json:"metricNamePrefix"`
			LabelsFromPath   map[string][]string                   `json:"labelsFromPath"`
			Metrics          []struct {
				Name, Help string
				Each       struct {
					Type  string
					Gauge struct {
						Path           []string            `json:"path"`
						LabelsFromPath map[string][]string `json:"labelsFromPath"`
						ValueFrom      []string            `json:"valueFrom"`
					}
				}
			}
		}
	}
}

type crdSchema = apiextensionsv1.JSONSchemaProps

// at returns the schema of a path, or an error if there is no such field.
func at(s crdSchema, path []string) (crdSchema, error) {
	for i, name := range path {
		if strings.Join(path[:i], ".") == "metadata" { // Kubernetes defines it.
			types := map[string]string{"name": "string", "namespace": "string", "generation": "integer"}
			return crdSchema{Type: types[name]}, nil
		}
		next, found := s.Properties[name]
		if !found {
			return crdSchema{}, fmt.Errorf("there is no field %s", strings.Join(path[:i+1], "."))
		}
		s = next
	}
	return s, nil
}

// TestStateMetrics: the paths in the file for kube-state-metrics exist in the CustomResourceDefinition, and lead to
// numbers, or to values that kube-state-metrics converts to numbers.
func TestStateMetrics(t *testing.T) {
	var file stateMetrics
	read(t, "../../artifacts/kube-state-metrics/localservices.yaml", &file, yaml.UnmarshalStrict)
	var crd apiextensionsv1.CustomResourceDefinition
	read(t, "../../artifacts/examples/crd.yaml", &crd, yaml.Unmarshal)
	root := *crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	resource := file.Spec.Resources[0]
	gvk := v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.Kind)
	if got := resource.GroupVersionKind; got.Group != gvk.Group || got.Version != gvk.Version || got.Kind != gvk.Kind ||
		len(file.Spec.Resources) != 1 || len(resource.Metrics) == 0 || file.Kind != "CustomResourceStateMetrics" {
		t.Errorf("%+v", file)
	}
	want := func(what string, from crdSchema, path []string, kind string) {
		t.Helper()
		if got, err := at(from, path); err != nil || got.Type != kind {
			t.Errorf("%s: %v is a %q, %v; want a %s", what, path, got.Type, err, kind)
		}
	}
	for label, path := range resource.LabelsFromPath {
		want(label, root, path, "string")
	}
	for _, metric := range resource.Metrics {
		gauge := metric.Each.Gauge
		if metric.Help == "" || metric.Each.Type != "Gauge" {
			t.Errorf("%+v", metric)
		}
		if len(gauge.ValueFrom) == 0 {
			want(metric.Name, root, gauge.Path, "integer")
			continue
		}
		list, err := at(root, gauge.Path)
		if err != nil || list.Items == nil {
			t.Fatalf("%s: %v is not a list: %v", metric.Name, gauge.Path, err)
		}
		want(metric.Name, *list.Items.Schema, gauge.ValueFrom, "string")
		for label, path := range gauge.LabelsFromPath {
			want(metric.Name+" "+label, *list.Items.Schema, path, "string")
		}
	}
}

func read(t *testing.T, path string, into any, unmarshal func([]byte, any, ...yaml.JSONOpt) error) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unmarshal(content, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
