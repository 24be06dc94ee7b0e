package framework

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// Separate is an API server with an etcd of its own, which a test may stop and start, and whose data it may replace. It
// has the flags and certificates of a cluster's own. There are no other components.
type Separate struct {
	*Cluster

	Data                  string // etcd's directory
	etcdArgs, apiArgs     []string
	program               string
	etcdProcess, apiProcs *Process
}

// NewSeparate runs a separate API server until the end of the test, with our CustomResourceDefinition and the
// namespace. The cluster must be ControlPlaneOnly.
func (c *Cluster) NewSeparate(t testing.TB) *Separate {
	t.Helper()
	s, err := c.separate()
	if err != nil {
		t.Fatalf("make a separate API server: %v", err)
	}
	t.Cleanup(s.StopServers)
	s.StartServers(t)
	if err := s.InstallCRD(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func (c *Cluster) separate() (*Separate, error) {
	path, err := PlaygroundProgram.Path()
	if err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(c.dir, "separate-"+port)
	s := &Separate{program: path, Data: filepath.Join(dir, "etcd")}
	pids, err := c.Pids("etcd")
	if err != nil {
		return nil, err
	}
	socket := "unix://" + filepath.Join(dir, "etcd.sock")
	if s.etcdArgs, err = argsWith(pids[0], map[string]string{"--data-dir": s.Data, "--listen-client-urls": socket,
		"--listen-peer-urls": "unix://" + filepath.Join(dir, "peer.sock")}); err != nil {
		return nil, err
	}
	pid, err := c.APIServerPid()
	if err != nil {
		return nil, err
	}
	auditLog := filepath.Join(c.dir, "logs", "audit-"+port+".log")
	if s.apiArgs, err = argsWith(pid, map[string]string{"--etcd-servers": socket, "--secure-port": port,
		"--audit-log-path": auditLog}); err != nil {
		return nil, err
	}
	server, err := url.Parse(c.Config.Host)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := os.ReadFile(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	s.Cluster = &Cluster{Kubeconfig: filepath.Join(dir, "kubeconfig"), Audit: &Audit{path: auditLog}, dir: dir,
		hostnames: c.hostnames}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	kubeconfig = bytes.ReplaceAll(kubeconfig, []byte(server.Host), []byte(net.JoinHostPort(server.Hostname(), port)))
	return s, os.WriteFile(s.Kubeconfig, kubeconfig, 0o600)
}

// argsWith returns the arguments of a process with other values of some flags.
func argsWith(pid int, values map[string]string) ([]string, error) {
	args, err := argsOf(pid)
	for flag, value := range values {
		if i := slices.Index(args, flag); i >= 0 {
			args[i+1] = value
		}
	}
	return args, err
}

// StartServers starts etcd and the API server, and returns when that is ready.
func (s *Separate) StartServers(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), DefaultTimeout)
	defer cancel()
	for process, args := range map[**Process][]string{&s.etcdProcess: s.etcdArgs, &s.apiProcs: s.apiArgs} {
		started, err := StartProcess(&exec.Cmd{Path: s.program, Args: args}, syscall.SIGKILL)
		if err != nil {
			t.Fatal(err)
		}
		*process = started
	}
	s.Process = s.apiProcs
	if _, err := s.WaitFor(ctx, "ready", func() string { return s.answers(ctx) }); err != nil {
		t.Fatalf("start a separate API server: %v", err)
	}
}

// StopServers ends both at once, as a crash of their machine would.
func (s *Separate) StopServers() {
	for _, process := range []*Process{s.apiProcs, s.etcdProcess} {
		if process != nil {
			process.Kill()
		}
	}
}
