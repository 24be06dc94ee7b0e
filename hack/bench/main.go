// bench measures how fast and how small the controller is, on a real API server, side by side with bare clients that do
// the same requests. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type options struct {
	rows             string
	scale            float64
	smoke            bool
	binary           string
	controllers      string
	writeConcurrency int
	oneConnection    bool
	profile          bool
	out              string
}

// bench is one run.
type bench struct {
	opts   options
	rows   []int
	report report
	scenes int      // made so far
	shared *cluster // the only one of a smoke run
}

// row measures one row of the table, or several that need the same load.
type row struct {
	numbers []int
	measure func(b *bench, ctx context.Context) error
}

var rows = []row{
	{[]int{1}, (*bench).measureFanOut},
	{[]int{2}, (*bench).measureGrowth},
	{[]int{3}, (*bench).measureNodeAdded},
	{[]int{4, 6, 7}, (*bench).measureLoaded},
	{[]int{5}, (*bench).measurePods},
	{[]int{8}, (*bench).measureTakeover},
	{[]int{9}, (*bench).measurePlan},
	{[]int{10}, (*bench).measureAdmission},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // A second signal ends the program at once.
	err := run(ctx, os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	b := &bench{}
	if err := b.parse(args); err != nil {
		return err
	}
	if err := os.MkdirAll(b.opts.out, 0o755); err != nil {
		return fmt.Errorf("make the directory for the results: %w", err)
	}
	b.report.begin(b.opts)
	err := b.measureRows(ctx)
	if b.shared != nil {
		err = errors.Join(err, b.shared.Stop())
	}
	return errors.Join(err, b.report.finish(b.opts))
}

func (b *bench) parse(args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	o := &b.opts
	flags.StringVar(&o.rows, "row", "", "`numbers` of the rows to measure, such as 3 or 1,5; empty for all")
	flags.Float64Var(&o.scale, "scale", 1, "`fraction` of nodes, pods and LocalServices to work with; the targets mean nothing below 1")
	flags.BoolVar(&o.smoke, "smoke", false, "only see that everything works, at a scale of 0.02, and fail only if requests are counted that should not be")
	flags.StringVar(&o.binary, "binary", orDefault(os.Getenv("CONTROLLER_BIN"), "bin/local-service-controller"), "`file` with the controller")
	flags.StringVar(&o.controllers, "controllers", "serviceaccount-controller", "`list` of the controllers of kube-controller-manager that run beside, and share the processors")
	flags.IntVar(&o.writeConcurrency, "write-concurrency", 16, "`number` of requests under way, of the controller and of the bare clients")
	flags.BoolVar(&o.oneConnection, "one-connection", false, "have the bare clients share a connection")
	flags.BoolVar(&o.profile, "profile", false, "save CPU and heap profiles of the controller (it gets the flag -profiling)")
	flags.StringVar(&o.out, "out", "bin/bench", "`directory` for the results and the curves")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.smoke {
		o.scale = 0.02
	}
	if o.scale <= 0 || o.scale > 1 {
		return fmt.Errorf("-scale=%v must be above 0 and at most 1", o.scale)
	}
	return b.parseRows()
}

func (b *bench) parseRows() error {
	for _, r := range rows {
		b.rows = append(b.rows, r.numbers...)
	}
	if b.opts.rows == "" {
		return nil
	}
	known := b.rows
	b.rows = nil
	for s := range strings.SplitSeq(b.opts.rows, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || !slices.Contains(known, n) {
			return fmt.Errorf("-row=%s: there is no row %q", b.opts.rows, s)
		}
		b.rows = append(b.rows, n)
	}
	return nil
}

func (b *bench) wants(row int) bool { return slices.Contains(b.rows, row) }

func (b *bench) measureRows(ctx context.Context) error {
	if b.opts.smoke {
		c, err := b.startCluster(ctx)
		if err != nil {
			return err
		}
		b.shared = c
	}
	var errs []error
	for _, r := range rows {
		if ctx.Err() != nil || !slices.ContainsFunc(r.numbers, b.wants) {
			continue
		}
		began := time.Now()
		if err := r.measure(b, ctx); err != nil {
			errs = append(errs, fmt.Errorf("row %v: %w", r.numbers, err))
		}
		progress("row %v: %v", r.numbers, time.Since(began).Round(time.Second))
	}
	return errors.Join(errs...)
}

// n is a number of objects, scaled, but at least 5.
func (b *bench) n(full int) int {
	return max(min(full, 5), int(math.Round(float64(full)*b.opts.scale)))
}

// shorter is a time to measure for, a tenth of it in a smoke run.
func (b *bench) shorter(full time.Duration) time.Duration {
	if b.opts.smoke {
		return full / 20
	}
	return full
}

func orDefault(value, byDefault string) string {
	if value == "" {
		return byDefault
	}
	return value
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
