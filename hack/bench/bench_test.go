package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const auditLines = `{"kind":"Event","requestURI":"/api/v1/namespaces/a/services","verb":"create","userAgent":"local-service-controller/v1","objectRef":{"resource":"services","namespace":"a","name":"x"},"responseStatus":{"code":201},"requestReceivedTimestamp":"2026-01-01T00:00:01.000000Z","stageTimestamp":"2026-01-01T00:00:01.250000Z"}
{"kind":"Event","requestURI":"/api/v1/nodes/n/status","verb":"patch","userAgent":"heartbeat","objectRef":{"resource":"nodes"},"requestReceivedTimestamp":"2026-01-01T00:00:01.000000Z","stageTimestamp":"2026-01-01T00:00:01.250000Z"}
{"kind":"Event","requestURI":"/api/v1/pods?watch=true&sendInitialEvents=true","verb":"watch","userAgent":"local-service-controller/v1","objectRef":{"resource":"pods"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:02.000000Z","stageTimestamp":"2026-01-01T00:05:00.000000Z"}
{"kind":"Event","requestURI":"/apis/coordination.k8s.io/v1/leases/l","verb":"update","userAgent":"local-service-controller/v1","objectRef":{"resource":"leases","namespace":"a"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:03.000000Z","stageTimestamp":"2026-01-01T00:00:03.500000Z"}
`

func TestAuditLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	half := len(auditLines) / 2
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := &auditLog{path: path}
	write(auditLines[:half]) // ends within a line
	if _, err := log.mark(); err != nil {
		t.Fatal(err)
	}
	write(auditLines)
	requests, err := log.since(0)
	if err != nil {
		t.Fatal(err)
	}
	at := func(second int) time.Time { return time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC) }
	for _, c := range []struct {
		what  string
		match filter
		want  int
	}{
		{"all but heartbeats", all(), 3},
		{"creates", all(byUs, verb("create", "services"), in("a"), done), 1},
		{"writes", ourWrites, 1},
		{"lists", ourLists(at(1), at(3)), 1},
		{"lists later", ourLists(at(3), at(4)), 0},
		{"work", ourWork, 2},
	} {
		if got := requests.count(c.match); got != c.want {
			t.Errorf("%s: got %d, want %d", c.what, got, c.want)
		}
	}
	if got := requests.where(ourWrites).span(); got != 250*time.Millisecond {
		t.Errorf("span: got %v", got)
	}
	write("")
	if _, err := log.since(0); err == nil {
		t.Error("a log that was rotated must be an error")
	}
}

func TestQuantile(t *testing.T) {
	values := []float64{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %v: got %v, want %v", q, got, want)
		}
	}
	if got := quantile[float64](nil, 0.5); got != 0 {
		t.Errorf("quantile of nothing: got %v", got)
	}
}

func TestCheckPasses(t *testing.T) {
	for _, c := range []struct {
		check check
		want  bool
	}{
		{check{Ours: 1}, true},
		{check{Ours: 1, Limit: 1, Of: ofOurs}, true},
		{check{Ours: 1.1, Limit: 1, Of: ofOurs}, false},
		{check{Ours: 9, Ratio: 1.2, Limit: 1.25, Of: ofRatio}, true},
		{check{Ours: 1, Ratio: 1.3, Limit: 1.25, Of: ofRatio}, false},
		{check{Ours: 999, Limit: 1000, Of: ofExactly}, false},
	} {
		if got := c.check.passes(); got != c.want {
			t.Errorf("%+v: got %v", c.check, got)
		}
	}
}

func TestPlanLine(t *testing.T) {
	const output = "BenchmarkCompute/unchanged/nodes=5000-2         \t     570\t   2071234 ns/op\t  240000 B/op\t    5000 allocs/op\n"
	m := planLine.FindStringSubmatch(output)
	if m == nil || m[1] != "unchanged" || m[2] != "5000" || m[3] != "2071234" || m[5] != "5000" {
		t.Errorf("got %q", m)
	}
}

func TestCurveIsXML(t *testing.T) {
	for _, logarithmic := range []bool{false, true} {
		c := &curve{Title: "a < b & c", X: "x", Y: "y", Logarithmic: logarithmic, Lines: []line{{Name: "one"}, {Name: "two"}}}
		c.add(1000, 1, 2)
		c.add(100000, 3, 4)
		decoder := xml.NewDecoder(strings.NewReader(c.svg()))
		for {
			_, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(c.svg(), "NaN") {
			t.Error("NaN in the drawing")
		}
	}
}

func TestParallelStopsAtAnError(t *testing.T) {
	failure := errors.New("failure")
	err := parallel(t.Context(), 3, 1000, func(_ context.Context, _, i int) error {
		if i == 5 {
			return failure
		}
		return nil
	})
	if !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
}
