package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// published are the figures of the 2020 implementation, as published with the targets; it is not measured here.
const published = "The 2020 implementation, as published with the targets, not measured here: 398 s for 1 LocalService × 1,000 nodes; 231 MB for 20,000 pods."

// What a limit is for.
const (
	ofNothing = ""
	ofOurs    = "ours"  // the measured value must not be above it
	ofRatio   = "ratio" // the ratio to the floor must not be above it
	ofExactly = "exactly"
)

// check is a measured value, and what it must reach.
type check struct {
	Row   int     `json:"row"`
	What  string  `json:"what"`
	Unit  string  `json:"unit,omitempty"`
	Ours  float64 `json:"ours"`
	Floor float64 `json:"floor,omitempty"` // bare clients
	Ratio float64 `json:"ratio,omitempty"`
	Limit float64 `json:"limit"`
	Of    string  `json:"limitOf,omitempty"`
	Count bool    `json:"count,omitempty"` // the same on every machine and at every scale
	Pass  bool    `json:"pass"`
	Note  string  `json:"note,omitempty"`
}

func (c *check) passes() bool {
	switch c.Of {
	case ofOurs:
		return c.Ours <= c.Limit
	case ofRatio:
		return c.Ratio <= c.Limit
	case ofExactly:
		return c.Ours == c.Limit
	}
	return true
}

func (c *check) target() string {
	switch c.Of {
	case ofOurs:
		return "≤ " + number(c.Limit)
	case ofRatio:
		return "≤ " + number(c.Limit) + " ×"
	case ofExactly:
		return number(c.Limit)
	}
	return ""
}

// report is what a run has found.
type report struct {
	Date        time.Time `json:"date"`
	Machine     string    `json:"machine"`
	Scale       float64   `json:"scale"`
	Controllers string    `json:"kubeControllerManagerControllers"`
	Concurrency int       `json:"writeConcurrency"`
	Checks      []check   `json:"checks"`
	Published   string    `json:"published"`

	curves []*curve
}

func (r *report) begin(opts options) {
	r.Date, r.Scale, r.Controllers, r.Concurrency, r.Published = time.Now().UTC(), opts.scale, opts.controllers, opts.writeConcurrency, published
	r.Machine = fmt.Sprintf("%d × %s, %s/%s, built with %s", runtime.NumCPU(), processor(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// processor is the name of the processor as Linux tells it.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(info)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

func (r *report) add(c check) {
	c.Pass = c.passes()
	r.Checks = append(r.Checks, c)
}

// count adds a number that must be exactly so, at every scale and on every machine.
func (r *report) count(row int, what string, got, want float64) {
	r.add(check{Row: row, What: what, Ours: got, Limit: want, Of: ofExactly, Count: true})
}

// finish prints the table, saves it and draws the curves. A check that fails is an error, in a smoke run only that of a
// count.
func (r *report) finish(opts options) error {
	slices.SortStableFunc(r.Checks, func(a, b check) int { return a.Row - b.Row })
	table := r.table()
	fmt.Print(table)
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the results: %w", err)
	}
	errs := []error{
		save(opts.out, "results.json", append(data, '\n')),
		save(opts.out, "results.md", []byte(table)),
	}
	for _, c := range r.curves {
		errs = append(errs, save(opts.out, c.Name+".svg", []byte(c.svg())))
	}
	for _, c := range r.Checks {
		if !c.Pass && (c.Count || !opts.smoke) {
			errs = append(errs, fmt.Errorf("row %d: %s: %s instead of %s", c.Row, c.What, c.value(), c.target()))
		}
	}
	return errors.Join(errs...)
}

func (c *check) value() string {
	if c.Of == ofRatio {
		return number(c.Ratio) + " ×"
	}
	return number(c.Ours)
}

func save(dir, name string, data []byte) error {
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
		return fmt.Errorf("save the results: %w", err)
	}
	return nil
}

// table is the results in Markdown.
func (r *report) table() string {
	lines := [][]string{{"row", "what", "controller", "floor", "ratio", "must reach", "", "remarks"}, nil}
	for i := range r.Checks {
		c := &r.Checks[i]
		verdict := ""
		if c.Of != ofNothing {
			verdict = map[bool]string{true: "ok", false: "**missed**"}[c.Pass]
		}
		floor, ratio := "", ""
		if c.Floor > 0 {
			floor, ratio = withUnit(c.Floor, c.Unit), number(c.Ratio)
		}
		lines = append(lines, []string{fmt.Sprint(c.Row), c.What, withUnit(c.Ours, c.Unit), floor, ratio, c.target(), verdict, c.Note})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s; scale %v; kube-controller-manager runs: %s; %d requests under way. %s\n\n", r.Machine, r.Scale, r.Controllers, r.Concurrency, published)
	writeColumns(&b, lines)
	return b.String()
}

// writeColumns writes a table, its columns aligned so that it can be read as it is. The second line is the ruler.
func writeColumns(b *strings.Builder, lines [][]string) {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		for i, width := range widths {
			cell := strings.Repeat("-", width)
			if line != nil {
				cell = line[i] + strings.Repeat(" ", width-utf8.RuneCountInString(line[i]))
			}
			fmt.Fprintf(b, "| %s ", cell)
		}
		b.WriteString("|\n")
	}
}

func withUnit(value float64, unit string) string {
	return strings.TrimSpace(number(value) + " " + unit)
}

// number is a value with three digits that matter, and all those before the point.
func number(value float64) string {
	switch {
	case value == float64(int64(value)):
		return fmt.Sprint(int64(value))
	case value >= 100:
		return fmt.Sprintf("%.0f", value)
	case value >= 10:
		return fmt.Sprintf("%.1f", value)
	case value >= 0.1:
		return fmt.Sprintf("%.2f", value)
	}
	return fmt.Sprintf("%.3g", value)
}

func ratio(ours, floor time.Duration) float64 { return divide(ours.Seconds(), floor.Seconds()) }

// divide is 0 where there is nothing to divide by, as JSON knows no infinity.
func divide(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func seconds(durations []time.Duration) []float64 {
	values := make([]float64, len(durations))
	for i, d := range durations {
		values[i] = d.Seconds()
	}
	return values
}
