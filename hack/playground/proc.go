package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/pkg/sys/reaper"
	apiwait "k8s.io/apimachinery/pkg/util/wait"
)

// starts hands the start of children to one thread that lives as long as the process: Pdeathsig fires when the *thread*
// that started a child ends, and Go ends threads when it likes.
var starts = sync.OnceValue(func() chan func() {
	c := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range c {
			start()
		}
	}()
	return c
})

// reap waits for all children, those of startChild and others: what ends without a parent in a pid namespace whose
// process 1 we are, such as the shim of a container, becomes our child, and stays a zombie until we wait for it.
var reap = sync.OnceFunc(func() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		for range ended {
			_ = reaper.Reap() // fails only if it is called wrongly
		}
	}()
})

// startChild starts cmd so that it is killed when this process ends, however that comes about, and so that a Ctrl-C in
// the terminal reaches only `playground up`, which then ends everything in order. It returns how to wait for its end.
func startChild(cmd *exec.Cmd) (wait func() error, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr.Setsid = true
	reap()
	started := make(chan error)
	starts() <- func() {
		exits, err := reaper.Default.Start(cmd)
		wait = func() error {
			status, err := reaper.Default.Wait(cmd, exits)
			if err == nil && status != 0 {
				err = fmt.Errorf("exit status %d", status)
			}
			return err
		}
		started <- err
	}
	err = <-started
	return wait, err
}

// self is this binary as one of its components.
func self(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args[1:]...)
	cmd.Args[0] = args[0]
	cmd.Env = childEnv(os.Environ())
	return cmd
}

// childEnv returns the part of an environment that a component may see. etcd takes flags from it, containerd and the
// kubelet notify systemd through it, and a proxy for the machine is none for the sandbox.
func childEnv(environ []string) []string {
	var env []string
	for _, kv := range environ {
		switch k, _, _ := strings.Cut(kv, "="); k {
		case "PATH", "HOME", "GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG":
			env = append(env, kv)
		}
	}
	return env
}

// daemon is a running component.
type daemon struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // why it ended, once done is closed
}

// startDaemon runs cmd with its output in the file log.
func startDaemon(name string, cmd *exec.Cmd, log string) (*daemon, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	wait, err := startChild(cmd)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	d := &daemon{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(d.done)
		d.err = fmt.Errorf("%s ended", name)
		if err := wait(); err != nil {
			d.err = fmt.Errorf("%s ended: %w", name, err)
		}
	}()
	return d, nil
}

// kill ends the component and returns when it is gone. Nothing that it holds outlives a playground, so there is nothing
// it would have to put in order.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill() // fails only if it has ended
	<-d.done
}

// daemons are components that need each other: the end of one cancels the context they share.
type daemons struct {
	cancel context.CancelCauseFunc
	mu     sync.Mutex
	all    []*daemon
}

// start runs a component of this binary or, if its command line starts with a path, another program.
func (d *daemons) start(cmd *exec.Cmd, log string) error {
	p, err := startDaemon(filepath.Base(cmd.Args[0]), cmd, log)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.all = append(d.all, p)
	d.mu.Unlock()
	go func() {
		<-p.done
		d.cancel(withLog(p.err, log))
	}()
	return nil
}

// kill ends them all, the last started first.
func (d *daemons) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancel(context.Canceled) // from here on, their end is no failure
	for _, p := range slices.Backward(d.all) {
		p.kill()
	}
}

// withLog adds the end of a component's log to an error, and where the rest of it is.
func withLog(err error, log string) error {
	lines := "  | " + strings.ReplaceAll(tail(log, 12), "\n", "\n  | ")
	return fmt.Errorf("%w\nits log is %s, which ends with:\n%s", err, log, lines)
}

// tail returns the end of a file, or why it cannot be read.
func tail(path string, lines int) string {
	const width = 300 // some components write whole objects in one line
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	last := all[max(0, len(all)-lines):]
	for i, l := range last {
		if len(l) > width {
			last[i] = l[:width] + "..."
		}
	}
	return strings.Join(last, "\n")
}

// startTimeout bounds the start of each part. That takes seconds; this is for machines that are busy.
const startTimeout = 4 * time.Minute

// poll calls ok until it returns nil, the time is up, or ctx ends; then it returns why it was not.
func poll(ctx context.Context, timeout time.Duration, what string, ok func(context.Context) error) error {
	var last error
	err := apiwait.PollUntilContextTimeout(ctx, 50*time.Millisecond, timeout, true,
		func(ctx context.Context) (bool, error) {
			last = ok(ctx)
			return last == nil, nil
		})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("%s: not within %v: %w", what, timeout, last)
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// since returns the time passed, as progress lines show it.
func since(t time.Time) string { return fmt.Sprintf("%.1f s", time.Since(t).Seconds()) }
