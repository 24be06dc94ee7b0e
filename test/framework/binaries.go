package framework

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Program is a binary that the tests run.
type Program struct {
	name, variable, makeTarget string
}

// The programs of this repository.
var (
	PlaygroundProgram = Program{"playground", "PLAYGROUND_BIN", "playground"}
	ControllerProgram = Program{"local-service-controller", "CONTROLLER_BIN", "build"}
	PluginProgram     = Program{"kubectl-localservice", "PLUGIN_BIN", "build"} // kubectl finds it by this name.
	AppProgram        = Program{"localservice-app", "APP_BIN", "build"}
	// The real one, for the recipe with it.
	ExternalDNSProgram = Program{"external-dns", "EXTERNAL_DNS_BIN", "test-external-dns"}
	// Kubernetes' own tests, what runs them, and the images that they need.
	ConformanceSuite = Program{"conformance/suite.test", "CONFORMANCE_SUITE", "test-conformance"}
	GinkgoProgram    = Program{"conformance/ginkgo", "GINKGO_BIN", "test-conformance"}
	// Debian's, for the tests of alerts and scraping.
	PromtoolProgram = Program{"promtool", "PROMTOOL_BIN", "promtool"}
)

// Path returns the path of the binary: that in its variable, else in bin/ of the repository. If it is missing, the
// error says how to build it. That is never a reason to skip a test.
func (p Program) Path() (string, error) {
	path := os.Getenv(p.variable)
	if path == "" {
		root, err := moduleRoot()
		if err != nil {
			return "", err
		}
		path = filepath.Join(root, "bin", p.name)
	}
	info, err := os.Stat(path)
	if err == nil && (info.IsDir() || info.Mode()&0o111 == 0) {
		err = errors.New("that is no program")
	}
	if err != nil {
		return "", fmt.Errorf("the tests run %s: build it with `make %s`, or say with $%s where it is: %w",
			path, p.makeTarget, p.variable, err)
	}
	return filepath.Abs(path)
}

// productModule is the first line of the go.mod at the top of the repository. Tests and benchmark are other modules.
const productModule = "module github.com/localservice-dev/local-service-controller\n"

// moduleRoot returns the directory of the product's go.mod, above the working directory.
var moduleRoot = sync.OnceValues(func() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		if strings.HasPrefix(string(content), productModule) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in a checkout of local-service-controller", start)
		}
	}
})

// MustPath is Path for a test.
func (p Program) MustPath(t testing.TB) string {
	t.Helper()
	path, err := p.Path()
	if err != nil {
		t.Fatal(err)
	}
	return path
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

// MustModuleFile is ModuleFile for a test.
func MustModuleFile(t testing.TB, elem ...string) string {
	t.Helper()
	path, err := ModuleFile(elem...)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// ModuleFile returns the path of a file of the product's module, for example artifacts/examples/crd.yaml.
func ModuleFile(elem ...string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(append([]string{root}, elem...)...), nil
}
