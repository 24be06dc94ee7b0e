package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func nodeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Switch nodes of the running playground on and off"}
	var dir string
	stop := &cobra.Command{
		Use:   "stop NAME",
		Short: "Pull a node's plug: its pods and its disk are gone, its Node object stays",
		Args:  cobra.ExactArgs(1),
	}
	stop.RunE = func(cmd *cobra.Command, args []string) error {
		if err := callSandbox(cmd.Context(), dir, "DELETE", "/nodes/"+url.PathEscape(args[0])); err != nil {
			return err
		}
		progress("%s is stopped: Kubernetes notices in about %s", args[0], nodeMonitorGracePeriod)
		return nil
	}
	start := &cobra.Command{
		Use:   "start NAME",
		Short: "Start a node that was stopped, or a new one, and wait until it is ready",
		Args:  cobra.ExactArgs(1),
	}
	start.RunE = func(cmd *cobra.Command, args []string) error {
		began := time.Now()
		if err := callSandbox(cmd.Context(), dir, "POST", "/nodes/"+url.PathEscape(args[0])); err != nil {
			return err
		}
		progress("%s is ready after %s", args[0], since(began))
		return nil
	}
	for _, c := range []*cobra.Command{start, stop} {
		dirFlag(c, &dir)
		cmd.AddCommand(c)
	}
	return cmd
}

// runningPlayground returns the directory of a playground that has nodes.
func runningPlayground(path string) (workdir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("making the directory's path absolute: %w", err)
	}
	c, err := workdir(abs).readConfig()
	if err != nil {
		return "", err
	}
	if c.ControlPlaneOnly {
		return "", fmt.Errorf("the playground in %s has no nodes: it is --control-plane-only", abs)
	}
	return workdir(abs), nil
}

func callSandbox(ctx context.Context, path, method, request string) error {
	dir, err := runningPlayground(path)
	if err != nil {
		return err
	}
	err = call(ctx, dir.sandboxSocket(), method, request)
	if opErr := new(net.OpError); errors.As(err, &opErr) {
		return fmt.Errorf("the playground in %s is not ready or not running: %w", dir, err)
	}
	return err
}

func loadCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "load REF=BINARY|TARBALL",
		Short: "Import an image, from a tarball or of a static binary, in all nodes",
		Long: `Import an image in all nodes, which pull no images themselves.

A file that ends in .tar is an image as docker save or an OCI layout has it. Any other file must be a static binary: it
becomes the entrypoint, and the only file, of the image, and runs as user 65532. Pods need the same name and
imagePullPolicy: IfNotPresent.`,
		Example: `  playground load localhost/app:1=bin/app
  playground load registry.example.com/app:v1=app.oci.tar`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			image, err := parseImageSource(args[0])
			if err != nil {
				return err
			}
			return load(cmd.Context(), dir, image)
		},
	}
	dirFlag(cmd, &dir)
	return cmd
}

// load gives an image to the running nodes, and to those that start later.
func load(ctx context.Context, path string, image imageSource) error {
	dir, err := runningPlayground(path)
	if err != nil {
		return err
	}
	if err := image.write(dir); err != nil {
		return err
	}
	names, err := runningNodes(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		err := call(ctx, dir.nodeSocket(name), "POST", "/images/"+filepath.Base(image.file(dir)))
		if err != nil {
			errs = append(errs, fmt.Errorf("loading %s on %s: %w", image.Ref, name, err))
			continue
		}
		progress("loaded %s on %s", image.Ref, name)
	}
	return errors.Join(errs...)
}

// runningNodes are the names of the nodes that have a socket, sorted.
func runningNodes(dir workdir) ([]string, error) {
	sockets, err := filepath.Glob(dir.nodeSocket("*"))
	if err != nil {
		return nil, fmt.Errorf("looking for nodes: %w", err)
	}
	if len(sockets) == 0 {
		return nil, fmt.Errorf("no node is running in %s: start one with `playground node start NAME`", dir)
	}
	var names []string
	for _, s := range sockets {
		names = append(names, strings.TrimSuffix(filepath.Base(s), ".sock"))
	}
	slices.Sort(names)
	return names, nil
}
