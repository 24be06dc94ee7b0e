// Package alerts tests what docs/monitoring.md promises: the alert rules, their runbooks and the dashboard. Debian's
// prometheus scrapes the built controller in a cluster with a control plane. There, each alert fires because of its
// cause, is investigated with the commands of its runbook, and is resolved after its cure.
package alerts

import (
	"context"
	"os"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

func TestMain(m *testing.M) {
	framework.Main(m, func(context.Context) (func() error, error) { return func() error { return nil }, nil })
}

const (
	// runbookURL is where the rules say that runbooks are; it is a value of the chart.
	runbookURL = "https://github.com/localservice-dev/local-service-controller/blob/main/docs/runbooks/"
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
func rulesFile(t testing.TB) string {
	t.Helper()
	return framework.MustModuleFile(t, "artifacts", "chart", "local-service-controller", "files", "rules.yaml")
}

func readRules(t testing.TB) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict([]byte(readFile(t, rulesFile(t))), &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rules", rulesFile(t))
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
