package framework

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// ControllerOptions say how to run a controller.
type ControllerOptions struct {
	// Args are flags. The HTTP server uses a free port of 127.0.0.1, unless they name another address.
	Args []string
	// Env are additional variables. Of the test binary's own, only PATH is passed on: none may lead to a cluster. The
	// cache mutation detector is enabled, unless Env says otherwise.
	Env []string
}

// Controller is a running local-service-controller.
type Controller struct {
	*Process
}

// StartController runs the controller and returns at once. The caller stops it; Cluster.NewController does that at the
// end of a test.
func StartController(opts ControllerOptions) (*Controller, error) {
	path, err := ControllerProgram.Path()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, append([]string{"-http-address=127.0.0.1:0"}, opts.Args...)...)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=/nonexistent", // There must be no ~/.kube/config to fall back to.
		"KUBE_CACHE_MUTATION_DETECTOR=true",
	}, opts.Env...)
	process, err := StartProcess(cmd, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	return &Controller{Process: process}, nil
}

// httpAddress matches the address that the controller logs, as text and as JSON.
var httpAddress = regexp.MustCompile(`"?httpAddress"?[=:]"([^"]+)"`)

// Get requests a path from the controller's HTTP server.
func (c *Controller) Get(ctx context.Context, path string) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	address, err := c.WaitFor(ctx, "telling its HTTP address", func() string {
		if m := httpAddress.FindStringSubmatch(c.Output()); m != nil {
			return m[1]
		}
		return ""
	})
	if err != nil {
		return 0, "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	return response.StatusCode, string(b), err
}

// WaitReady waits until the controller's caches are filled.
func (c *Controller) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	_, err := c.WaitFor(ctx, "being ready", func() string {
		if status, _, err := c.Get(ctx, "/readyz"); err == nil && status == http.StatusOK {
			return "ready"
		}
		return ""
	})
	return err
}

// WaitLog waits, no longer than DefaultTimeout, until the controller's log has a line with all of these texts, and
// returns that line.
func (c *Controller) WaitLog(ctx context.Context, texts ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	return c.WaitFor(ctx, fmt.Sprintf("logging %q", texts), func() string {
		if lines := c.LogLines(texts...); len(lines) > 0 {
			return lines[0]
		}
		return ""
	})
}

// LogLines returns the lines of the controller's log that have all of these texts.
func (c *Controller) LogLines(texts ...string) []string {
	var found []string
	for line := range strings.Lines(c.Output()) {
		lacks := func(text string) bool { return !strings.Contains(line, text) }
		if !slices.ContainsFunc(texts, lacks) {
			found = append(found, strings.TrimRight(line, "\n"))
		}
	}
	return found
}

// Stop ends the controller as an operator does, with SIGTERM. It is an error if the exit code is not 0, or the
// controller does not end. Stopping twice is fine.
func (c *Controller) Stop() error {
	if exitCode, err := c.end(syscall.SIGTERM); err != nil {
		return err
	} else if exitCode != 0 {
		return fmt.Errorf("the controller ended with exit code %d; its log ends with:\n%s", exitCode, c.Tail(40))
	}
	return nil
}

// CheckLog finds what no test may cause: a panic in the controller, recovered or not, such as that of the cache
// mutation detector.
func (c *Controller) CheckLog() error {
	var errs []error
	if !c.Running() {
		errs = append(errs, fmt.Errorf("the controller has ended while the tests were running; its log ends "+
			"with:\n%s", c.Tail(60)))
	}
	for _, sign := range []string{"panic: ", "Observed a panic", "was altered"} {
		if i := strings.Index(c.Output(), sign); i >= 0 {
			rest := c.Output()[i:]
			errs = append(errs, fmt.Errorf("the controller has panicked: %s", rest[:min(len(rest), 4000)]))
		}
	}
	return errors.Join(errs...)
}
