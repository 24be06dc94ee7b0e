package integration

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// hostile holds values that an API server may accept for a LocalService but not for a Service, by the last name of
// their field.
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

// tryService makes a dry run with one of the Services of a LocalService, that of a node in mode Services.
func (s *scene) tryService(ls *v1alpha1.LocalService, i int) error {
	ls.UID = "uid-demo" // A LocalService that is not stored has none.
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
