package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// probes are the questions that preflight asks the machine.
type probes struct {
	root          bool
	sysctl        func(name string) string   // empty if there is none
	lookPath      func(program string) error // nil if it is installed
	namespaces    func() error               // nil if the sandbox's namespaces can be made
	libexecExists func(name string) bool     // whether bin/playground.d has it
	inotify       func(n int) int            // how many of n inotify instances can be had
}

// problem is something that keeps the playground from working, and the command that helps.
type problem struct{ what, fix string }

type problems []problem

// programs lists the programs that a node needs from the machine, and the packages that have them.
var programs = []struct{ name, pkg, why string }{
	{"nft", "nftables", "kube-proxy programs Services with it"},
	{"crun", "crun", "it runs the containers"},
	{"nsenter", "util-linux", "`playground run` enters nodes with it"},
}

// libexecPrograms lists the programs that build.sh puts beside the playground.
var libexecPrograms = []string{"containerd", "containerd-shim-runc-v2", "bridge", "loopback", "host-local", "portmap",
	"runc", "pause"}

// defaultNodes are the nodes of `up` without --nodes.
var defaultNodes = []string{"k8s01", "k8s02", "k8s03"}

// Kubernetes watches files with inotify, of which Linux gives a user a limited number of instances, for all of the
// user's processes. Counted on a running cluster: 8 in the control plane; 7 in a kubelet, 2 in containerd, 1 in
// kube-proxy.
const (
	controlPlaneInotify = 8
	nodeInotify         = 10
)

func preflightCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "preflight",
		Short: "Check that this machine can run a playground with nodes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			exe, err := os.Executable()
			if err != nil {
				return fmt.Errorf("finding this binary: %w", err)
			}
			if err := preflight(systemProbes(libexec(exe)), len(defaultNodes)).err(); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "this machine can run a playground")
			return nil
		},
	}
}

// preflight returns all that is wrong at once for a playground with so many nodes.
func preflight(p probes, nodes int) problems {
	var found problems
	var packages []string
	for _, program := range programs {
		if p.lookPath(program.name) != nil {
			found = append(found, problem{what: fmt.Sprintf("%s is not installed (%s)", program.name, program.why)})
			packages = append(packages, program.pkg)
		}
	}
	if len(packages) > 0 {
		found[len(found)-1].fix = "sudo apt-get install -y " + strings.Join(packages, " ")
	}
	if err := p.namespaces(); err != nil {
		found = append(found, namespaceProblem(p, err))
	}
	needed := controlPlaneInotify + nodes*nodeInotify
	if free := p.inotify(needed); free < needed {
		found = append(found, problem{
			what: fmt.Sprintf("%d inotify instances are needed for %d nodes, and only %d are left of the %s that "+
				"a user may have",
				needed, nodes, free, p.sysctl("fs/inotify/max_user_instances")),
			fix: "sudo sysctl -w fs.inotify.max_user_instances=1024",
		})
	}
	missing := slices.DeleteFunc(slices.Clone(libexecPrograms), p.libexecExists)
	if len(missing) > 0 {
		found = append(found, problem{
			what: "not built, or moved away from the playground.d beside it: " + strings.Join(missing, ", "),
			fix:  "hack/playground/build.sh",
		})
	}
	return found
}

// namespaceProblem says what to do about a machine that does not let us have namespaces.
func namespaceProblem(p probes, err error) problem {
	what := fmt.Sprintf("this machine does not let you make namespaces (%v)", err)
	const sudo = "run the playground with sudo"
	switch {
	case p.root:
		return problem{what: what, fix: "run the playground outside of a container, or in a privileged one"}
	case p.sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return problem{what: what + ": AppArmor restricts them to root", fix: sudo}
	case p.sysctl("kernel/unprivileged_userns_clone") == "0":
		return problem{what: what, fix: sudo + ", or: sudo sysctl -w kernel.unprivileged_userns_clone=1"}
	case p.sysctl("user/max_user_namespaces") == "0":
		return problem{what: what, fix: sudo + ", or: sudo sysctl -w user.max_user_namespaces=10000"}
	default:
		return problem{what: what, fix: sudo}
	}
}

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString("this machine cannot run a playground with nodes yet:\n")
	for _, problem := range p {
		fmt.Fprintf(&b, "  - %s\n", problem.what)
		if problem.fix != "" {
			fmt.Fprintf(&b, "      fix: %s\n", problem.fix)
		}
	}
	b.WriteString("A control plane alone needs nothing of this: playground up --control-plane-only")
	return errors.New(b.String())
}

// systemProbes asks this machine.
func systemProbes(libexecDir string) probes {
	return probes{
		root: os.Geteuid() == 0,
		sysctl: func(name string) string {
			b, _ := os.ReadFile("/proc/sys/" + name) // not every kernel has every one
			return strings.TrimSpace(string(b))
		},
		lookPath:   func(program string) error { _, err := lookPath(program); return err },
		namespaces: tryNamespaces,
		libexecExists: func(name string) bool {
			_, err := os.Stat(filepath.Join(libexecDir, name))
			return err == nil
		},
		inotify: countInotify,
	}
}

// countInotify creates up to n inotify instances, and closes them again. Their number is what other processes leave
// free.
func countInotify(n int) int {
	for got := range n {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			return got
		}
		defer unix.Close(fd)
	}
	return n
}

// tryNamespaces makes the namespaces that the sandbox will have, and tries its most telling privilege: where AppArmor
// restricts user namespaces, they can be made but are worth nothing.
func tryNamespaces() error {
	cmd := self(probeApplet)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: newNamespaces}
	if os.Geteuid() != 0 {
		asRoot(cmd.SysProcAttr)
	}
	var output strings.Builder
	cmd.Stderr = &output
	wait, err := startChild(cmd)
	if err != nil {
		return err
	}
	if err := wait(); err != nil {
		return errors.New(strings.TrimSpace(output.String()))
	}
	return nil
}

// probeMain does, inside of new namespaces, what setting up a node starts with.
func probeMain([]string) int {
	if err := syscall.Sethostname([]byte("probe")); err != nil {
		fmt.Fprintln(os.Stderr, "setting a host name:", err)
		return 1
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		fmt.Fprintln(os.Stderr, "making mounts private:", err)
		return 1
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		fmt.Fprintln(os.Stderr, "mounting /proc:", err)
		return 1
	}
	return 0
}

// searchPath is PATH and where distributions keep programs for root, which an ordinary user's PATH may lack.
func searchPath() string { return os.Getenv("PATH") + ":/usr/local/sbin:/usr/sbin:/sbin" }

// lookPath is exec.LookPath in searchPath.
func lookPath(program string) (string, error) {
	for _, dir := range filepath.SplitList(searchPath()) {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", program, exec.ErrNotFound)
}
