package alerts

import (
	"cmp"
	"encoding/json"
	"flag"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

var pictureFile = flag.String("picture", "", "`file` to keep the drawn dashboard in, as .svg or .png")

// dashboard has the parts of Grafana's format that the tests need.
type dashboard struct {
	Title  string  `json:"title"`
	UID    string  `json:"uid"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID          int                                      `json:"id"`
	Type        string                                   `json:"type"`
	Title       string                                   `json:"title"`
	Description string                                   `json:"description"`
	GridPos     struct{ X, Y, W, H int }                 `json:"gridPos"`
	FieldConfig struct{ Defaults struct{ Unit string } } `json:"fieldConfig"`
	Targets     []struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
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

// line is a line of a panel.
type line struct {
	name   string
	points []point
}

// point is a value at a time, in seconds since the beginning.
type point struct{ x, y float64 }

const step = 2 * time.Second

// checkDashboard queries Prometheus for everything that the dashboard has shown since a time, wants data for each
// query, and draws it.
func (st *stage) checkDashboard(t *testing.T, began time.Time) {
	t.Helper()
	d, now := readDashboard(t), time.Now()
	lines := map[int][]line{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			// Grafana sets it to the length of several scrapes.
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "20s")
			found, err := st.prometheus.queryRange(t.Context(), expr, began, now, step)
			if err != nil {
				t.Fatal(err)
			}
			points := 0
			for _, s := range found {
				l := line{name: legend(target.LegendFormat, s.Metric), points: pointsOf(s, began)}
				points += len(l.points)
				lines[p.ID] = append(lines[p.ID], l)
			}
			if points == 0 {
				t.Errorf("%s: there is nothing to show of %s", p.Title, expr)
			}
		}
	}
	file := cmp.Or(*pictureFile, filepath.Join(t.TempDir(), "dashboard.svg"))
	if err := drawDashboard(file, d, lines, now.Sub(began)); err != nil {
		t.Errorf("draw the dashboard: %v", err)
	}
}

// legend fills in a legend's format, {{label}}.
func legend(format string, labels map[string]string) string {
	for name, value := range labels {
		format = strings.ReplaceAll(format, "{{"+name+"}}", value)
	}
	return format
}

// pointsOf returns the values of a series that are numbers.
func pointsOf(s series, began time.Time) []point {
	var points []point
	for _, value := range s.Values {
		at, isNumber := value[0].(float64)
		text, isText := value[1].(string)
		y, err := strconv.ParseFloat(text, 64)
		if !isNumber || !isText || err != nil || math.IsNaN(y) || math.IsInf(y, 0) {
			continue
		}
		points = append(points, point{at - float64(began.UnixMilli())/1000, y})
	}
	return slices.Clip(points)
}
