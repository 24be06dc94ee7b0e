package framework

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// pollInterval is how often a condition is checked.
const pollInterval = 20 * time.Millisecond

// starts hands the start of processes to one thread that lives as long as the test binary: Pdeathsig fires when the
// *thread* that started a process ends, and Go may end threads at any time.
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

// Process is a program under test, with everything that it prints.
type Process struct {
	cmd *exec.Cmd
	// out has what it prints: a file, so that a process that outlives this one, if only to clean up, can still print.
	out  *os.File
	done chan struct{} // closed when it has ended
}

// StartProcess starts a program that gets a signal when this process ends, for whatever reason. Its output is kept,
// except for stdout if the command redirects it.
func StartProcess(cmd *exec.Cmd, whenParentEnds syscall.Signal) (*Process, error) {
	out, err := os.CreateTemp("", "output")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(out.Name()); err != nil { // It must not be left behind.
		return nil, err
	}
	p := &Process{cmd: cmd, out: out, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	cmd.Stderr = out
	// In its own session, so that Ctrl-C in the terminal reaches only the test binary, whose end ends it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: whenParentEnds, Setsid: true}
	started := make(chan error)
	starts() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // The exit code shows it.
	}()
	return p, nil
}

// Name returns the name of the program.
func (p *Process) Name() string { return filepath.Base(p.cmd.Path) }

// Signal sends a signal. It is no error if the process has ended already.
func (p *Process) Signal(signal os.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to %s: %w", signal, p.Name(), err)
	}
	return nil
}

// Pid returns the process ID.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the process as a crash of its machine would, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // Fails only if it has ended.
	<-p.done
}

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Wait returns the exit code once the process has ended, -1 if a signal ended it. A process that does not end within
// DefaultTimeout is an error.
func (p *Process) Wait() (exitCode int, err error) {
	timer := time.NewTimer(DefaultTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-timer.C:
		return 0, fmt.Errorf("%s has not ended after %v; its output ends "+
			"with:\n%s", p.Name(), DefaultTimeout, p.Tail(20))
	}
}

// end ends the process with a signal. If it does not end in time, which is an error, end kills it.
func (p *Process) end(signal os.Signal) (exitCode int, err error) {
	if err := p.Signal(signal); err != nil {
		return 0, err
	}
	if exitCode, err = p.Wait(); err != nil {
		p.Kill()
	}
	return exitCode, err
}

// Output returns everything that the process has printed so far.
func (p *Process) Output() string {
	b, err := io.ReadAll(io.NewSectionReader(p.out, 0, math.MaxInt64))
	if err != nil {
		return fmt.Sprintf("%s(the output cannot be read: %v)", b, err)
	}
	return string(b)
}

// Tail returns the last lines that the process has printed.
func (p *Process) Tail(lines int) string {
	return LastLines(p.Output(), lines)
}

// LastLines returns the last lines of a text.
func LastLines(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// WaitFor polls until ready returns something, the process ends or ctx is done.
func (p *Process) WaitFor(ctx context.Context, what string, ready func() string) (string, error) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		running := p.Running() // Before looking, so that what it printed last is not missed.
		if found := ready(); found != "" {
			return found, nil
		}
		if !running {
			return "", fmt.Errorf("%s ended before %s; its output ends with:\n%s", p.Name(), what, p.Tail(20))
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%s: %w: not %s; its output ends "+
				"with:\n%s", p.Name(), context.Cause(ctx), what, p.Tail(20))
		case <-ticker.C:
		}
	}
}
