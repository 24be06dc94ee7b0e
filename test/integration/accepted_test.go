package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// hostile has values that an API server may accept for a LocalService but not for a Service, by the last name of their
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

// keysAndValues has entries for all maps.
var keysAndValues = func() (found []any) {
	words := []string{"", "a", "A", "1", "-a", "a-", "a.b", "a_b", "a b", "é", "a/b", "/b", "a/", "a/b/c", "a/-b",
		"A/b", "a..b/c", "owner", nodeLabel, strings.Repeat("a", 63), strings.Repeat("a", 64),
		strings.Repeat("a.", 126) + "a/b"}
	for _, word := range words {
		found = append(found, map[string]any{word: "a"}, map[string]any{"a": word})
	}
	return found
}()

// randomFields returns a form of Services, families, and some values of the walks that suit the form.
func randomFields(random *rand.Rand) []string {
	forms := []string{"", addressed, nodePorts, loadBalancers} // Each has the fields of those before it.
	form := random.IntN(len(forms))
	texts := []string{headless, forms[form], stackSteps[random.IntN(len(stackSteps))].fields,
		"nodeSelector: {disk: ssd}"}
	for _, name := range slices.Sorted(maps.Keys(fieldWalks)) {
		w := fieldWalks[name]
		needs := slices.Index(forms, w.before)
		if needs > form || random.IntN(4) > 0 {
			continue
		}
		if needs < 0 {
			texts = append(texts, w.before)
		}
		texts = append(texts, w.values[random.IntN(len(w.values))])
	}
	return texts
}

// randomSpec returns the spec of a LocalService in which some values are hostile.
func randomSpec(random *rand.Rand, all []schemaPart) any {
	spec := any(fieldsOf(randomFields(random)...))
	for range random.IntN(3) {
		part := all[random.IntN(len(all))]
		values := slices.Clone(hostile[part.path[len(part.path)-1]])
		if part.is["additionalProperties"] != nil {
			values = append(values, keysAndValues...)
		}
		if values = append(values, asList(part.is["enum"])...); len(values) > 0 {
			spec = with(spec, part.path[1:], values[random.IntN(len(values))])
		}
	}
	return spec
}

// try makes a dry run with a spec, and returns the LocalService that the API server would store, with a name and a UID.
func (s *scene) try(spec any) (*v1alpha1.LocalService, error) {
	ls := &v1alpha1.LocalService{}
	answer, err := s.ask(with(full(s.T, s.Namespace)[0], []string{"spec"}, spec), "")
	if err == nil {
		err = json.Unmarshal(answer, ls)
	}
	ls.UID = "uid-demo"
	return ls, err
}

// tryService makes a dry run with one of the Services of a LocalService, that of a node in mode Services.
func (s *scene) tryService(ls *v1alpha1.LocalService, i int) error {
	labels := func(_, _ string) (value string, exists bool) { return "a", true }
	templates, err := plan.NewTemplates(ls, nodeLabel, labels)
	if err != nil {
		return err
	}
	node := ""
	if len(templates) == 1 {
		node = []string{"node1", "10.0.0.1.example.com", strings.Repeat("n.", 120) + "n"}[i%3]
	}
	service := templates[i%len(templates)].Service(node)
	service.Namespace = s.Namespace
	_, err = s.ServiceClient().Create(s.Ctx(), service, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// TestWhatIsAcceptedWorks tests that the API server accepts the Services of each spec that it accepts. So whoever
// writes a bad spec gets the error at once, and not later for each node. The exception is what only the cluster knows:
// whether it has addresses of a family.
func TestWhatIsAcceptedWorks(t *testing.T) {
	t.Parallel()
	const specs = 2000
	single := newScene(t, shared, "accepted")
	dual := newScene(t, framework.NewCluster(t, dualStack()), "accepted")
	all := schemaParts(t, "spec")
	var accepted, familiesRefused atomic.Int32
	single.InParallel(specs, func(i int) error {
		ls, err := single.try(randomSpec(rand.New(rand.NewPCG(uint64(i), 0)), all))
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("spec %d: %w", i, err)
		}
		accepted.Add(1)
		policy := ls.Spec.IPFamilyPolicy
		asks := policy != nil && *policy == corev1.IPFamilyPolicyRequireDualStack ||
			len(ls.Spec.IPFamilies) > 1 && policy == nil || slices.Contains(ls.Spec.IPFamilies, "IPv6")
		for _, s := range []*scene{single, dual} {
			err := s.tryService(ls, i)
			if s == single && asks && apierrors.IsInvalid(err) && strings.Contains(err.Error(), "spec.ipFamil") {
				familiesRefused.Add(1)
			} else if err != nil {
				t.Errorf("spec %d is accepted, and its Service refused: %.600v\n%.1000v", i, err, ls.Spec)
			}
		}
		return nil
	})
	t.Logf("%d of %d specs are accepted; %d ask for a family that one cluster does not have", accepted.Load(), specs,
		familiesRefused.Load())
	if accepted.Load() < specs/5 {
		t.Errorf("only %d of %d specs are accepted, so little was tried", accepted.Load(), specs)
	}
}
