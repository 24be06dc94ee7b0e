package framework

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// NewSecondAPIServer runs another API server on the data of a cluster, as during the upgrade of a control plane with
// several. Its flags are those of the cluster's own without one, such as --emulated-version. It is returned as a
// cluster whose clients use the second API server, and ends with the test. The cluster must be ControlPlaneOnly.
func (c *Cluster) NewSecondAPIServer(t testing.TB, without string) *Cluster {
	t.Helper()
	second, err := c.startSecondAPIServer(without)
	if err != nil {
		t.Fatalf("start a second API server: %v", err)
	}
	t.Cleanup(func() {
		if _, err := second.end(syscall.SIGKILL); err != nil {
			t.Errorf("stop the second API server: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), DefaultTimeout)
	defer cancel()
	if _, err := second.WaitFor(ctx, "answering requests", func() string { return second.answers(ctx) }); err != nil {
		t.Fatalf("start a second API server: %v", err)
	}
	return second
}

func (c *Cluster) startSecondAPIServer(without string) (*Cluster, error) {
	path, err := PlaygroundProgram.Path()
	if err != nil {
		return nil, err
	}
	pid, err := c.APIServerPid()
	if err != nil {
		return nil, err
	}
	args, err := argsOf(pid)
	if err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(c.Config.Host)
	if err != nil {
		return nil, err
	}
	args = slices.DeleteFunc(args, func(arg string) bool { return strings.HasPrefix(arg, without+"=") })
	auditLog := filepath.Join(c.dir, "logs", "audit-"+port+".log")
	// The last of two flags counts.
	args = append(args, "--secure-port", port, "--audit-log-path", auditLog)
	kubeconfig, err := os.ReadFile(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	second := &Cluster{Kubeconfig: filepath.Join(c.dir, "kubeconfig-"+port), Audit: &Audit{path: auditLog}, dir: c.dir,
		hostnames: c.hostnames, withoutGuard: c.withoutGuard}
	kubeconfig = bytes.ReplaceAll(kubeconfig, []byte(server.Host), []byte(net.JoinHostPort(server.Hostname(), port)))
	if err := os.WriteFile(second.Kubeconfig, kubeconfig, 0o600); err != nil {
		return nil, err
	}
	second.Process, err = StartProcess(&exec.Cmd{Path: path, Args: args}, syscall.SIGKILL)
	return second, err
}

// APIServerPid returns the process ID of the cluster's own API server.
func (c *Cluster) APIServerPid() (int, error) {
	pids, err := c.Pids("kube-apiserver")
	if err != nil {
		return 0, err
	}
	return pids[0], nil
}

// Pids returns the IDs of the cluster's processes of a program, at least one.
func (c *Cluster) Pids(program string) ([]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		args, err := argsOf(pid) // A process that has just ended has none.
		if err == nil && args[0] == program && c.isParentOf(pid) {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("the cluster has no process %s", program)
	}
	return pids, nil
}

// isParentOf reports whether a process was started by the cluster, directly or indirectly.
func (c *Cluster) isParentOf(pid int) bool {
	for pid > 1 {
		if pid == c.Pid() {
			return true
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false
		}
		// The name of the program, which may hold anything, is in parentheses; the parent comes second after it.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			return false
		}
	}
	return false
}

func argsOf(pid int) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"), err
}

// FreePort returns a TCP port of 127.0.0.1 that was free a moment ago. It stays free with near certainty: of the ports
// that Linux chooses, listeners get the odd ones and clients the even ones, as long as there are any.
func FreePort() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
