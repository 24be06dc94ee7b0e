package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"pgregory.net/rapid"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// schemaPart is a part of the CustomResourceDefinition's schema, and where it is: the names of fields, and * for an
// item of a list or a value of a map.
type schemaPart struct {
	path []string
	is   map[string]any
}

// schemaParts are all parts of a top-level field's schema.
func schemaParts(t testing.TB, field string) []schemaPart {
	t.Helper()
	path, err := framework.ModuleFile("artifacts", "examples", "crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
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

// values are values of all types, and those at and beyond each bound of the schema and of the types of Go.
func (s schemaPart) values() []any {
	values := []any{nil, true, false, "", "a", "None", "10.0.0.0/8", "2026-01-01T00:00:00Z", "é", "a\nb", "-1", "70000",
		[]any{}, map[string]any{}, []any{nil}, map[string]any{"a": nil}, []any{"a"}, map[string]any{"a": "a"},
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
	return append(append(values, text(300), text(100_000)), asList(s.is["enum"])...)
}

func asList(v any) []any { list, _ := v.([]any); return list }

func asFloat(v any) float64 {
	var f float64
	_, _ = fmt.Sscan(fmt.Sprint(v), &f)
	return f
}

// with is a copy of an object with a value at a path. What is missing on the way there is made.
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

// full are LocalServices with a value wherever that is allowed.
func full(t testing.TB, namespace string) []any {
	var objects []any
	for _, text := range []string{
		`{clusterIP: None, selector: {a: a}, nodeSelector: {none: none}, ports: [{name: a, port: 80, targetPort: 8080}],
		  ipFamilies: [IPv4]}`,
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

// ask has the API server judge a LocalService that is not stored, and returns what it would store.
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

// TestSchemaIsAsStrictAsTheTypes tests that whatever the API server accepts can be read: one LocalService that cannot
// be would keep every client from reading any.
func TestSchemaIsAsStrictAsTheTypes(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "schema")
	stored := s.CreateReady("stored", spec(headless, "nodeSelector: {none: none}"))
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
	var mu sync.Mutex
	accepted := map[string]int{}
	s.InParallel(len(questions), func(i int) error {
		q := questions[i]
		answer, err := s.ask(q.object, q.sub)
		path := strings.Join(q.path, ".")
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			if q.is["required"] == nil { // Otherwise no value of a general kind is whole.
				accepted[path] += 0
			}
			if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
				return nil
			}
			return fmt.Errorf("%s: %.100v: %w", path, q.value, err)
		}
		accepted[path]++
		if err := json.Unmarshal(answer, &v1alpha1.LocalService{}); err != nil {
			t.Errorf("%s: %.100v is accepted, and cannot be read: %v", path, q.value, err)
		}
		return nil
	})
	total := 0
	for path, n := range accepted {
		if total += n; n == 0 {
			t.Errorf("%s: nothing is accepted, so nothing was tried", path)
		}
	}
	t.Logf("%d of %d values for %d fields are accepted", total, len(questions), len(accepted))
}

// hostile are values that an API server may accept for a LocalService, and not for a Service, by the last name of their
// field.
var hostile = map[string][]any{
	"targetPort": {-1, 0, 70000, 65535, 65536, "", "8080", "a-b", "a--b", "-a", "A", "abcdefghijklmno",
		"abcdefghijklmnop"},
	"name": {"", "a", "1", "1-2", "a--b", "a.b", "A", strings.Repeat("a", 63), strings.Repeat("a", 64)},
	"port": {0, 1, 65535, 65536, -1},
	"appProtocol": {"", "/", "a/", "/a", "a/b", "a/b/c", "A/b", "a_b", "-a", "http", "kubernetes.io/h2c", "a b", "é",
		strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a.", 126) + "a/b",
		strings.Repeat("a", 64) + ".b/c"},
	"loadBalancerSourceRanges": {[]any{"10.0.0.1/8"}, []any{"10.0.0.0/8", "10.0.0.0/8"}, []any{"::/0"},
		[]any{" 10.0.0.0/8 "},
		[]any{"::ffff:10.0.0.0/104"}, []any{"010.0.0.0/8"}, []any{"10.0.0.0/08"}, []any{"10.0.0.0"},
		[]any{""}, []any{"2001:DB8::/32"}},
	"timeoutSeconds": {0, 1, 86400, 86401},
	"clusterIP":      {"", "None", "none", "10.96.0.9"},
	"ipFamilies":     {[]any{"IPv6"}, []any{"IPv6", "IPv4"}, []any{"IPv4", "IPv4"}, []any{}},
	"annotations": {map[string]any{corev1.LastAppliedConfigAnnotation: "{}"}, map[string]any{"A/b": "é\n"},
		map[string]any{"service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.1/8"},
		map[string]any{corev1.AnnotationTopologyMode: "Auto",
			corev1.DeprecatedAnnotationTopologyAwareHints: "Disabled"},
		map[string]any{corev1.AnnotationTopologyMode: "Auto", corev1.DeprecatedAnnotationTopologyAwareHints: "Auto"},
		map[string]any{corev1.AnnotationTopologyMode: "odd"},
		map[string]any{"service.alpha.kubernetes.io/tolerate-unready-endpoints": "odd"},
		map[string]any{"a": strings.Repeat("é", 50_000)}, map[string]any{"a": strings.Repeat("a", 49_999)}},
}

// keysAndValues are for all maps.
var keysAndValues = func() (found []any) {
	words := []string{"", "a", "A", "1", "-a", "a-", "a.b", "a_b", "a b", "é", "a/b", "/b", "a/", "a/b/c", "a/-b",
		"A/b", "a..b/c", "owner", nodeLabel, strings.Repeat("a", 63), strings.Repeat("a", 64),
		strings.Repeat("a.", 126) + "a/b"}
	for _, word := range words {
		found = append(found, map[string]any{word: "a"}, map[string]any{"a": word})
	}
	return found
}()

// randomSpec is the spec of a LocalService in which some of the values are hostile.
func (s *scene) randomSpec(all []schemaPart) *rapid.Generator[any] {
	return rapid.Custom(func(rt *rapid.T) any {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		spec := any(fieldsOf(append([]string{"selector: {app: a}"}, s.randomFields(random)...)...))
		for range random.IntN(3) {
			part := all[random.IntN(len(all))]
			values := hostile[part.path[len(part.path)-1]]
			if part.is["additionalProperties"] != nil {
				values = append(slices.Clone(keysAndValues), values...)
			}
			values = append(slices.Clone(values), asList(part.is["enum"])...)
			if len(values) > 0 {
				spec = with(spec, part.path[1:], values[random.IntN(len(values))])
			}
		}
		return spec
	})
}

// TestWhatIsAcceptedWorks tests that of a spec that the API server accepts it also accepts the Service, so that what is
// wrong with a spec is told to whoever writes it, and not later, node by node. What only the cluster knows, whether it
// has addresses of a family, is the exception.
func TestWhatIsAcceptedWorks(t *testing.T) {
	t.Parallel()
	const specs = 2000
	single := newScene(t, shared, "accepted")
	dual := newScene(t, framework.NewCluster(t, dualStack(dualStackRanges)), "accepted")
	random := single.randomSpec(schemaParts(t, "spec"))
	var mu sync.Mutex
	accepted, familiesRefused := 0, 0
	single.InParallel(specs, func(i int) error {
		object := with(full(t, single.Namespace)[0], []string{"spec"}, random.Example(i))
		answer, err := single.ask(object, "")
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			return nil
		} else if err != nil {
			return err
		}
		ls := &v1alpha1.LocalService{}
		if err := json.Unmarshal(answer, ls); err != nil {
			return fmt.Errorf("spec %d cannot be read: %w: %s", i, err, answer)
		}
		ls.UID = types.UID("uid-demo")
		mu.Lock()
		accepted++
		mu.Unlock()
		templates, err := plan.NewTemplates(ls, nodeLabel)
		if err != nil {
			t.Errorf("spec %d is accepted, and invalid: %v", i, err)
			return nil
		}
		for _, s := range []*scene{single, dual} {
			template, node := templates[i%len(templates)], ""
			if len(templates) == 1 {
				node = []string{"node1", "10.0.0.1.example.com", strings.Repeat("n.", 120) + "n"}[i%3]
			}
			service := template.Service(node)
			service.Namespace = s.Namespace
			dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
			_, err := s.ServiceClient().Create(s.Ctx(), service, dryRun)
			policy := ls.Spec.IPFamilyPolicy
			asks := policy != nil && *policy == corev1.IPFamilyPolicyRequireDualStack ||
				len(ls.Spec.IPFamilies) > 1 && policy == nil || slices.Contains(ls.Spec.IPFamilies, "IPv6")
			if s == single && asks && apierrors.IsInvalid(err) && strings.Contains(err.Error(), "spec.ipFamil") {
				mu.Lock()
				familiesRefused++
				mu.Unlock()
			} else if err != nil {
				t.Errorf("spec %d is accepted, and its Service refused: %.600v\n%.1000s", i, err, answer)
			}
		}
		return nil
	})
	t.Logf("%d of %d specs are accepted; %d ask for a family that one cluster does not have", accepted, specs,
		familiesRefused)
	if accepted < specs/5 {
		t.Errorf("only %d of %d specs are accepted, so little was tried", accepted, specs)
	}
}
