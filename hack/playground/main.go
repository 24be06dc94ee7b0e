// playground is a real Kubernetes cluster on one Linux machine: every component in one binary, and the commands that
// run them as nodes in namespaces. See README.md.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/version"
)

func init() {
	// The main goroutine stays on the main thread, so that what is set per thread (see enterClusterDNS) is set on a
	// thread that lives as long as the process.
	runtime.LockOSThread()
}

func main() {
	// This binary is called by the name of a component (a link to it, or argv[0] as set by the playground itself), or
	// as "playground COMPONENT".
	name := filepath.Base(os.Args[0])
	if _, ok := components[name]; !ok && len(os.Args) > 1 {
		if _, ok := components[os.Args[1]]; ok {
			name, os.Args = os.Args[1], os.Args[1:]
		}
	}
	if run, ok := components[name]; ok {
		os.Exit(run(os.Args))
	}
	os.Exit(playground(os.Args[1:]))
}

// playground runs the command line interface and returns the exit code.
func playground(args []string) int {
	// The components have put flags of theirs into the set that cobra adds to every command.
	pflag.CommandLine = pflag.NewFlagSet("playground", pflag.ContinueOnError)
	root := &cobra.Command{
		Use:           "playground",
		Short:         "A real Kubernetes cluster on this machine, without Docker",
		Version:       version.Get().GitVersion,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(upCommand(), kubectlCommand(), runCommand(), loadCommand(), nodeCommand(), preflightCommand())
	root.SetArgs(args)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		return 1
	}
	return 0
}

// cobraComponent adapts the command of a Kubernetes component.
func cobraComponent(command func() *cobra.Command) func([]string) int {
	return func([]string) int { return cli.Run(command()) }
}
