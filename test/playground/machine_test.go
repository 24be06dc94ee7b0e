package playground

import (
	"bufio"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

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
	eventually(t, "waiting for the end of all processes", func() error {
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
	for _, pattern := range []string{
		"/run/*", "/var/lib/*", "/var/log/*", "/opt/*", "/tmp/crun*", "/tmp/containerd*", "/tmp/kube*",
		"/etc/cni*", "/etc/kubernetes*", "/usr/libexec/kubernetes*",
	} {
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
