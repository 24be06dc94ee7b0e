package alerts

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// promtool runs Prometheus' own checks.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), framework.PromtoolProgram.MustPath(t), args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestRules makes promtool check the rules, and evaluate them over the series of a file.
func TestRules(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", rulesFile)
	promtool(t, "test", "rules", "testdata/rules_test.yaml")
	tests := readFile(t, "testdata/rules_test.yaml")
	for _, rule := range readRules(t) {
		for _, want := range []string{"exp_alerts: []", "exp_labels"} {
			if !strings.Contains(testOf(tests, rule.Alert), want) {
				t.Errorf("no test in testdata/rules_test.yaml has %s with %s", rule.Alert, want)
			}
		}
	}
}

// testOf has what the tests for promtool say about an alert.
func testOf(tests, alert string) string {
	var found strings.Builder
	for part := range strings.SplitSeq(tests, "- eval_time:") {
		if strings.Contains(part, "alertname: "+alert+"\n") {
			found.WriteString(part)
		}
	}
	return found.String()
}

// TestQueries tests that Prometheus understands all expressions of rules, runbooks and dashboard, and that each metric
// in them has a source: it is in the reference, which follows from the code, test/integration finds it, or it is one of
// Prometheus.
func TestQueries(t *testing.T) {
	t.Parallel()
	known := readFile(t, framework.ModuleFile("docs", "reference", "metrics.md")) +
		readFile(t, framework.ModuleFile("test", "integration", "metrics_test.go")) + "`up` `ALERTS`"
	var rules []map[string]string
	for expr, source := range queries(t) {
		rules = append(rules, map[string]string{"record": "a", "expr": expr})
		for _, metric := range metricsOf(expr) {
			name := regexp.MustCompile("_(bucket|sum|count)$").ReplaceAllString(metric, "")
			isKnown := regexp.MustCompile("[`\"]" + name + "(_bucket)?[`{ ]")
			if !isKnown.MatchString(known) {
				t.Errorf("%s: the controller has no metric %s", source, metric)
			}
		}
	}
	data, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "queries", "rules": rules}}})
	file := filepath.Join(t.TempDir(), "queries.yaml")
	if err := errors.Join(err, os.WriteFile(file, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", "--lint=none", file)
}

// queries returns all expressions of rules, runbooks and dashboard, each with its source.
func queries(t *testing.T) map[string]string {
	t.Helper()
	all, books := map[string]string{}, readRunbooks(t)
	for _, rule := range readRules(t) {
		all[rule.Expr] = rule.Alert
		for _, query := range books[rule.Alert].queries {
			all[query] = "the runbook of " + rule.Alert
		}
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	file := framework.ModuleFile("artifacts", "dashboards", "local-service-controller.json")
	if err := json.Unmarshal([]byte(readFile(t, file)), &dashboard); err != nil || len(dashboard.Panels) == 0 {
		t.Fatalf("%s: %v", file, err)
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			// Grafana sets it to the length of several scrapes.
			all[strings.ReplaceAll(target.Expr, "$__rate_interval", "20s")] = "the panel " + panel.Title
		}
	}
	return all
}

// TestRulesAreComplete tests that each alert has the information that a person on call needs.
func TestRulesAreComplete(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, rule := range readRules(t) {
		if seen[rule.Alert] || !strings.HasPrefix(rule.Alert, "LocalService") {
			t.Errorf("%s: the name is not new, or does not begin with LocalService", rule.Alert)
		}
		seen[rule.Alert] = true
		if !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) || len(rule.Labels) != 1 {
			t.Errorf("%s: labels %v", rule.Alert, rule.Labels)
		}
		if rule.For == "" {
			t.Errorf("%s fires at once: somebody would be woken for what passes by itself", rule.Alert)
		}
		for _, key := range []string{"summary", "description"} {
			if text := rule.Annotations[key]; !strings.HasSuffix(text, ".") {
				t.Errorf("%s: the %s is no sentence: %q", rule.Alert, key, text)
			}
		}
		if got, want := rule.Annotations["runbook_url"], runbookURL+strings.ToLower(rule.Alert); got != want {
			t.Errorf("%s: runbook_url %s, want %s", rule.Alert, got, want)
		}
		for _, metric := range metricsOf(rule.Expr) {
			if !strings.HasPrefix(metric, "localservice_") && !strings.Contains(rule.Expr, metric+`{job="`+job+`"`) {
				t.Errorf("%s: other programs have %s, too: select it by job", rule.Alert, metric)
			}
		}
	}
}
