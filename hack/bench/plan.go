package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

const planNodes = 5000

// planLine is a line of `go test -bench -benchmem`.
var planLine = regexp.MustCompile(`(?m)^BenchmarkCompute/(\w+)/nodes=(\d+)\S*\s+\d+\s+([\d.]+) ns/op.*?([\d.]+) B/op\s+(\d+) allocs/op`)

// measurePlan measures row 9: the benchmarks of the package that decides what to write. Their output is saved for
// benchstat.
func (b *bench) measurePlan(ctx context.Context) error {
	benchtime, count := "1s", "6"
	if b.opts.smoke {
		benchtime, count = "2x", "1"
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench=BenchmarkCompute", "-benchmem", "-benchtime="+benchtime, "-count="+count, "./internal/plan")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("run the benchmarks of pkg/fanout: %w: %s", err, output)
	}
	if err := os.WriteFile(filepath.Join(b.opts.out, "plan.txt"), output, 0o644); err != nil {
		return fmt.Errorf("save the benchmarks of pkg/fanout: %w", err)
	}
	times, allocs := map[string][]float64{}, map[string][]float64{}
	var order []string
	for _, m := range planLine.FindAllSubmatch(output, -1) {
		what := fmt.Sprintf("plan, %s nodes, %s", m[2], m[1])
		if times[what] == nil {
			order = append(order, what)
		}
		nanoseconds, err1 := strconv.ParseFloat(string(m[3]), 64)
		n, err2 := strconv.ParseFloat(string(m[5]), 64)
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("read the benchmarks of pkg/fanout: %w", err)
		}
		times[what], allocs[what] = append(times[what], nanoseconds/1e6), append(allocs[what], n)
	}
	target := fmt.Sprintf("plan, %d nodes, unchanged", planNodes)
	if len(times[target]) == 0 {
		return fmt.Errorf("the benchmarks of pkg/fanout lack %q: %s", target, output)
	}
	for _, what := range order {
		took := check{Row: 9, What: what, Unit: "ms", Ours: median(times[what])}
		allocated := check{Row: 9, What: what + ": allocations", Ours: median(allocs[what])}
		if what == target {
			took.Limit, took.Of = 2, ofOurs
			allocated.Limit, allocated.Of, allocated.Count = planNodes, ofOurs, true
		}
		b.report.add(took)
		b.report.add(allocated)
	}
	return nil
}
