package app

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// schema keeps the part of an OpenAPI schema that says which fields exist.
type schema struct {
	Properties map[string]schema         `json:"properties"`
	Items      *schema                   `json:"items"`
	Kinds      []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
}

// findOldSchema logs which fields of a spec the CustomResourceDefinition lacks, and returns them. The API server drops
// them from each LocalService in silence: without its nodeSelectorTerms, one would select all nodes.
func findOldSchema(ctx context.Context, kube kubernetes.Interface) []string {
	lacks, err := lackingFields(ctx, kube)
	logger := klog.FromContext(ctx)
	switch {
	case err != nil:
		logger.V(2).Info("Cannot compare the CustomResourceDefinition with this version", "err", err)
	case len(lacks) > 0:
		logger.Error(nil, "The CustomResourceDefinition is older than the controller: the API server drops fields "+
			"from LocalServices, as if nobody had set them: "+installCRD, "fields", lacks)
	}
	return lacks
}

// lackingFields returns the fields of a spec that the API server does not know. Those of the status show when it is
// written.
func lackingFields(ctx context.Context, kube kubernetes.Interface) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	gv := v1alpha1.SchemeGroupVersion
	data, err := kube.Discovery().RESTClient().Get().AbsPath("/openapi/v3/apis", gv.Group, gv.Version).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var document struct {
		Components struct {
			Schemas map[string]schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	kind := metav1.GroupVersionKind(gv.WithKind(v1alpha1.Kind))
	for _, s := range document.Components.Schemas {
		if slices.Contains(s.Kinds, kind) {
			return s.Properties["spec"].lacks(reflect.TypeFor[v1alpha1.LocalServiceSpec](), "spec"), nil
		}
	}
	return nil, fmt.Errorf("the OpenAPI document of %s has no %s", gv, v1alpha1.Kind)
}

// lacks returns the fields of a type that a schema does not have. A schema without properties allows any, or is that of
// a scalar.
func (s schema) lacks(t reflect.Type, path string) (lacking []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice && s.Items != nil {
			s = *s.Items
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || len(s.Properties) == 0 {
		return nil
	}
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || len(field.Index) > 1 {
			continue
		}
		if property, exists := s.Properties[name]; exists {
			lacking = append(lacking, property.lacks(field.Type, path+"."+name)...)
		} else {
			lacking = append(lacking, path+"."+name)
		}
	}
	return lacking
}
