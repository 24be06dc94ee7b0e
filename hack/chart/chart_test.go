// Package chart tests the Helm chart, with Helm 3 and Helm 4 as libraries: no cluster is needed.
package chart

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	lint3 "helm.sh/helm/v3/pkg/lint"
	lint4 "helm.sh/helm/v4/pkg/chart/v2/lint"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// TestUninstallKeepsLocalServices: without the annotation, an uninstall would delete the CustomResourceDefinition, and
// with it all LocalServices.
func TestUninstallKeepsLocalServices(t *testing.T) {
	all := render(t, name, "")
	checkLabels(t, all)
	crd := find[*apiextensionsv1.CustomResourceDefinition](t, all)
	equal(t, "keep", crd.Annotations["helm.sh/resource-policy"])
}

// TestStrictClusters: GKE refuses pods with a priority class of the system where no quota is about that class, and
// OpenShift refuses pods that choose their user.
func TestStrictClusters(t *testing.T) {
	all := render(t, name, "")
	pod := find[*appsv1.Deployment](t, all).Spec.Template.Spec
	equal(t, []corev1.ScopedResourceSelectorRequirement{{ScopeName: corev1.ResourceQuotaScopePriorityClass,
		Operator: corev1.ScopeSelectorOpIn, Values: []string{pod.PriorityClassName}}},
		find[*corev1.ResourceQuota](t, all).Spec.ScopeSelector.MatchExpressions)
	for _, word := range []string{"runAsUser:", "runAsGroup:", "fsGroup:", "supplementalGroups:"} {
		if strings.Contains(string(must(yaml.Marshal(pod))), word) {
			t.Errorf("the pods have %s", word)
		}
	}
}

// TestNotes tests that the notes warn of an image that no registry has, and of no other, and name the plugin.
func TestNotes(t *testing.T) {
	for repository, warns := range map[string]bool{
		"localhost/local-service-controller": true, "registry.example.com/local-service-controller": false,
	} {
		files, _ := renderFiles(t, name, "image: {repository: "+repository+"}")
		notes := files[name+"/templates/NOTES.txt"]
		if strings.Contains(notes, "cannot be pulled") != warns {
			t.Errorf("with the image %s, the notes should warn of it: %t\n%s", repository, warns, notes)
		}
		if !strings.Contains(notes, "kubectl localservice nodes demo") {
			t.Errorf("the notes do not name the plugin:\n%s", notes)
		}
	}
}

// checkLabels checks that everything that selects the pods does.
func checkLabels(t *testing.T, all objects) {
	t.Helper()
	deployment := find[*appsv1.Deployment](t, all)
	pods := deployment.Spec.Template.Labels
	selects := func(what string, selector *metav1.LabelSelector, set map[string]string) {
		t.Helper()
		parsed, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil || parsed.Empty() || !parsed.Matches(labels.Set(set)) {
			t.Errorf("%s selects %s, not %v (%v)", what, parsed, set, err)
		}
	}
	selects("the Deployment", deployment.Spec.Selector, pods)
	for _, constraint := range deployment.Spec.Template.Spec.TopologySpreadConstraints {
		selects("the spread", constraint.LabelSelector, pods)
	}
	for key, object := range all {
		switch object := object.(type) {
		case *policyv1.PodDisruptionBudget:
			selects(key, object.Spec.Selector, pods)
		case *networkingv1.NetworkPolicy:
			selects(key, &object.Spec.PodSelector, pods)
		case *corev1.Service:
			selects(key, &metav1.LabelSelector{MatchLabels: object.Spec.Selector}, pods)
		case *monitoringv1.ServiceMonitor:
			selects(key, &object.Spec.Selector, find[*corev1.Service](t, all).Labels)
		}
	}
}

// policies are the admission policies for the node label, with their bindings.
func policies(t *testing.T) []string {
	return keys(decodeFiles(t, "../../artifacts/admission/node-label.yaml",
		"../../artifacts/admission/node-label-guard.yaml"))
}

// TestRules tests that the rules come through as they are in their file, but for what values change.
func TestRules(t *testing.T) {
	var file monitoringv1.PrometheusRuleSpec
	data := must(os.ReadFile(filepath.Join(chartFolder, "files", "rules.yaml")))
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		t.Fatal(err)
	}
	rule := find[*monitoringv1.PrometheusRule](t,
		render(t, name, "metrics: {prometheusRule: {enabled: true, labels: {a: b}}}"))
	equal(t, "b", rule.Labels["a"])
	equal(t, file, rule.Spec)
	other := find[*monitoringv1.PrometheusRule](t, render(t, name, "{nameOverride: other, "+
		"metrics: {prometheusRule: {enabled: true, runbookURL: 'https://example.com/runbooks#'}}}"))
	for _, rule := range other.Spec.Groups[0].Rules {
		equal(t, "https://example.com/runbooks#"+strings.ToLower(rule.Alert), rule.Annotations["runbook_url"])
		if strings.Contains(rule.Expr.String(), name) {
			t.Errorf("%s selects another job: %s", rule.Alert, rule.Expr.String())
		}
	}
}

// TestRefused shows that values which cannot work are refused before anything is installed.
func TestRefused(t *testing.T) {
	tests := map[string]string{ // values -> a part of the error
		"replica: 3":                                 "replica",
		"replicas: many":                             "replicas",
		"image: {tag: 1}":                            "tag",
		"image: {digest: abc}":                       "digest",
		"flags: {http-address: ':80'}":               "flags",
		"flags: {-v: 2}":                             "flags",
		"namespaces: [a, a]":                         "namespaces",
		"namespaces: ['']":                           "namespaces",
		"namespaces: a":                              "namespaces",
		"fullnameOverride: Upper":                    "fullnameOverride",
		"hostnames: true":                            "hostnames",
		"flags: {label-pods: false}":                 "flags",
		"metrics: {service: {port: 0}}":              "port",
		"leaderElection: {enabled: false}":           "replicas: 1",
		"metrics: {serviceMonitor: {enabled: true}}": "metrics.service.enabled",

		"metrics: {prometheusRule: {runbookURL: 'https://example.com'}}": "runbookURL",
	}
	for values, want := range tests {
		_, errs := renderFiles(t, name, values)
		for _, err := range errs {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error is %v, which does not name %s", values, err, want)
			}
		}
		if len(errs) == 0 {
			t.Errorf("%s: it is accepted", values)
		}
	}
}

// TestFlags tests that the value flags takes all flags of the controller but those that the chart sets itself, and
// those that are of no use in a pod.
func TestFlags(t *testing.T) {
	refused := []string{"namespaces", "label-pods", "guard", "leader-elect", "leader-election-lease-duration", "http-address",
		"metrics-secure-address", "metrics-tls-cert-file", "metrics-tls-key-file", "kubeconfig", "master",
		"version"}
	page := must(os.ReadFile("../../docs/reference/flags.md"))
	var want []string // sorted, as the page is
	for _, row := range regexp.MustCompile("(?m)^\\| `-([a-z-]+)").FindAllStringSubmatch(string(page), -1) {
		if !slices.Contains(refused, row[1]) {
			want = append(want, row[1])
		}
	}
	var schema struct {
		Properties struct {
			Flags struct{ Properties map[string]any }
		}
	}
	data := must(os.ReadFile(filepath.Join(chartFolder, "values.schema.json")))
	if err := yaml.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	equal(t, want, slices.Sorted(maps.Keys(schema.Properties.Flags.Properties)))
	values := must(os.ReadFile(filepath.Join(chartFolder, "values.yaml")))
	for _, flag := range refused {
		if !strings.Contains(string(values), "`"+flag+"`") {
			t.Errorf("values.yaml does not say that the flag %s is refused", flag)
		}
	}
}

// TestNames checks that no name of a release makes names that are too long, and that two have none in common.
func TestNames(t *testing.T) {
	const everything = `{networkPolicy: {enabled: true}, metrics: {service: {enabled: true},
		secure: {enabled: true}}}`
	long := render(t, strings.Repeat("x", 53), everything)
	short := render(t, "x", everything)
	for key := range long {
		_, name, _ := strings.Cut(key, " ")
		mayBeLong := strings.HasPrefix(key, "ClusterRole") || strings.HasPrefix(key, "ValidatingAdmissionPolicy")
		if len(name) > 63 && !mayBeLong {
			t.Errorf("%s is too long", key)
		}
		if short[key] != nil && !strings.HasPrefix(key, "CustomResourceDefinition ") {
			t.Errorf("two releases both have %s", key)
		}
	}
	checkLabels(t, long)
}

// TestPictures: the pictures that the chart shows are in the repository.
func TestPictures(t *testing.T) {
	const here = "https://raw.githubusercontent.com/localservice-dev/local-service-controller/main/"
	chart := must(os.ReadFile(chartFolder + "/Chart.yaml"))
	pictures := regexp.MustCompile(regexp.QuoteMeta(here)+`(\S+)`).FindAllStringSubmatch(string(chart), -1)
	if len(pictures) < 2 {
		t.Errorf("the chart has the pictures %q, want an icon and screenshots", pictures)
	}
	for _, picture := range pictures {
		if _, err := os.Stat("../../" + picture[1]); err != nil {
			t.Errorf("%s: %v", picture[0], err)
		}
	}
}

func TestLint(t *testing.T) {
	for _, m := range lint3.All(chartFolder, nil, namespace, true).Messages {
		if m.Severity > 0 {
			t.Error(m)
		}
	}
	for _, m := range lint4.RunAll(chartFolder, nil, namespace).Messages {
		if m.Severity > 0 {
			t.Error(m)
		}
	}
}

func keys(all objects) []string { return slices.Sorted(maps.Keys(all)) }

func equal(t *testing.T, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want, +got)\n%s", diff)
	}
}
