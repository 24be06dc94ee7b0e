package framework

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// program is a binary that the tests run.
type program struct {
	name, variable, makeTarget string
}

var (
	playgroundProgram = program{"playground", "PLAYGROUND_BIN", "playground"}
	controllerProgram = program{"local-service-controller", "CONTROLLER_BIN", "build"}
)

// path is where the binary is: where its variable says, else in bin/ of the repository. A binary that is not there is an
// error that says how to build it, and never a reason to skip a test.
func (p program) path() (string, error) {
	path := os.Getenv(p.variable)
	if path == "" {
		root, err := moduleRoot()
		if err != nil {
			return "", err
		}
		path = filepath.Join(root, "bin", p.name)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", fmt.Errorf("the tests run %s: build it with `make %s`, or say with $%s where it is: %w", path, p.makeTarget, p.variable, err)
	case info.IsDir() || info.Mode()&0o111 == 0:
		return "", fmt.Errorf("the tests run %s, which is no program: build it with `make %s`, or say with $%s where it is", path, p.makeTarget, p.variable)
	}
	return filepath.Abs(path)
}

// productModule is the first line of the go.mod at the top of the repository. Tests and benchmark are other modules.
const productModule = "module github.com/localservice-dev/local-service-controller\n"

// moduleRoot is the directory of the product's go.mod, above the working directory.
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

// ModuleFile is the path of a file of the product's module, for example artifacts/examples/crd.yaml.
func ModuleFile(elem ...string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(append([]string{root}, elem...)...), nil
}
