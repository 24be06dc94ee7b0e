package metrics

import (
	"fmt"
	"iter"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// gather returns the metric families of a registry that are ours.
func gather(t *testing.T, gatherer metrics.Gatherer) []*dto.MetricFamily {
	t.Helper()
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(families, func(family *dto.MetricFamily) bool {
		return !strings.HasPrefix(family.GetName(), "localservice_")
	})
}

// series returns the values of gauges, by their names in PromQL without the prefix.
func series(t *testing.T, gatherer metrics.Gatherer) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for _, family := range gather(t, gatherer) {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			name := fmt.Sprintf("%s{%s}", strings.TrimPrefix(family.GetName(), "localservice_"),
				strings.Join(labels, ","))
			out[name] = metric.GetGauge().GetValue()
		}
	}
	return out
}

// collector returns a collector of LocalServices.
func collector(all ...*v1alpha1.LocalService) *Collector {
	return &Collector{
		LocalServices: func() iter.Seq[*v1alpha1.LocalService] { return slices.Values(all) }}
}

// reporting returns a LocalService whose status has these numbers and conditions.
func reporting(name string, mode v1alpha1.Mode, nodes, services, ready int32,
	conditions ...metav1.Condition) *v1alpha1.LocalService {
	return objects.LocalService(objects.Named(name), func(ls *v1alpha1.LocalService) {
		ls.Spec.Mode = mode
		ls.Status = v1alpha1.LocalServiceStatus{Nodes: nodes, Services: services, ReadyNodes: ready,
			Conditions: conditions}
	})
}

func is(name, status, reason string) metav1.Condition {
	return metav1.Condition{Type: name, Status: metav1.ConditionStatus(status), Reason: reason}
}

// TestCollector: the collector counts LocalServices, whatever their status contains.
func TestCollector(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(collector(reporting("fine", "", 5, 5, 4, is("Ready", "True", "ServicesInPlace"),
		is("Conflicted", "False", "NoConflict")),
		reporting("too", v1alpha1.ModeServices, 3, 3, 3, is("Ready", "True", "ServicesInPlace")),
		reporting("taken", "", 10, 5, 5, is("Ready", "False", "NameTaken"), is("Conflicted", "True", "NameTaken")),
		reporting("names", v1alpha1.ModeHostnames, 100, 1, 90, is("Ready", "False", "WriteFailed")),
		reporting("new", v1alpha1.ModeHostnames, 0, 0, 0),
		reporting("bad", "", 0, 0, 0, is("Ready", "False", "InvalidSpec")),
		// The status is part of the API: every client with the permission can write it.
		reporting("odd", "", 1, 1, 1, is("Ready", "True", "NameTaken"), is("Contested", "Unknown", "X"),
			is("Synced", "True", "ByThem")),
		reporting("odder", "", 1, 1, 1, is("Ready", "False", "random-17"),
			is("Progressing", "Unknown", "random-18")),
	))
	got := series(t, registry)
	some := maps.Clone(got)
	maps.DeleteFunc(some, func(name string, n float64) bool { return n == 0 || strings.HasPrefix(name, "namespace") })
	want := map[string]float64{
		"localservices{condition=Ready,reason=ServicesInPlace,status=True}": 2,
		"localservices{condition=Ready,reason=NameTaken,status=False}":      1,
		"localservices{condition=Ready,reason=WriteFailed,status=False}":    1,
		"localservices{condition=Ready,reason=other,status=True}":           1,
		"localservices{condition=Ready,reason=other,status=False}":          1,
		"localservices{condition=Conflicted,reason=,status=False}":          1,
		"localservices{condition=Conflicted,reason=,status=True}":           1,
		"localservices{condition=Contested,reason=,status=Unknown}":         1,
		"localservices{condition=Progressing,reason=,status=Unknown}":       1,
		"localservices{condition=Ready,reason=InvalidSpec,status=False}":    1,
		"invalid{name=bad,namespace=default}":                               1,
		"services{state=desired}":                                           20 + 2 + 2,
		"services{state=in_place}":                                          15 + 1,
		"names{state=desired}":                                              120,
		"names{state=ready}":                                                104,
	}
	if diff := cmp.Diff(want, some); diff != "" {
		t.Errorf("series that are not 0 (-want +got):\n%s", diff)
	}
	const zero = "localservices{condition=Contested,reason=,status=True}"
	if _, there := got[zero]; !there {
		t.Errorf("%s has no series before the first time", zero)
	}
}

// TestNamespaceServices: Services count as soon as they are desired, and as long as they exist although their
// LocalService selects no node any more. Those without cluster IPs, which include those of mode Hostnames, count alone.
func TestNamespaceServices(t *testing.T) {
	in := func(namespace, clusterIP string, mode v1alpha1.Mode, nodes, services int32) *v1alpha1.LocalService {
		ls := reporting("demo", mode, nodes, services, 0)
		ls.Namespace, ls.Spec.ClusterIP = namespace, clusterIP
		return ls
	}
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(collector(in("a", "", "", 800, 10), in("a", "", v1alpha1.ModeServices, 0, 300),
		in("a", "None", "", 5000, 5000), in("a", "", v1alpha1.ModeHostnames, 100, 2), in("b", "None", "", 1, 1)))
	got := series(t, registry)
	maps.DeleteFunc(got, func(name string, _ float64) bool { return !strings.HasPrefix(name, "namespace_services") })
	want := map[string]float64{
		"namespace_services{cluster_ips=true,namespace=a}":  800 + 300,
		"namespace_services{cluster_ips=false,namespace=a}": 5000 + 2,
		"namespace_services{cluster_ips=false,namespace=b}": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("services by namespace (-want +got):\n%s", diff)
	}
}

// TestLint: names, units and help texts follow the rules of Prometheus, and every metric has a prefix and is ALPHA.
func TestLint(t *testing.T) {
	Register(collector(reporting("demo", "", 1, 1, 1, is("Ready", "False", "InvalidSpec"))))
	families := gather(t, legacyregistry.DefaultGatherer)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
	for _, family := range families {
		if !strings.HasPrefix(family.GetHelp(), "[ALPHA] ") {
			t.Errorf("%s: %s", family.GetName(), family.GetHelp())
		}
	}
	// This list is complete: each metric has a series from the start, or got one above.
	if want := len(own) + 5; len(families) != want {
		t.Errorf("%d metrics, want %d", len(families), want)
	}
}

// TestReadyReasons: each reason in the API is listed either as one of the condition Ready, or as one of others.
func TestReadyReasons(t *testing.T) {
	ofOthers := []string{"ReasonNoConflict", "ReasonNotContested"}
	file, err := os.ReadFile("../../pkg/apis/localservice/v1alpha1/conditions.go")
	if err != nil {
		t.Fatal(err)
	}
	reasons := regexp.MustCompile(`(?m)^\t(Reason\w+) += "(\w+)"$`).FindAllStringSubmatch(string(file), -1)
	for _, reason := range reasons {
		if _, known := readyReasons[reason[2]]; known == slices.Contains(ofOthers, reason[1]) {
			t.Errorf("%s: is it one of the condition Ready?", reason[1])
		}
	}
	if len(reasons) != len(readyReasons)+len(ofOthers) {
		t.Errorf("%d reasons in the API, %d here", len(reasons), len(readyReasons)+len(ofOthers))
	}
}
