package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// clusterResolvConf is the resolv.conf that the kubelet gives pods in the default namespace.
const clusterResolvConf = `nameserver ` + dnsServiceIP + `
search default` + clusterDomains + `
options ndots:5
`

// clusterDomains lists the domains in which names are searched, after the name of a namespace.
const clusterDomains = `.svc.cluster.local svc.cluster.local cluster.local`

func runCommand() *cobra.Command {
	var dir, node, namespace string
	cmd := &cobra.Command{
		Use:   "run [--node NODE] [--namespace NAMESPACE] -- CMD ARGS...",
		Short: "Run a command in a node's network, with the cluster's DNS",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			// The resolver of the C library takes it for the line "search".
			if err := os.Setenv("LOCALDOMAIN", namespace+clusterDomains); err != nil {
				return err
			}
			return run(dir, node, args)
		},
	}
	cmd.Flags().SetInterspersed(false) // flags after CMD are its own
	cmd.Flags().StringVar(&node, "node", "", "the node (default: the first that is running)")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default",
		"the namespace whose names need no more than themselves")
	dirFlag(cmd, &dir)
	return cmd
}

// run replaces this process by the command: terminal, signals and exit code are then the command's own. There are three
// steps, all in one process: this one finds the node; nsenter joins its namespaces, as only a program with one thread
// may join a user namespace; insideMain gives the command the cluster's DNS.
func run(path, node string, args []string) error {
	dir, err := runningPlayground(path)
	if err != nil {
		return err
	}
	if node == "" {
		names, err := runningNodes(dir)
		if err != nil {
			return err
		}
		node = names[0]
	}
	pid, err := nodePID(dir, node)
	if err != nil {
		return err
	}
	nsenter, err := lookPath("nsenter")
	if err != nil {
		return fmt.Errorf("nsenter is missing: install it with `sudo apt-get install -y util-linux`: %w", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this binary: %w", err)
	}
	argv := []string{"nsenter", "--target", strconv.Itoa(pid), "--net"}
	if other, err := inOtherUserNamespace(pid); err != nil {
		return err
	} else if other {
		argv = append(argv, "--user", "--preserve-credentials")
	}
	argv = append(append(argv, "--", exe, insideApplet, string(dir)), args...)
	if err := syscall.Exec(nsenter, argv, os.Environ()); err != nil {
		return fmt.Errorf("running nsenter: %w", err)
	}
	return nil
}

// nodePID returns the process that serves a node's socket, as numbered in our pid namespace. It has other numbers in
// its own.
func nodePID(dir workdir, node string) (pid int, err error) {
	c, err := net.Dial("unix", dir.nodeSocket(node))
	if err != nil {
		return 0, fmt.Errorf("node %s is not running in %s: %w", node, dir, err)
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("asking for the process of node %s: %w", node, err)
	}
	controlErr := raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	if err := errors.Join(err, controlErr); err != nil {
		return 0, fmt.Errorf("asking for the process of node %s: %w", node, err)
	}
	return pid, nil
}

func inOtherUserNamespace(pid int) (bool, error) {
	ours, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return false, fmt.Errorf("looking at our user namespace: %w", err)
	}
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return false, fmt.Errorf("looking at the node's user namespace (does another user run the playground?): "+
			"%w", err)
	}
	return ours != theirs, nil
}

// insideMain runs in the node's network: it makes the cluster's DNS the resolver in a mount namespace of our own, which
// is otherwise the machine's, and becomes the command.
func insideMain(args []string) int {
	dir, command := workdir(args[1]), args[2:]
	if err := enterClusterDNS(dir); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		return 1
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		fmt.Fprintf(os.Stderr, "playground: running %s: %v\n", command[0], err)
		return 127
	}
	err = syscall.Exec(path, command, os.Environ())
	fmt.Fprintf(os.Stderr, "playground: running %s: %v\n", path, err)
	return 126
}

// enterClusterDNS changes the mount namespace of this thread, which is the one that execs.
func enterClusterDNS(dir workdir) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keeping mounts to ourselves: %w", err)
	}
	if err := mountOver("/etc/resolv.conf", dir.path("resolv.conf")); err != nil {
		return fmt.Errorf("setting the cluster's DNS: %w", err)
	}
	// Resolvers that would answer in place of DNS, or ask the machine's: systemd-resolved's module, and nscd.
	if _, err := os.Stat("/etc/nsswitch.conf"); err == nil {
		if err := mountOver("/etc/nsswitch.conf", dir.path("nsswitch.conf")); err != nil {
			return fmt.Errorf("setting the cluster's DNS: %w", err)
		}
	}
	if _, err := os.Stat("/run/nscd"); err == nil {
		if err := unix.Mount("tmpfs", "/run/nscd", "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("hiding nscd: %w", err)
		}
	}
	return nil
}

// mountOver shows the file source at path. If path is a symbolic link, as resolv.conf often is, then it is shown where
// that leads.
func mountOver(path, source string) error {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("following %s: %w", path, err)
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting over %s: %w", target, err)
	}
	return nil
}

// writeResolverFiles writes what enterClusterDNS mounts.
func writeResolverFiles(dir workdir) error {
	if err := os.WriteFile(dir.path("resolv.conf"), []byte(clusterResolvConf), 0o644); err != nil {
		return fmt.Errorf("writing the cluster's resolv.conf: %w", err)
	}
	own, err := os.ReadFile("/etc/nsswitch.conf")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("reading the machine's nsswitch.conf: %w", err)
	}
	if err := os.WriteFile(dir.path("nsswitch.conf"), clusterNsswitch(own), 0o644); err != nil {
		return fmt.Errorf("writing the cluster's nsswitch.conf: %w", err)
	}
	return nil
}

var hostsLine = regexp.MustCompile(`(?m)^\s*hosts:.*$`)

// clusterNsswitch returns the machine's nsswitch.conf with host names from /etc/hosts and DNS only.
func clusterNsswitch(own []byte) []byte {
	return append(hostsLine.ReplaceAll(own, nil), "\nhosts: files dns\n"...)
}
