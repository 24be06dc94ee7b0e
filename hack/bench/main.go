// bench measures how fast and how small the controller is, on a real API server, side by side with bare clients that
// send the same requests. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// writeConcurrency is the number of requests under way, of the controller and of bare clients.
const writeConcurrency = 16

type options struct {
	rows            []int // that are wanted
	smoke           bool
	kubeControllers string
	out             string
}

// bench is one run.
type bench struct {
	opts   options
	report report
	errs   []error
	scenes int      // made so far
	shared *cluster // the only one of a smoke run

	serviceTemplate *serviceTemplate // what the bare clients copy, once there is one
}

// row measures one row of the table, or several that need the same load.
type row struct {
	numbers []int
	measure func(ctx context.Context, b *bench)
}

// rows returns those of the table, in the order in which they are measured: first the one for which Kubernetes
// publishes Services. In a smoke run it would publish those of all others, too.
func rows() []row {
	return []row{
		{[]int{10}, measureHostnames},
		{[]int{1}, measureFanOut},
		{[]int{2}, measureGrowth},
		{[]int{3}, measureNodeAdded},
		{[]int{4, 6, 7}, measureLoaded},
		{[]int{5}, measurePods},
		{[]int{8}, measureTakeover},
		{[]int{9}, measureFairness},
		{[]int{11}, measureWebhook},
		{[]int{12}, measureGuard},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // A second signal ends the program at once.
	err := run(ctx, os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	b := &bench{}
	if err := b.opts.parse(args); err != nil {
		return err
	}
	for _, r := range rows() {
		if ctx.Err() == nil && slices.ContainsFunc(r.numbers, b.opts.wants) {
			began := time.Now()
			b.note(measureRow(ctx, b, r)) // One that fails does not keep the others from being measured.
			progress("row %v: %v", r.numbers, time.Since(began).Round(time.Second))
		}
	}
	if b.shared != nil {
		b.note(b.shared.Stop())
	}
	return errors.Join(append(b.errs, b.report.finish(b.opts))...)
}

// failure is how must and try end a row: all that can be done about an error is to report it.
type failure struct{ error }

func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func try[T any](value T, err error) T {
	must(err)
	return value
}

func measureRow(ctx context.Context, b *bench, r row) (err error) {
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case failure:
			err = fmt.Errorf("row %v: %w", r.numbers, ended.error)
		default:
			panic(ended)
		}
	}()
	r.measure(ctx, b)
	return nil
}

// note keeps an error for the end.
func (b *bench) note(err error) { b.errs = append(b.errs, err) }

// parse reads the flags. The framework finds the controller by a variable, which parse sets.
func (o *options) parse(args []string) error {
	bin := framework.ModuleFile("bin")
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.Func("row", "`numbers` of the rows to measure, such as 3 or 1,5; empty for all", o.parseRows)
	f.Func("controller", "`file` with the controller, by default $CONTROLLER_BIN, then bin/local-service-controller",
		func(path string) error { return os.Setenv("CONTROLLER_BIN", path) })
	f.BoolVar(&o.smoke, "smoke", false, "only see that everything works, and fail only if a count is wrong")
	f.StringVar(&o.kubeControllers, "kube-controllers", "serviceaccount-controller",
		"`list` of the controllers of kube-controller-manager that run beside, and share the processors")
	f.StringVar(&o.out, "out", filepath.Join(bin, "bench"), "`directory` for the results")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("want no arguments: %q", f.Args())
	}
	return os.MkdirAll(o.out, 0o755)
}

func (o *options) parseRows(list string) error {
	for number := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		n, err := strconv.Atoi(number)
		if err != nil || !slices.ContainsFunc(rows(), func(r row) bool { return slices.Contains(r.numbers, n) }) {
			return fmt.Errorf("there is no row %q", number)
		}
		o.rows = append(o.rows, n)
	}
	return nil
}

func (o *options) wants(row int) bool { return len(o.rows) == 0 || slices.Contains(o.rows, row) }

// n is a number of objects, in a smoke run a fiftieth of it, but at least 5.
func (b *bench) n(full int) int {
	if b.opts.smoke {
		return max(min(full, 5), full/50)
	}
	return full
}

// rounds is how often to repeat, once in a smoke run.
func (b *bench) rounds(full int) int {
	if b.opts.smoke {
		return 1
	}
	return full
}

// shorter is a time to measure for, a twentieth of it in a smoke run.
func (b *bench) shorter(full time.Duration) time.Duration {
	if b.opts.smoke {
		return full / 20
	}
	return full
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
