package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/procfs"
)

// What a limit is for.
const (
	ofOurs    = iota + 1 // the measured value must not be above it
	ofRatio              // the ratio to the floor must not be above it
	ofExactly            // the measured value must be this, at every scale and on every machine
)

// check is a measured value, beside that of bare clients, and what it must reach.
type check struct {
	row                int
	what, unit, note   string
	ours, floor, ratio float64
	limit              float64
	of                 int // 0 for no limit
}

// atMost gives a check an upper limit.
func (c check) atMost(limit float64) check {
	c.limit, c.of = limit, ofOurs
	return c
}

// atMostTimes gives a check an upper limit of its ratio to the floor.
func (c check) atMostTimes(limit float64) check {
	c.limit, c.of = limit, ofRatio
	return c
}

// verdict compares a check with its limit.
func (c *check) verdict() (got, target string, pass bool) {
	switch c.of {
	case ofOurs:
		return number(c.ours), "≤ " + number(c.limit), c.ours <= c.limit
	case ofRatio:
		return number(c.ratio) + " ×", "≤ " + number(c.limit) + " ×", c.ratio <= c.limit
	case ofExactly:
		return number(c.ours), number(c.limit), c.ours == c.limit
	}
	return number(c.ours), "", true
}

// report holds what a run has found.
type report struct {
	checks []check
}

// add adds checks to a row.
func (r *report) add(row int, checks ...check) {
	for _, c := range checks {
		c.row = row
		r.checks = append(r.checks, c)
	}
}

// count adds a number that must be exactly so.
func (r *report) count(row int, what string, got, want float64) {
	r.add(row, check{what: what, ours: got, limit: want, of: ofExactly})
}

// finish prints the table and saves it. A check that fails is an error, in a smoke run only that of a count.
func (r *report) finish(opts options) error {
	r.checks = slices.DeleteFunc(r.checks, func(c check) bool { return !opts.wants(c.row) }) // Measured beside others.
	slices.SortStableFunc(r.checks, func(a, b check) int { return a.row - b.row })
	table := r.table(opts)
	fmt.Print(table)
	errs := []error{os.WriteFile(filepath.Join(opts.out, "results.md"), []byte(table), 0o644)}
	for _, c := range r.checks {
		if got, target, pass := c.verdict(); !pass && (c.of == ofExactly || !opts.smoke) {
			errs = append(errs, fmt.Errorf("row %d: %s: %s instead of %s", c.row, c.what, got, target))
		}
	}
	return errors.Join(errs...)
}

// table returns the results in Markdown, its columns aligned so that it can be read as it is.
func (r *report) table(opts options) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d × %s, %s/%s, built with %s; ",
		runtime.NumCPU(), processor(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	fmt.Fprintf(&b, "kube-controller-manager runs: %s; %d requests under way.\n\n",
		opts.kubeControllers, writeConcurrency)
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	line := func(cells ...string) { fmt.Fprintf(w, "| %s\t|\n", strings.Join(cells, "\t| ")) }
	line("row", "what", "controller", "floor", "ratio", "must reach", "", "remarks")
	line("---", "---", "---", "---", "---", "---", "---", "---")
	for i := range r.checks {
		c := &r.checks[i]
		floor, ratio, verdict := "", "", ""
		if c.floor > 0 {
			floor, ratio = number(c.floor)+" "+c.unit, number(c.ratio)
		}
		_, target, pass := c.verdict()
		if c.of != 0 {
			verdict = map[bool]string{true: "ok", false: "**missed**"}[pass]
		}
		line(fmt.Sprint(c.row), c.what, number(c.ours)+" "+c.unit, floor, ratio, target, verdict, c.note)
	}
	_ = w.Flush() // A strings.Builder takes everything.
	return b.String()
}

// processor returns the name of the processor, according to Linux.
func processor() string {
	proc, err1 := procfs.NewDefaultFS()
	processors, err2 := proc.CPUInfo()
	if err := errors.Join(err1, err2); err != nil || len(processors) == 0 {
		return "unknown processor"
	}
	return processors[0].ModelName
}

// number is a value with three digits that matter, and all those before the point.
func number(value float64) string {
	if value >= 100 {
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.3g", value)
}

// samples are values of the same thing, measured several times.
type samples []float64

// samplesOf is one sample from each of several measurements.
func samplesOf[T any](measured []T, value func(T) float64) (s samples) {
	for _, m := range measured {
		s = append(s, value(m))
	}
	return s
}

// quantile returns the smallest value that at least a fraction q of the values do not exceed, 0 if there are none.
func (s samples) quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	i := int(math.Ceil(q*float64(len(s)))) - 1
	return slices.Sorted(slices.Values(s))[max(i, 0)]
}

func (s samples) median() float64 { return s.quantile(0.5) }
func (s samples) min() float64    { return s.quantile(0) }
func (s samples) max() float64    { return s.quantile(1) }

// longest returns the check of times of which the longest counts.
func (s samples) longest(what string) check {
	return check{what: what, unit: "s", ours: s.max(),
		note: fmt.Sprintf("longest of %d, median %.2f s, shortest %.2f s", len(s), s.median(), s.min())}
}

// compareCosts returns the check of a cost where there are many of something, against where there are fewer.
func compareCosts(what, unit string, many, few float64, ofFew string) check {
	return check{what: what, unit: unit, ours: many, floor: few, ratio: divide(many, few),
		note: "the column of the floor is that of " + ofFew}
}

// divide is 0 where there is nothing to divide by.
func divide(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }
