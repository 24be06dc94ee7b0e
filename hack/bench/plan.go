package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/tools/benchmark/parse"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	// planPackage decides what to write, and has benchmarks of that.
	planPackage = "./internal/plan"
	// planTarget is the benchmark with a target.
	planTarget = "BenchmarkCompute/unchanged/nodes=5000"
	planLimit  = 2 // ms
	// planAllocations is the target of allocations: none for each node.
	planAllocations = 5000
)

// measurePlan measures row 9: the benchmarks of the package that decides what to write. Their output is saved for
// benchstat.
func measurePlan(ctx context.Context, b *bench) {
	benchtime, count := "1s", "6"
	if b.opts.smoke {
		benchtime, count = "2x", "1"
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench=BenchmarkCompute", "-cpu=1", "-benchmem",
		"-benchtime="+benchtime, "-count="+count, planPackage)
	cmd.Dir, cmd.Env = try(framework.ModuleFile()), append(os.Environ(), "CGO_ENABLED=0")
	output, err := cmd.CombinedOutput()
	if err != nil {
		must(fmt.Errorf("run the benchmarks of %s: %w: %s", planPackage, err, output))
	}
	must(save(b.opts, "plan.txt", output))
	must(b.reportPlan(try(parse.ParseSet(bytes.NewReader(output)))))
}

func (b *bench) reportPlan(benchmarks parse.Set) error {
	if len(benchmarks[planTarget]) == 0 {
		return fmt.Errorf("the benchmarks of %s lack %s", planPackage, planTarget)
	}
	milliseconds := func(b *parse.Benchmark) float64 { return b.NsPerOp / 1e6 }
	allocations := func(b *parse.Benchmark) float64 { return float64(b.AllocsPerOp) }
	for _, name := range slices.Sorted(maps.Keys(benchmarks)) {
		what, runs := "plan, "+strings.TrimPrefix(name, "BenchmarkCompute/"), benchmarks[name]
		took := check{what: what, unit: "ms", ours: samplesOf(runs, milliseconds).median()}
		allocated := check{what: what + ": allocations", ours: samplesOf(runs, allocations).median()}
		if name == planTarget {
			took, allocated = took.atMost(planLimit), allocated.atMost(planAllocations)
		}
		b.report.add(9, took, allocated)
	}
	return nil
}
