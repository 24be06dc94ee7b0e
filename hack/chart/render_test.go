package chart

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"reflect"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	loader3 "helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	engine3 "helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	loader4 "helm.sh/helm/v4/pkg/chart/v2/loader"
	engine4 "helm.sh/helm/v4/pkg/engine"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const (
	chartFolder = "../../artifacts/chart/local-service-controller"
	name        = "local-service-controller"
	namespace   = "local-service-system"
)

// everyHelm renders the chart with Helm 3 and with Helm 4.
var everyHelm = []func(release, namespace string, values map[string]any) (map[string]string, error){
	func(release, namespace string, values map[string]any) (map[string]string, error) {
		chart, err := loader3.Load(chartFolder)
		if err != nil {
			return nil, err
		}
		options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
		all, err := chartutil.ToRenderValues(chart, values, options, chartutil.DefaultCapabilities)
		if err != nil {
			return nil, err
		}
		return engine3.Engine{Strict: true}.Render(chart, all)
	},
	func(release, namespace string, values map[string]any) (map[string]string, error) {
		chart, err := loader4.Load(chartFolder)
		if err != nil {
			return nil, err
		}
		options := common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
		all, err := util.ToRenderValues(chart, values, options, common.DefaultCapabilities)
		if err != nil {
			return nil, err
		}
		return engine4.Engine{Strict: true}.RenderWithContext(context.Background(), chart, all)
	},
}

// renderFiles renders the chart with values, as a user writes them. What one Helm makes, the other one must make, too.
func renderFiles(t *testing.T, release, values string) (map[string]string, []error) {
	t.Helper()
	return renderFilesIn(t, namespace, release, values)
}

// renderFilesIn is renderFiles for another namespace.
func renderFilesIn(t *testing.T, namespace, release, values string) (map[string]string, []error) {
	t.Helper()
	var files map[string]string
	var errs []error
	for i, render := range everyHelm {
		parsed := map[string]any{}
		if err := yaml.Unmarshal([]byte(values), &parsed); err != nil {
			t.Fatal(err)
		}
		got, err := render(release, namespace, parsed)
		if err != nil {
			errs = append(errs, err)
		} else if i > 0 {
			equal(t, files, got)
		}
		files = got
	}
	if n := len(errs); n > 0 && n < len(everyHelm) {
		t.Fatalf("only one Helm refuses %s: %v", values, errs)
	}
	return files, errs
}

// objects holds what a rendering or a manifest has, by kind and name, with the namespace if it is not that of the
// release.
type objects map[string]runtime.Object

// decoder knows every kind that the chart may have, and refuses fields that the kind has not.
var decoder = func() runtime.Decoder {
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, monitoringv1.AddToScheme,
	} {
		utilruntime.Must(add(all))
	}
	options := json.SerializerOptions{Yaml: true, Strict: true}
	return json.NewSerializerWithOptions(json.DefaultMetaFactory, all, all, options)
}()

// decode reads manifests into objects.
func decode(manifests string, into objects) error {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifests)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var content map[string]any
		if err := yaml.Unmarshal(document, &content); err != nil {
			return fmt.Errorf("%w in\n%s", err, document)
		}
		if len(content) == 0 { // comments only
			continue
		}
		object, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return fmt.Errorf("%w in\n%s", err, document)
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		key := kind.Kind + " " + accessor.GetName()
		if in := accessor.GetNamespace(); in != "" && in != namespace {
			key = kind.Kind + " " + in + "/" + accessor.GetName()
		}
		if into[key] != nil {
			return fmt.Errorf("there are two: %s", key)
		}
		into[key] = object
	}
}

// decodeFiles reads manifests from files.
func decodeFiles(t *testing.T, files ...string) objects {
	t.Helper()
	found := objects{}
	for _, file := range files {
		data := must(os.ReadFile(file))
		if err := decode(string(data), found); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return found
}

// render renders a release of the chart with values, and decodes all that comes of it.
func render(t *testing.T, release, values string) objects {
	t.Helper()
	return renderIn(t, namespace, release, values)
}

// renderIn is render for another namespace.
func renderIn(t *testing.T, namespace, release, values string) objects {
	t.Helper()
	files, errs := renderFilesIn(t, namespace, release, values)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	found := objects{}
	for file, content := range files {
		if path.Ext(file) != ".yaml" {
			continue
		}
		if err := decode(content, found); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return found
}

// find returns the one object of a type, or with a name the one that is called so.
func find[T runtime.Object](t *testing.T, from objects, name ...string) T {
	t.Helper()
	var found []T
	for key, object := range from {
		if typed, ok := object.(T); ok && (len(name) == 0 || strings.HasSuffix(key, " "+name[0])) {
			found = append(found, typed)
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d objects %s %v, not 1", len(found), reflect.TypeFor[T](), name)
	}
	return found[0]
}

// must returns a value, and panics if there is an error instead.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
