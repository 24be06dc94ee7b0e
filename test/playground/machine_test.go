package playground

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// descendants returns the processes that come from the process pid, itself included.
func descendants(t *testing.T, pid int) []*os.Process {
	t.Helper()
	found, err := framework.Descendants(pid)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// mustEnd fails unless all processes end soon.
func mustEnd(t *testing.T, family []*os.Process) {
	t.Helper()
	eventually(t, "waiting for the end of all processes", func() error {
		var left []string
		for _, p := range family {
			if err := p.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
				name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.Pid))
				left = append(left, fmt.Sprintf("%s (%d)", strings.TrimSpace(string(name)), p.Pid))
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("still there: %s", strings.Join(left, ", "))
		}
		return nil
	})
}

// machine lists what a playground must not add to.
type machine map[string]bool

func lookAtMachine(t *testing.T) machine {
	t.Helper()
	m := machine{}
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		m["interface "+i.Name] = true
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for mount := range strings.Lines(string(mounts)) {
		m["mount "+mount] = true
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			m["cgroup "+path] = true
		}
		return nil // some are not ours to look into
	})
	// Where the components write if nobody stops them.
	for _, pattern := range []string{
		"/run/*", "/var/lib/*", "/var/log/*", "/opt/*", "/tmp/crun*", "/tmp/containerd*", "/tmp/kube*",
		"/etc/cni*", "/etc/kubernetes*", "/usr/libexec/kubernetes*",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			m["file "+file] = true
		}
	}
	return m
}

func (m machine) mustBe(t *testing.T, before machine) {
	t.Helper()
	for what := range m {
		if !before[what] {
			t.Errorf("left behind: %s", what)
		}
	}
}

func mustNotExist(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", path, err)
	}
}
