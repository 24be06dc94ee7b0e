package alerts

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// dashboard has the parts of Grafana's format that the tests need.
type dashboard struct {
	Title  string  `json:"title"`
	UID    string  `json:"uid"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID          int                      `json:"id"`
	Type        string                   `json:"type"`
	Title       string                   `json:"title"`
	Description string                   `json:"description"`
	GridPos     struct{ X, Y, W, H int } `json:"gridPos"`
	Targets     []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Thresholds struct {
				Steps []struct {
					Value *float64 `json:"value"`
				} `json:"steps"`
			} `json:"thresholds"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
}

func readDashboard(t testing.TB) dashboard {
	t.Helper()
	var d dashboard
	file := framework.MustModuleFile(t, "artifacts", "dashboards", "local-service-controller.json")
	if err := json.Unmarshal([]byte(readFile(t, file)), &d); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return d
}

// TestDashboard tests that the panels neither overlap nor leave the grid, and that each says what it shows.
func TestDashboard(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	if d.UID == "" || d.Title == "" {
		t.Error("it has no name")
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d %q: the id is not new, or there is no title", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if taken[[2]int{x, y}] != "" || x >= 24 {
					t.Fatalf("%s is where %q is, or the grid ends", p.Title, taken[[2]int{x, y}])
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Type != "timeseries" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("%s: type %s, description %q, %d queries", p.Title, p.Type, p.Description, len(p.Targets))
		}
	}
}

// TestDashboardLimits tests that the line in a panel is where the alert that the panel names begins.
func TestDashboardLimits(t *testing.T) {
	t.Parallel()
	alerts := map[string]string{}
	for _, rule := range readRules(t) {
		alerts[rule.Alert] = rule.Expr
	}
	named, lines := regexp.MustCompile(`the limit of the alert (\w+)\.$`), 0
	for _, p := range readDashboard(t).Panels {
		match, limits := named.FindStringSubmatch(p.Description), []float64(nil)
		for _, step := range p.FieldConfig.Defaults.Thresholds.Steps {
			if step.Value != nil { // The first step begins at minus infinity.
				limits = append(limits, *step.Value)
			}
		}
		if match == nil && limits == nil {
			continue
		}
		lines++
		if match == nil || len(limits) != 1 {
			t.Errorf("%s has lines at %v, and its description is %q", p.Title, limits, p.Description)
			continue
		}
		expr := alerts[match[1]]
		if !strings.HasSuffix(expr, fmt.Sprintf(" > %g", limits[0])) ||
			!slices.Equal(metricsOf(expr), metricsOf(p.Targets[0].Expr)) {
			t.Errorf("%s has a line at %g, and the alert %s fires for %q", p.Title, limits[0], match[1], expr)
		}
	}
	if lines == 0 {
		t.Error("no panel shows the limit of an alert")
	}
}
