// Package playground tests the built playground on this machine.
package playground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// The end of a cluster leaves nothing behind, whatever ran in it. That pods, nodes and DNS work is seen by test/e2e.
func TestUpLeavesNothingBehind(t *testing.T) {
	before := lookAtMachine(t)
	pause := filepath.Join(filepath.Dir(framework.PlaygroundProgram.MustPath(t)), "playground.d", "pause")
	dir := filepath.Join(t.TempDir(), "p")
	p := up(t, dir, "--nodes", "k8s01,k8s02", "--image", "localhost/first:1="+pause)

	runPod(t, p, "localhost/first:1", "k8s01")
	p.mustRun("load", "localhost/second:1="+pause)
	runPod(t, p, "localhost/second:1", "k8s02")
	_, err := p.run("run", "sh", "-c", "exit 7")
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("the exit code is not passed on: %v", err)
	}

	deleteNode(t, p, "k8s02")

	family := descendants(t, p.Pid())
	if len(family) < 15 {
		t.Errorf("the processes are %v: a cluster has more", family)
	}
	p.signal(syscall.SIGTERM)
	p.mustHaveSucceeded()
	mustEnd(t, family)
	mustNotExist(t, dir)
	lookAtMachine(t).mustBe(t, before)
}

// deleteNode deletes a Node object: its node ends, the rest of the cluster does not, and the node can be started again.
func deleteNode(t *testing.T, p *playground, node string) {
	t.Helper()
	p.mustRun("kubectl", "delete", "node", node)
	hint := "`playground node start " + node + "` starts it again"
	eventually(t, "waiting for the end of the node", func() error {
		if output := p.Output(); !strings.Contains(output, hint) {
			return fmt.Errorf("`up` does not say that %s:\n%s", hint, output)
		}
		return nil
	})
	if out := p.mustRun("kubectl", "get", "nodes", "-o", "name"); strings.Contains(out, node) {
		t.Errorf("the Node is still there, or again:\n%s", out)
	}
	p.mustRun("node", "start", node)
	runPod(t, p, "localhost/first:1", node)
}

// runPod runs a pod of an image on a node.
func runPod(t *testing.T, p *playground, image, node string) {
	t.Helper()
	name := fmt.Sprintf("on-%s-%d", node, time.Now().UnixNano())
	p.mustRun("kubectl", "run", name, "--image", image, "--image-pull-policy", "Never",
		"--overrides", fmt.Sprintf(`{"spec": {"nodeName": %q}}`, node))
	p.mustRun("kubectl", "wait", "--for=condition=Ready", "pod/"+name, "--timeout=2m")
}

// However `up` ends, everything ends with it. When it is killed it cannot clean up, and the next one takes over the
// directory.
func TestNothingOutlivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		signal syscall.Signal
		args   []string
	}{
		"control plane only interrupted": {syscall.SIGINT, []string{"--control-plane-only"}},
		"control plane only killed":      {syscall.SIGKILL, []string{"--control-plane-only"}},
		"with nodes killed":              {syscall.SIGKILL, []string{"--nodes", "k8s01"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := lookAtMachine(t)
			dir := filepath.Join(t.TempDir(), "p")
			p := up(t, dir, c.args...)
			family := descendants(t, p.Pid())
			p.signal(c.signal)
			mustEnd(t, family)
			lookAtMachine(t).mustBe(t, before)
			if c.signal == syscall.SIGKILL {
				p = up(t, dir, "--control-plane-only")
				p.signal(syscall.SIGTERM)
			}
			p.mustHaveSucceeded()
			mustNotExist(t, dir)
		})
	}
}

// playground is a running `playground up`.
type playground struct {
	*framework.Process
	t   *testing.T
	dir string
}

// up starts a playground, whose standard output goes to the file DIR.out, and returns when it reports that it is ready.
func up(t *testing.T, dir string, args ...string) *playground {
	t.Helper()
	out, err := os.Create(dir + ".out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(framework.PlaygroundProgram.MustPath(t),
		append([]string{"up", "--dir", dir, "--die-with-parent"}, args...)...)
	cmd.Stdout = out
	p, err := framework.StartProcess(cmd, syscall.SIGTERM)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	ctx, cancel := context.WithTimeout(t.Context(), framework.DefaultTimeout)
	defer cancel()
	if _, err := p.WaitFor(ctx, "ready", func() string {
		// The last line of the standard output is the one that is promised.
		if out, _ := os.ReadFile(dir + ".out"); string(out) == "ready: KUBECONFIG="+dir+"/kubeconfig\n" {
			return "ready"
		}
		return ""
	}); err != nil {
		t.Fatal(err)
	}
	return &playground{p, t, dir}
}

// signal sends a signal and returns when `up` has ended.
func (p *playground) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		p.t.Fatal(err)
	}
}

// mustHaveSucceeded fails the test if `up`, which has ended, did so with an error.
func (p *playground) mustHaveSucceeded() {
	p.t.Helper()
	if exitCode, err := p.Wait(); err != nil || exitCode != 0 {
		p.t.Errorf("up ended with exit code %d, %v\n%s", exitCode, err, p.Output())
	}
}

// run runs a command of the playground and returns its output.
func (p *playground) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), framework.DefaultTimeout)
	defer cancel()
	env := []string{"PLAYGROUND_DIR=" + p.dir, "KUBECONFIG="}
	stdout, stderr, err := framework.PlaygroundProgram.Run(ctx, nil, env, args...)
	return stdout + stderr, err
}

func (p *playground) mustRun(args ...string) string {
	p.t.Helper()
	out, err := p.run(args...)
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// eventually polls until ok returns nil.
func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	if err := framework.Poll(t.Context(), func(context.Context) error { return ok() }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
