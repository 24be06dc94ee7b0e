// Package e2e tests the built playground on this machine.
package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// binary is the playground under test.
func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("PLAYGROUND_BIN")
	if path == "" {
		path = "../../../bin/playground"
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the playground is not built: run hack/playground/build.sh (%v)", err)
	}
	return path
}

// playground is a running `playground up`.
type playground struct {
	t      *testing.T
	bin    string
	dir    string
	cmd    *exec.Cmd
	stderr strings.Builder
	ended  chan struct{}
	err    error // of cmd.Wait, once ended is closed
}

// up starts a playground and returns when it says that it is ready.
func up(t *testing.T, dir string, args ...string) *playground {
	t.Helper()
	p := launch(t, dir, args...)
	select {
	case <-p.ended:
		t.Fatalf("up ended: %v\n%s", p.err, p.stderr.String())
	case <-p.readyFile():
	case <-time.After(2 * time.Minute):
		t.Fatalf("up is not ready after 2 minutes")
	}
	return p
}

// launch starts a playground whose standard output goes to the file DIR.out.
func launch(t *testing.T, dir string, args ...string) *playground {
	t.Helper()
	p := &playground{t: t, bin: binary(t), dir: dir, ended: make(chan struct{})}
	out, err := os.Create(dir + ".out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p.cmd = exec.Command(p.bin, append([]string{"up", "--dir", dir, "--die-with-parent"}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = out, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // usually it has ended
		<-p.ended
	})
	return p
}

// readyFile is closed when the last line of the output is the one that is promised.
func (p *playground) readyFile() <-chan struct{} {
	ready := make(chan struct{})
	want := "ready: KUBECONFIG=" + p.dir + "/kubeconfig\n"
	go func() {
		for ticker := time.NewTicker(20 * time.Millisecond); ; {
			if b, err := os.ReadFile(p.dir + ".out"); err == nil && string(b) == want {
				close(ready)
				return
			}
			select {
			case <-p.ended:
				return
			case <-ticker.C:
			}
		}
	}()
	return ready
}

// signal sends a signal and returns when `up` has ended.
func (p *playground) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		p.t.Fatalf("up is still there 10 s after %v", s)
	}
}

// run runs a command of the playground and returns its output.
func (p *playground) run(args ...string) (string, error) {
	ctx, stop := context.WithTimeout(p.t.Context(), time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, p.bin, args...)
	cmd.Env = append(os.Environ(), "PLAYGROUND_DIR="+p.dir, "KUBECONFIG=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (p *playground) mustRun(args ...string) string {
	p.t.Helper()
	out, err := p.run(args...)
	if err != nil {
		p.t.Fatalf("playground %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// eventually polls until ok returns nil.
func eventually(t *testing.T, timeout time.Duration, what string, ok func() error) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, timeout, err)
		}
		<-ticker.C
	}
}

// process is one that existed, not just a number that may be used again.
type process struct {
	pid     int
	started string
	name    string
}

// descendants are the processes that come from the process pid, itself included.
func descendants(t *testing.T, pid int) []process {
	t.Helper()
	family := map[int]bool{pid: true}
	var found []process
	all, parents := processes(t)
	for grown := true; grown; {
		grown = false
		for child, parent := range parents {
			if family[parent] && !family[child] {
				family[child], grown = true, true
			}
		}
	}
	for _, p := range all {
		if family[p.pid] {
			found = append(found, p)
		}
	}
	return found
}

func processes(t *testing.T) (all []process, parents map[int]int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	parents = map[int]int{}
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		if err != nil {
			continue // it has just ended
		}
		// "PID (NAME) STATE PPID ...": NAME may have anything in it, but the last ")" is its end.
		end := strings.LastIndexByte(string(b), ')')
		pid, fields := number(t, filepath.Base(filepath.Dir(stat))), strings.Fields(string(b[end+1:]))
		parents[pid] = number(t, fields[1])
		name := string(b[strings.IndexByte(string(b), '(')+1 : end])
		all = append(all, process{pid: pid, started: fields[19], name: name})
	}
	return all, parents
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// mustEnd fails unless all processes end soon.
func mustEnd(t *testing.T, family []process) {
	t.Helper()
	eventually(t, 10*time.Second, "waiting for the end of all processes", func() error {
		all, _ := processes(t)
		var left []string
		for _, p := range family {
			if slices.Contains(all, p) {
				left = append(left, fmt.Sprintf("%s (%d)", p.name, p.pid))
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("still there: %s", strings.Join(left, ", "))
		}
		return nil
	})
}

// machine is what a playground must not change.
type machine struct {
	interfaces, mounts, cgroups, files []string
}

func lookAtMachine(t *testing.T) machine {
	t.Helper()
	var m machine
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		m.interfaces = append(m.interfaces, i.Name)
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		m.mounts = append(m.mounts, in.Text())
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			m.cgroups = append(m.cgroups, path)
		}
		return nil // some are not ours to look into
	})
	// Where the components write if nobody stops them.
	for _, pattern := range []string{"/run/*", "/var/lib/*", "/var/log/*", "/opt/*", "/tmp/crun*", "/tmp/containerd*", "/tmp/kube*", "/etc/cni*", "/etc/kubernetes*", "/usr/libexec/kubernetes*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		m.files = append(m.files, found...)
	}
	return m
}

func (m machine) mustBe(t *testing.T, before machine) {
	t.Helper()
	for what, lists := range map[string][2][]string{
		"interfaces": {before.interfaces, m.interfaces},
		"mounts":     {before.mounts, m.mounts},
		"cgroups":    {before.cgroups, m.cgroups},
		"files":      {before.files, m.files},
	} {
		for _, item := range lists[1] {
			if !slices.Contains(lists[0], item) {
				t.Errorf("left behind, %s: %s", what, item)
			}
		}
	}
}

func mustNotExist(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", path, err)
	}
}
