package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// shell is a bash that runs one command after the other, as a terminal does, in a directory that looks like the
// repository after `make build playground`.
type shell struct {
	dir     string
	cmd     *exec.Cmd
	in      io.WriteCloser
	results chan string // exit codes, closed when the shell ends
	n       int
}

// startShell starts a bash. All that was started in it ends with the test.
func startShell(t *testing.T) *shell {
	t.Helper()
	dir, err := os.MkdirTemp("", "lsc") // Not t.TempDir: the paths of sockets in it have little room.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	artifacts := framework.MustModuleFile(t, "artifacts")
	// Beside this test, others may run on the machine, and the port of the controller may be taken.
	wrapper := fmt.Sprintf("#!/bin/sh\nexec %s -http-address=127.0.0.1:0 \"$@\"\n", quote(framework.ControllerProgram.MustPath(t)))
	if err := errors.Join(
		os.Mkdir(filepath.Join(dir, "bin"), 0o755),
		os.Symlink(artifacts, filepath.Join(dir, "artifacts")),
		os.Symlink(framework.PlaygroundProgram.MustPath(t), filepath.Join(dir, "bin", "playground")),
		os.Symlink(framework.AppProgram.MustPath(t), filepath.Join(dir, "bin", "localservice-app")),
		os.WriteFile(filepath.Join(dir, "bin", "local-service-controller"), []byte(wrapper), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	s := &shell{dir: dir, cmd: exec.Command("bash", "--noprofile", "--norc")}
	s.cmd.Dir = dir
	s.cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains([]string{"KUBECONFIG", "BASH_ENV", "CDPATH", "OLDPWD", "PWD"}, name)
	})
	s.cmd.Env = append(s.cmd.Env, "PWD="+dir, "PLAYGROUND_DIR="+s.playgroundDir(), "KUBECACHEDIR="+filepath.Join(dir, "kubectl"), "no_proxy=*")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // A Ctrl-C is for the test, which ends all in order.
	log, err := os.Create(filepath.Join(dir, "output-0"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stderr = log
	out, err1 := s.cmd.StdoutPipe()
	in, err2 := s.cmd.StdinPipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	s.in, s.results = in, make(chan string, 1)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.results)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.results <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = s.in.Close() // It reads the end of its input, also when the test is killed, and ends all jobs.
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("the shell of the walk-through: %v", err)
		}
	})
	// Job control makes every background command a process group. The last started ends first: the cluster comes last.
	fmt.Fprintln(s.in, `set -m
shopt -s expand_aliases
kubectl() { bin/playground kubectl "$@"; }
trap 'for job in $(jobs -p | tac); do kill -TERM -- "-$job" 2>/dev/null && wait "$job"; done; exit 0' EXIT`)
	return s
}

// playgroundDir stands for the default directory of playgrounds.
func (s *shell) playgroundDir() string { return filepath.Join(s.dir, "cluster") }

// run runs a command and returns its output and exit code, of a background command that of its start.
func (s *shell) run(st step) (output *os.File, exitCode int, err error) {
	s.n++
	output, err = os.Create(filepath.Join(s.dir, fmt.Sprintf("output-%d", s.n)))
	if err != nil {
		return nil, 0, err
	}
	command := strings.ReplaceAll(st.command, "/tmp/playground-$UID", s.playgroundDir())
	run := fmt.Sprintf("eval %s </dev/null >%s 2>&1", quote(command), quote(output.Name()))
	if st.background {
		run = fmt.Sprintf("{ %s; echo $? >%s; } &", run, quote(output.Name()+ended))
	}
	_, err = fmt.Fprintln(s.in, run+"\necho $?")
	if err != nil {
		return output, 0, err
	}
	select {
	case result, ok := <-s.results:
		if !ok {
			return output, 0, errors.New("the shell has ended")
		}
		_, err := fmt.Sscan(result, &exitCode)
		return output, exitCode, err
	case <-time.After(framework.DefaultTimeout):
		return output, 0, errors.Join(fmt.Errorf("it has not ended after %v", framework.DefaultTimeout), s.endChildren())
	}
}

// endChildren ends what runs in the shell, so that the shell goes on.
func (s *shell) endChildren() error {
	pid := s.cmd.Process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return err
	}
	for _, child := range strings.Fields(string(children)) {
		if n, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(n, syscall.SIGTERM) // Fails only if it has ended.
		}
	}
	return nil
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// readLines are the lines of a command's output, as the reader would see them.
func (s *shell) readLines(output *os.File) ([]string, error) {
	b, err := os.ReadFile(output.Name())
	seen := strings.ReplaceAll(string(b), s.playgroundDir(), fmt.Sprintf("/tmp/playground-%d", os.Getuid()))
	return strings.Split(strings.TrimRight(seen, "\n"), "\n"), err
}

// outputs are the ends of what all commands have printed, for messages.
func (s *shell) outputs() string {
	var b strings.Builder
	for i := range s.n + 1 { // 0 is that of the shell itself.
		if out, err := os.ReadFile(filepath.Join(s.dir, fmt.Sprintf("output-%d", i))); err != nil {
			fmt.Fprintln(&b, err)
		} else if len(out) > 0 {
			fmt.Fprintf(&b, "--- output %d, its end:\n%s\n", i, framework.LastLines(string(out), 30))
		}
	}
	return b.String()
}
