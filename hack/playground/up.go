package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

//go:embed config/audit-policy.yaml
var auditPolicy []byte

func upCommand() *cobra.Command {
	var (
		dir           string
		images        []string
		dieWithParent bool
		c             config
	)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a cluster in the foreground; Ctrl-C or SIGTERM ends it and leaves nothing behind",
		Args:  cobra.NoArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			for _, s := range images {
				image, err := parseImageSource(s)
				if err != nil {
					return err
				}
				c.Images = append(c.Images, image)
			}
			return up(dir, c, dieWithParent)
		},
	}
	f := cmd.Flags()
	dirFlag(cmd, &dir)
	f.BoolVar(&c.ControlPlaneOnly, "control-plane-only", false, "only etcd, kube-apiserver and "+
		"kube-controller-manager: no nodes, no privileges needed")
	f.StringVar(&c.ControlPlane, "control-plane", "",
		"with --control-plane-only: a program that is kube-apiserver and "+
			"kube-controller-manager when it is called so, such as of another version (see hack/control-plane.sh)")
	f.StringSliceVar(&c.Nodes, "nodes", defaultNodes, "names of the nodes")
	f.StringArrayVar(&images, "image", nil, "REF=BINARY: an image with that static binary as its entrypoint, for "+
		"every node (repeatable)")
	f.BoolVar(&c.DualStack, "dual-stack", false, "pods, nodes and Services have IPv6 addresses beside those of IPv4")
	f.BoolVar(&c.Audit, "audit", false, "write an audit log with one line per request to logs/audit.log")
	f.StringVar(&c.Controllers, "controllers", "", "kube-controller-manager's --controllers, such as '*,-nodeipam'")
	f.StringArrayVar(&c.APIServerFlags, "apiserver-flag", nil, "a flag for kube-apiserver, such as --v=4 (repeatable)")
	f.BoolVar(&dieWithParent, "die-with-parent", false, "end when the process that started this one ends")
	return cmd
}

// dirFlag adds the flag that says which playground is meant.
func dirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", defaultDir(), "directory of the playground ($PLAYGROUND_DIR)")
}

func up(path string, c config, dieWithParent bool) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("making the directory's path absolute: %w", err)
	}
	dir := workdir(abs)
	if c, err = complete(dir, c); err != nil {
		return err
	}
	ctx, stop := stopSignals()
	defer stop()
	if dieWithParent {
		if ctx, err = untilParentEnds(ctx); err != nil {
			return err
		}
	}
	lock, err := claimDir(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	switch err := runPlayground(ctx, dir, c); {
	case errors.Is(err, context.Canceled):
		progress("stopped")
		return removeDir(dir)
	case err != nil:
		return errors.Join(err, empty(dir, "logs"))
	default:
		return errors.New("the playground ended by itself")
	}
}

// complete checks what can be checked before anything is started.
func complete(dir workdir, c config) (config, error) {
	if c.ControlPlaneOnly {
		c.Nodes = nil
		if len(c.Images) > 0 {
			return c, errors.New("--image needs nodes: leave it out, or --control-plane-only")
		}
		if c.ControlPlane != "" {
			path, err := exec.LookPath(c.ControlPlane)
			if err == nil {
				c.ControlPlane, err = filepath.Abs(path)
			}
			if err != nil {
				return c, fmt.Errorf("--control-plane: %w", err)
			}
		}
		return c, dir.checkSocketPaths(nil)
	}
	if c.ControlPlane != "" {
		return c, errors.New("--control-plane is for a cluster without nodes: add --control-plane-only")
	}
	if len(c.Nodes) == 0 {
		return c, errors.New("--nodes needs at least one name; without nodes, it is --control-plane-only")
	}
	for i, n := range c.Nodes {
		if err := validateNodeName(n); err != nil {
			return c, err
		}
		if slices.Contains(c.Nodes[:i], n) {
			return c, fmt.Errorf("--nodes has %s twice", n)
		}
	}
	if err := dir.checkSocketPaths(c.Nodes); err != nil {
		return c, err
	}
	exe, err := os.Executable()
	if err != nil {
		return c, fmt.Errorf("finding this binary: %w", err)
	}
	c.Binary = exe
	return c, preflight(systemProbes(libexec(exe)), len(c.Nodes)).err()
}

// stopSignals is a context that ends when the user wants the playground to end.
func stopSignals() (context.Context, context.CancelFunc) {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as it is under nohup
		signals = append(signals, syscall.SIGHUP)
	}
	return signal.NotifyContext(context.Background(), signals...)
}

// untilParentEnds is ctx until the parent process ends. PR_SET_PDEATHSIG would not do: it fires when the *thread* that
// started us ends, which in a Go program, such as a test, can be at any time.
func untilParentEnds(ctx context.Context) (context.Context, error) {
	parent := os.Getppid()
	fd, err := unix.PidfdOpen(parent, 0)
	if err != nil {
		return nil, fmt.Errorf("watching the parent process %d: %w", parent, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	if os.Getppid() != parent { // it ended before we looked, and the number may be somebody else's by now
		cancel()
	}
	return ctx, nil
}

// runPlayground writes what all playgrounds need and runs one until ctx ends or it fails.
func runPlayground(ctx context.Context, dir workdir, c config) error {
	a, err := newAuthority(dir)
	if err != nil {
		return err
	}
	if err := os.WriteFile(dir.path("audit-policy.yaml"), auditPolicy, 0o600); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	if err := writeResolverFiles(dir); err != nil {
		return err
	}
	run := runSandbox
	if c.ControlPlaneOnly {
		run = runControlPlane
	}
	return run(ctx, dir, c, func(port int) error {
		c.Port = port
		if err := dir.writeConfig(c); err != nil {
			return err
		}
		return a.newAdmin(fmt.Sprintf("https://127.0.0.1:%d", port))
	})
}
