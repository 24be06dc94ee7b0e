package alerts

import (
	"encoding/json"
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
