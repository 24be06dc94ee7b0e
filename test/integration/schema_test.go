package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// schemaPart is a part of the CustomResourceDefinition's schema, and where it is: the names of fields, and * for an
// item of a list or a value of a map.
type schemaPart struct {
	path []string
	is   map[string]any
}

// schemaParts returns all parts of a top-level field's schema.
func schemaParts(t testing.TB, field string) []schemaPart {
	t.Helper()
	data, err := os.ReadFile(framework.ModuleFile("artifacts", "examples", "crd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema map[string]any }
			}
		}
	}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatal(err)
	}
	properties := crd.Spec.Versions[0].Schema.OpenAPIV3Schema["properties"].(map[string]any)
	return parts(schemaPart{[]string{field}, properties[field].(map[string]any)})
}

func parts(of schemaPart) []schemaPart {
	all := []schemaPart{of}
	add := func(name string, is any) {
		if is, ok := is.(map[string]any); ok {
			all = append(all, parts(schemaPart{append(slices.Clone(of.path), name), is})...)
		}
	}
	properties, _ := of.is["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		add(name, properties[name])
	}
	add("*", of.is["items"])
	add("*", of.is["additionalProperties"])
	return all
}

// values returns values of all types, and those at and beyond each bound of the schema and of Go types.
func (s schemaPart) values() []any {
	values := []any{nil, true, false, "", "a", "None", "10.0.0.0/8", "2026-01-01T00:00:00Z", "é", "a\nb", "-1",
		"70000", []any{}, map[string]any{}, []any{nil}, map[string]any{"a": nil}, []any{"a"}, map[string]any{"a": "a"},
		map[string]any{"a": 1}}
	for _, n := range []string{"0", "1", "-1", "80.0", "1.5", "1e3", "1e-9", "1e30", "-1e30", "1e308"} {
		values = append(values, json.Number(n))
	}
	for _, bound := range []float64{1 << 7, 1 << 8, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 53, 1 << 63, 1 << 64} {
		for _, n := range []float64{bound - 1, bound, bound + 1, -bound, -bound - 1} {
			values = append(values, json.Number(fmt.Sprintf("%.0f", n)))
		}
	}
	values = append(values, json.Number(fmt.Sprint(math.MaxInt64)), json.Number("-9223372036854775809"))
	bound := func(name string, make func(n int) any) {
		for _, of := range append([]any{s.is}, asList(s.is["anyOf"])...) {
			if n, found := of.(map[string]any)[name]; found {
				for d := -1; d <= 1; d++ {
					values = append(values, make(int(asFloat(n))+d))
				}
			}
		}
	}
	number := func(n int) any { return n }
	text := func(n int) any { return strings.Repeat("a", max(n, 0)) }
	bound("minimum", number)
	bound("maximum", number)
	bound("minLength", text)
	bound("maxLength", text)
	bound("maxItems", func(n int) any { return slices.Repeat([]any{"a"}, max(n, 0)) })
	bound("maxProperties", func(n int) any {
		m := map[string]any{}
		for i := range n {
			m[fmt.Sprint("k", i)] = "a"
		}
		return m
	})
	if s.is["additionalProperties"] != nil {
		values = append(values, keysAndValues...)
	}
	return slices.Concat(values, []any{text(300), text(100_000)}, asList(s.is["enum"]), hostile[s.path[len(s.path)-1]])
}

func asList(v any) []any { list, _ := v.([]any); return list }

func asFloat(v any) float64 {
	var f float64
	_, _ = fmt.Sscan(fmt.Sprint(v), &f)
	return f
}

// with returns a copy of an object with a value at a path. It creates the missing parents.
func with(object any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	if list, isList := object.([]any); isList {
		list = append([]any(nil), list...)
		if len(list) == 0 {
			list = []any{nil}
		}
		list[0] = with(list[0], path[1:], value)
		return list
	}
	fields, _ := object.(map[string]any)
	if fields = maps.Clone(fields); fields == nil {
		fields = map[string]any{}
	}
	key := path[0]
	if key == "*" {
		key = "a"
	}
	fields[key] = with(fields[key], path[1:], value)
	return fields
}

// full returns LocalServices with a value in every field that allows one.
func full(t testing.TB, namespace string) []any {
	var objects []any
	for _, text := range []string{
		`{clusterIP: None, selector: {a: a}, nodeSelector: {none: none}, ports: [{name: a, port: 80, targetPort: 8080}],
		  ipFamilies: [IPv4], nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [a]}],
		  matchFields: [{key: metadata.name, operator: In, values: [a]}]}]}`,
		`{type: LoadBalancer, selector: {a: a}, nodeSelector: {none: none}, ports: [{name: a, port: 80}],
		  ipFamilies: [IPv4], sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 10}},
		  loadBalancerSourceRanges: [192.0.2.0/24], serviceMetadata: {labels: {a: a}, annotations: {a: a}}}`,
	} {
		spec := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, map[string]any{
			"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": v1alpha1.Kind,
			"metadata": map[string]any{"name": "demo", "namespace": namespace}, "spec": spec,
			"status": map[string]any{"conditions": []any{map[string]any{"type": "a", "status": "True", "reason": "a",
				"message": "a", "lastTransitionTime": "2026-01-01T00:00:00Z"}}}})
	}
	return objects
}

// ask makes a dry run with a LocalService, and returns what the API server would store.
func (s *scene) ask(object any, subresource string) ([]byte, error) {
	client := s.LocalServices.LocalserviceV1alpha1().RESTClient()
	request := client.Post()
	if subresource != "" {
		request = client.Put().Name("stored").SubResource(subresource)
	}
	body, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return request.Namespace(s.Namespace).Resource("localservices").Param("dryRun", metav1.DryRunAll).
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).DoRaw(s.Ctx())
}

// TestWhatIsAcceptedWorks tests that everything that the API server accepts can be decoded, as a single LocalService
// that cannot would prevent every client from reading any; and that the API server accepts the Services of each spec
// that it accepts, so that whoever writes a bad spec gets the error at once, and not later for each node. The exception
// is what only the cluster knows: whether it has addresses of a family.
func TestWhatIsAcceptedWorks(t *testing.T) {
	t.Parallel()
	s := newScene(t, framework.NewCluster(t, dualStack()), "accepted")
	stored := s.Create("stored", spec(headless, "nodeSelector: {none: none}"))
	type question struct {
		schemaPart
		object any
		value  any
		sub    string
	}
	var questions []question
	for _, field := range []struct{ name, sub string }{{"spec", ""}, {"status", "status"}} {
		for _, part := range schemaParts(t, field.name) {
			for _, object := range full(t, s.Namespace) {
				if field.sub != "" {
					object = with(object, []string{"metadata", "name"}, stored.Name)
					object = with(object, []string{"metadata", "resourceVersion"}, stored.ResourceVersion)
				}
				for _, value := range part.values() {
					questions = append(questions, question{part, with(object, part.path, value), value, field.sub})
				}
			}
		}
	}
	isAccepted := make([]bool, len(questions))
	s.InParallel(len(questions), func(i int) error {
		q := questions[i]
		what := fmt.Sprintf("%s: %.100v", strings.Join(q.path, "."), q.value)
		answer, err := s.ask(q.object, q.sub)
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		isAccepted[i] = true
		ls := &v1alpha1.LocalService{}
		if err := json.Unmarshal(answer, ls); err != nil {
			t.Errorf("%s is accepted, and cannot be read: %v", what, err)
			return nil
		}
		if q.sub != "" {
			return nil
		}
		if err := s.tryService(ls, i); err != nil {
			t.Errorf("%s is accepted, and its Service refused: %.600v", what, err)
		}
		return nil
	})
	total, accepted := 0, map[string]int{}
	for i, q := range questions {
		path := strings.Join(q.path, ".")
		switch {
		case isAccepted[i]:
			total++
			accepted[path]++
		case q.is["required"] == nil && path != "spec.nodeSelectorTerms.*":
			// Of an object that has to have something, no value of a general kind is whole.
			accepted[path] += 0
		}
	}
	for path, n := range accepted {
		if n == 0 {
			t.Errorf("%s: nothing is accepted, so nothing was tried", path)
		}
	}
	t.Logf("%d of %d values for %d fields are accepted", total, len(questions), len(accepted))
}
