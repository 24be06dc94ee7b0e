package alerts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestAlert tests the whole way of one alert: the controller counts a name that is taken, Prometheus scrapes it, and
// the alert fires, until the name is free. Meanwhile Prometheus evaluates all rules, and no other alert fires.
func TestAlert(t *testing.T) {
	t.Parallel()
	cluster := framework.NewCluster(t, framework.ClusterOptions{ControlPlaneOnly: true})
	controller := cluster.NewController(t, "-leader-elect",
		"-leader-election-namespace="+framework.ControllerNamespace)
	s, p := cluster.NewScene(t, "alert"), startPrometheus(t, controller)
	const name = "LocalServiceConflicted"
	taken := "demo-" + s.AddNodes("a")[0]
	s.CreateService(framework.NewForeignService(taken, nil))
	s.Create("demo")
	s.Eventually("the alert fires", func(ctx context.Context) error { return p.wantFiring(ctx, name) })
	s.DeleteService(taken)
	s.WaitReady("demo")
	s.Eventually("it goes out", func(ctx context.Context) error { return p.wantFiring(ctx) })
	checkQueries(t, p)
}

// wantFiring returns nil if these alerts fire and no others, and Prometheus can evaluate all rules.
func (p *prometheus) wantFiring(ctx context.Context, want ...string) (err error) {
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, State, LastError string }
		}
	}
	if err := p.get(ctx, "rules", nil, &rules); err != nil {
		return err
	}
	var firing []string
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if rule.Health != "ok" {
				err = errors.Join(err, fmt.Errorf("%s is %s: %s", rule.Name, rule.Health, rule.LastError))
			}
			if rule.State == "firing" {
				firing = append(firing, rule.Name)
			}
		}
	}
	if len(rules.Groups) == 0 || !slices.Equal(firing, want) {
		err = errors.Join(err, fmt.Errorf("there are %d groups; %q fire, want %q", len(rules.Groups), firing, want))
	}
	return err
}

// checkQueries tests that Prometheus understands all expressions of rules, runbooks and dashboard, and that each metric
// in them has a source: it has been scraped, or is in the reference, which follows from the code.
func checkQueries(t *testing.T, p *prometheus) {
	t.Helper()
	known, err := p.metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reference := readFile(t, framework.MustModuleFile(t, "docs", "reference", "metrics.md"))
	for expr, source := range queries(t) {
		if err := p.get(t.Context(), "query", map[string][]string{"query": {expr}}, nil); err != nil {
			t.Errorf("%s: %v", source, err)
		}
		for _, metric := range metricsOf(expr) {
			own := "| `" + strings.TrimSuffix(metric, "_bucket") + "` |"
			if !slices.Contains(known, metric) && !strings.Contains(reference, own) {
				t.Errorf("%s: the controller has no metric %s", source, metric)
			}
		}
	}
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
	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			// Grafana sets it to the length of several scrapes.
			all[strings.ReplaceAll(target.Expr, "$__rate_interval", "20s")] = "the panel " + panel.Title
		}
	}
	return all
}
