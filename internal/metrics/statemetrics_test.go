package metrics

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// stateMetrics is the part of the format of kube-state-metrics that our file uses.
type stateMetrics struct {
	Kind string `json:"kind"`
	Spec struct {
		Resources []struct {
			GroupVersionKind metav1.GroupVersionKind `json:"groupVersionKind"`
			MetricNamePrefix string                  `json:"metricNamePrefix"`
			LabelsFromPath   map[string][]string     `json:"labelsFromPath"`
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

// at returns the schema of a path, which is empty if there is no such field.
func at(s crdSchema, path []string) crdSchema {
	for _, name := range path {
		s = s.Properties[name]
	}
	return s
}

// TestStateMetrics: the paths in the file for kube-state-metrics exist in the CustomResourceDefinition, and lead to
// numbers, or to values that kube-state-metrics converts to numbers.
func TestStateMetrics(t *testing.T) {
	var file stateMetrics
	read(t, "../../artifacts/kube-state-metrics/localservices.yaml", &file, yaml.UnmarshalStrict)
	var crd apiextensionsv1.CustomResourceDefinition
	read(t, "../../artifacts/examples/crd.yaml", &crd, yaml.Unmarshal)
	root := *crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	root.Properties["metadata"] = crdSchema{Properties: map[string]crdSchema{ // Kubernetes defines it.
		"name": {Type: "string"}, "namespace": {Type: "string"}, "generation": {Type: "integer"}}}
	resource := file.Spec.Resources[0]
	gvk := metav1.GroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.Kind))
	got := []any{file.Kind, len(file.Spec.Resources), resource.GroupVersionKind, len(resource.Metrics) > 0}
	if diff := cmp.Diff([]any{"CustomResourceStateMetrics", 1, gvk, true}, got); diff != "" {
		t.Errorf("kind, resources, their kind, and whether there are metrics (-want +got):\n%s", diff)
	}
	want := func(what string, from crdSchema, path []string, kind string) {
		t.Helper()
		if got := at(from, path).Type; got != kind {
			t.Errorf("%s: %v is a %q; want a %s", what, path, got, kind)
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
		list := at(root, gauge.Path)
		if list.Items == nil {
			t.Fatalf("%s: %v is not a list", metric.Name, gauge.Path)
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
