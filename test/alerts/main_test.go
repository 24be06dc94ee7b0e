// Package alerts tests the alert rules, their runbooks and the dashboard. promtool evaluates every rule over written
// series.
package alerts

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	// runbookURL is where the rules say that runbooks are; it is a value of the chart.
	runbookURL = "https://github.com/localservice-dev/local-service-controller/blob/main/docs/runbooks.md#"
	// job is the job by which rules and dashboard select the metrics that other programs have, too.
	job = "local-service-controller"
)

// rule is an alert.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// rulesFile is the file that the chart and Prometheus read.
var rulesFile = framework.ModuleFile("artifacts", "chart", "local-service-controller", "files", "rules.yaml")

func readRules(t testing.TB) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict([]byte(readFile(t, rulesFile)), &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rules", rulesFile)
	}
	return all
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var (
	// Without these, an expression consists of the names of metrics, functions and operators.
	notNames = regexp.MustCompile(`"(\\.|[^"\\])*"|\{[^{}]*\}|\[[^\]]*\]|\b[0-9][0-9a-z.]*\b|` +
		`\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)`)
	nameOf   = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*\b\s*\(?`)
	keywords = regexp.MustCompile(`^(and|or|unless|bool|offset|on|ignoring|inf|nan)$`)
)

// metricsOf returns the names of the metrics in an expression of PromQL.
func metricsOf(expr string) []string {
	var names []string
	for _, word := range nameOf.FindAllString(notNames.ReplaceAllString(expr, " "), -1) {
		name := strings.TrimSpace(word)
		if strings.HasSuffix(name, "(") || keywords.MatchString(name) {
			continue // A function, an aggregation or an operator.
		}
		names = append(names, name)
	}
	return names
}
