package framework

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// NewSecondAPIServer runs another API server on the data of a cluster, as during the upgrade of a control plane with
// several. Its flags are those of the cluster's own without one, such as --emulated-version, and more. It is returned
// as a cluster whose clients use the second API server, and ends with the test. The cluster must be ControlPlaneOnly.
func (c *Cluster) NewSecondAPIServer(t testing.TB, without string, more ...string) *Cluster {
	t.Helper()
	second, args, err := c.anotherAPIServer(c.dir, nil)
	if err != nil {
		t.Fatalf("make a second API server: %v", err)
	}
	args = slices.DeleteFunc(args, func(arg string) bool { return strings.HasPrefix(arg, without+"=") })
	second.start(t, append(args, more...))
	t.Cleanup(second.Kill)
	return second
}

// Separate is an API server with an etcd of its own, which a test may stop and start, and whose data it may replace. It
// has the flags and certificates of a cluster's own. There are no other components.
type Separate struct {
	*Cluster

	Data              string // etcd's directory
	etcdArgs, apiArgs []string
	etcd              *Process
}

// NewSeparate runs a separate API server until the end of the test, with our CustomResourceDefinition and the
// namespace. The cluster must be ControlPlaneOnly.
func (c *Cluster) NewSeparate(t testing.TB) *Separate {
	t.Helper()
	// Below the cluster's own, whose path is short.
	dir, err := os.MkdirTemp(c.dir, "separate")
	if err != nil {
		t.Fatal(err)
	}
	socket := "unix://" + filepath.Join(dir, "etcd.sock")
	s := &Separate{Data: filepath.Join(dir, "etcd")}
	etcdArgs, err1 := c.argsOf("etcd", map[string]string{"--data-dir": s.Data, "--listen-client-urls": socket,
		"--listen-peer-urls": "unix://" + filepath.Join(dir, "peer.sock")})
	another, apiArgs, err2 := c.anotherAPIServer(dir, map[string]string{"--etcd-servers": socket})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatalf("make a separate API server: %v", err)
	}
	s.Cluster, s.etcdArgs, s.apiArgs = another, etcdArgs, apiArgs
	t.Cleanup(s.StopServers)
	s.StartServers(t)
	if err := s.InstallCRD(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// StartServers starts etcd and the API server, and returns when that is ready.
func (s *Separate) StartServers(t testing.TB) {
	t.Helper()
	s.etcd = startPlayground(t, s.etcdArgs)
	s.start(t, s.apiArgs)
}

// StopServers ends both at once, as a crash of their machine would.
func (s *Separate) StopServers() {
	for _, process := range []*Process{s.Process, s.etcd} {
		if process != nil {
			process.Kill()
		}
	}
}

// anotherAPIServer returns a cluster whose clients use an API server that does not run yet, and its command line: that
// of the cluster's own, with another port and other values of some flags.
func (c *Cluster) anotherAPIServer(dir string, flags map[string]string) (*Cluster, []string, error) {
	port, err1 := FreePort()
	server, err2 := url.Parse(c.Config.Host)
	kubeconfig, err3 := os.ReadFile(c.Kubeconfig)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, nil, err
	}
	auditLog := filepath.Join(c.dir, "logs", "audit-"+port+".log")
	values := map[string]string{"--secure-port": port, "--audit-log-path": auditLog}
	maps.Copy(values, flags)
	args, err := c.argsOf(apiServer, values)
	another := &Cluster{Kubeconfig: filepath.Join(dir, "kubeconfig-"+port), Audit: &Audit{path: auditLog}, dir: dir,
		opts: c.opts}
	kubeconfig = bytes.ReplaceAll(kubeconfig, []byte(server.Host), []byte(net.JoinHostPort(server.Hostname(), port)))
	return another, args, errors.Join(err, os.WriteFile(another.Kubeconfig, kubeconfig, 0o600))
}

// start starts the API server of a cluster with a command line, and returns when it is ready.
func (c *Cluster) start(t testing.TB, args []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), DefaultTimeout)
	defer cancel()
	c.Process = startPlayground(t, args)
	if _, err := c.WaitFor(ctx, "answering requests", func() string { return c.answers(ctx) }); err != nil {
		t.Fatalf("start another API server: %v", err)
	}
}

// startPlayground starts a component of the playground, by the name with which its command line begins.
func startPlayground(t testing.TB, args []string) *Process {
	t.Helper()
	return must[*Process](t)(StartProcess(&exec.Cmd{Path: programOf(t, args[0]), Args: args}, syscall.SIGKILL))
}

// programOf returns the path of the program that has a component.
func programOf(t testing.TB, component string) string {
	t.Helper()
	if program := os.Getenv(controlPlaneVariable); program != "" && component == apiServer {
		return program
	}
	return PlaygroundProgram.MustPath(t)
}

// apiServer is the name of the API server in command lines.
const apiServer = "kube-apiserver"

// pluginList is in the API server's help.
var pluginList = regexp.MustCompile(`(?s)Comma-delimited list of admission plugins: ([\w,\s]+)\.`)

// AdmissionPlugins returns the names of all admission plug-ins that the API server has.
func AdmissionPlugins(t testing.TB) []string {
	t.Helper()
	help := exec.Cmd{Path: programOf(t, apiServer), Args: []string{apiServer, "--help"}}
	list := pluginList.FindSubmatch(must[[]byte](t)(help.Output()))
	if list == nil {
		t.Fatal("the help of the API server has no list of admission plug-ins")
	}
	return regexp.MustCompile(`\w+`).FindAllString(string(list[1]), -1)
}

// Pids returns the IDs of the cluster's processes of a program, at least one.
func (c *Cluster) Pids(program string) ([]int, error) {
	all, err := Descendants(c.Pid())
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, process := range all {
		args, err := commandLine(process.Pid) // A process that has just ended has none.
		if err == nil && args[0] == program {
			pids = append(pids, process.Pid)
		}
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("the cluster has no process %s", program)
	}
	return pids, nil
}

// Descendants returns the processes that come from one, itself included.
func Descendants(pid int) ([]*os.Process, error) {
	p, err1 := os.FindProcess(pid) // Not just a number that may be used again.
	lists, err2 := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	found := []*os.Process{p}
	for _, list := range lists {
		children, _ := os.ReadFile(list) // Fails if it has just ended.
		for _, child := range strings.Fields(string(children)) {
			pid, err := strconv.Atoi(child)
			if err != nil {
				return nil, err
			}
			more, err := Descendants(pid)
			if err != nil {
				return nil, err
			}
			found = append(found, more...)
		}
	}
	return found, nil
}

// argsOf returns the command line of the cluster's process of a program, with other values of some flags.
func (c *Cluster) argsOf(program string, values map[string]string) ([]string, error) {
	pids, err := c.Pids(program)
	if err != nil {
		return nil, err
	}
	args, err := commandLine(pids[0])
	for flag, value := range values {
		if i := slices.Index(args, flag); i >= 0 {
			args[i+1] = value
		}
	}
	return args, err
}

func commandLine(pid int) ([]string, error) {
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
