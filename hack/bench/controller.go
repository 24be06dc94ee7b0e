package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	readyPollInterval     = 10 * time.Millisecond
	controllerStopTimeout = 30 * time.Second
	logTail               = 20 // lines of a controller's log in an error
)

// starts hands the start of processes to one thread that lives as long as this program: Pdeathsig fires when the
// *thread* that started a process ends.
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

// controller is a running process of the program that is measured.
type controller struct {
	cmd     *exec.Cmd
	started time.Time
	exited  chan struct{}
	ctx     context.Context // done, with a cause, when the process has ended

	mu      sync.Mutex
	log     []string
	logged  chan struct{} // closed and replaced with each line
	address string
}

var httpAddress = regexp.MustCompile(`httpAddress="([^"]+)"`)

// startController starts a process and returns at once. Whoever calls it stops or kills it.
func (b *bench) startController(ctx context.Context, c *cluster, args ...string) (*controller, error) {
	cmd := exec.Command(b.opts.binary, append([]string{
		"-kubeconfig=" + c.Kubeconfig, "-http-address=127.0.0.1:0", "-write-concurrency=" + strconv.Itoa(b.opts.writeConcurrency),
	}, append(b.profilingArgs(), args...)...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	// In a session of its own, a Ctrl-C in the terminal does not reach it before this program.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	output, err := cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p := &controller{cmd: cmd, exited: make(chan struct{}), logged: make(chan struct{}), started: time.Now()}
	result := make(chan error)
	starts() <- func() { result <- cmd.Start() }
	if err := <-result; err != nil {
		return nil, fmt.Errorf("start %s: %w (`make build` builds it)", cmd.Path, err)
	}
	var cancel context.CancelCauseFunc
	p.ctx, cancel = context.WithCancelCause(ctx)
	go func() {
		defer close(p.exited)
		p.readLog(output)
		err := cmd.Wait()
		cancel(fmt.Errorf("the controller has ended: %v; its log ends with:\n%s", err, p.tail()))
	}()
	return p, nil
}

func (p *controller) readLog(output io.Reader) {
	for lines := bufio.NewScanner(output); lines.Scan(); {
		line := lines.Text()
		p.mu.Lock()
		p.log = append(p.log, line)
		if m := httpAddress.FindStringSubmatch(line); m != nil {
			p.address = m[1]
		}
		close(p.logged)
		p.logged = make(chan struct{})
		p.mu.Unlock()
	}
}

func (p *controller) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.log[max(0, len(p.log)-logTail):], "\n")
}

// waitLog waits until a line of the log contains a text.
func (p *controller) waitLog(ctx context.Context, text string) error {
	for seen := 0; ; {
		p.mu.Lock()
		lines, more := p.log[seen:], p.logged
		p.mu.Unlock()
		for _, line := range lines {
			if strings.Contains(line, text) {
				return nil
			}
		}
		seen += len(lines)
		select {
		case <-more:
		case <-ctx.Done():
			return fmt.Errorf("wait for %q in the controller's log: %w", text, context.Cause(ctx))
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		}
	}
}

// waitReady waits until the caches are filled, and returns how long after the start of the process that is.
func (p *controller) waitReady(ctx context.Context) (time.Duration, error) {
	if err := p.waitLog(ctx, "httpAddress="); err != nil {
		return 0, err
	}
	ticker := time.NewTicker(readyPollInterval)
	defer ticker.Stop()
	for {
		if _, err := p.get(ctx, "/readyz"); err == nil {
			return time.Since(p.started), nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("wait until the controller is ready: %w; its log ends with:\n%s", context.Cause(ctx), p.tail())
		case <-p.ctx.Done():
			return 0, context.Cause(p.ctx)
		}
	}
}

func (p *controller) get(ctx context.Context, path string) ([]byte, error) {
	p.mu.Lock()
	address := p.address
	p.mu.Unlock()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: %s: %s", path, response.Status, body)
	}
	return body, err
}

// stop ends the process as an operator does, and waits for it. Stopping one that has ended is fine.
func (p *controller) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the controller: %w", err)
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(controllerStopTimeout):
		p.kill()
		return fmt.Errorf("the controller has not ended %v after SIGTERM; its log ends with:\n%s", controllerStopTimeout, p.tail())
	}
}

// kill ends the process as a crash of its machine does, and waits for it.
func (p *controller) kill() {
	_ = p.cmd.Process.Kill() // Fails only if it has ended.
	<-p.exited
}

// withController calls use with a controller that is ready, and stops it afterwards. The context that use gets is done
// when the controller ends.
func (b *bench) withController(ctx context.Context, c *cluster, args []string, use func(ctx context.Context, p *controller, ready time.Duration) error) error {
	p, err := b.startController(ctx, c, args...)
	if err != nil {
		return err
	}
	ready, err := p.waitReady(ctx)
	if err == nil {
		err = use(p.ctx, p, ready)
	}
	return errors.Join(err, p.stop())
}
