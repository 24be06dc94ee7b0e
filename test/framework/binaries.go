package framework

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Program is a binary that the tests run.
type Program struct {
	name, makeTarget string
}

// The programs of this repository.
var (
	PlaygroundProgram = Program{"playground", "playground"}
	ControllerProgram = Program{"local-service-controller", "build"}
	// ChartProgram renders the Helm chart.
	ChartProgram  = Program{"render-chart", "test-integration"}
	PluginProgram = Program{"kubectl-localservice", "build"} // kubectl finds it by this name.
	AppProgram    = Program{"localservice-app", "build"}
	// The real one, for the recipe with it.
	ExternalDNSProgram = Program{"external-dns", "test-external-dns"}
	// Kubernetes' own tests, what runs them, and the images that they need.
	ConformanceSuite = Program{"conformance/suite.test", "test-conformance"}
	GinkgoProgram    = Program{"conformance/ginkgo", "test-conformance"}
	// Debian's, for the tests of alerts and scraping.
	PromtoolProgram = Program{"promtool", "promtool"}
)

// controllerVariable names the variable with the path of the controller to run instead of that in bin/.
const controllerVariable = "CONTROLLER_BIN"

// Path returns the path of the binary in bin/ of the repository. If it is missing, the error says how to build it. That
// is never a reason to skip a test.
func (p Program) Path() (string, error) {
	path := ModuleFile("bin", p.name)
	if other := os.Getenv(controllerVariable); p == ControllerProgram && other != "" {
		path = other
	}
	if _, err := exec.LookPath(path); err != nil {
		return "", fmt.Errorf("the tests run %s: build it with `make %s`: %w", path, p.makeTarget, err)
	}
	return filepath.Abs(path)
}

// MustPath is Path for a test.
func (p Program) MustPath(t testing.TB) string {
	t.Helper()
	return must[string](t)(p.Path())
}

// Run runs the program until it ends, with variables in addition to those of this process, and returns what it prints.
// An exit code other than 0 is an error, which wraps an *exec.ExitError and has what the program prints to stderr.
func (p Program) Run(ctx context.Context, stdin []byte, env []string, args ...string) (stdout, stderr string,
	err error) {
	path, err := p.Path()
	if err != nil {
		return "", "", err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errOut strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), errOut.String(), fmt.Errorf("%s %s: %w: %s", p.name, strings.Join(args, " "), err, &errOut)
	}
	return out.String(), errOut.String(), nil
}

// ModuleFile returns the path of a file of the product's module, for example artifacts/examples/crd.yaml.
func ModuleFile(elem ...string) string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(append([]string{filepath.Dir(file), "..", ".."}, elem...)...)
}
