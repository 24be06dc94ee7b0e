package alerts

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

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
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", rulesFile(t))
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
