package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's login plug-ins
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
)

const kubectlApplet = "kubectl"

// kubectlCommand shows `playground kubectl` in the help. It never runs: main hands the command line over before cobra
// sees it, as every flag after "kubectl" is kubectl's.
func kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl ARGS...",
		Short: "kubectl for the running playground (or for $KUBECONFIG, if set)",
		Run:   func(*cobra.Command, []string) {},
	}
}

// runKubectl is kubectl's own main function, after pointing it at the playground.
func runKubectl(args []string) int {
	pointKubectl(args)
	// kubectl looks for its plug-ins while the command is built, before flags are parsed.
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints it and exits
	}
	return 0
}

// pointKubectl makes kubectl use the playground unless its flags or environment name another cluster.
func pointKubectl(args []string) {
	own := func(arg string) bool { return arg == "--kubeconfig" || strings.HasPrefix(arg, "--kubeconfig=") }
	if os.Getenv("KUBECONFIG") != "" || slices.ContainsFunc(args, own) {
		return
	}
	dir := workdir(defaultDir())
	os.Setenv("KUBECONFIG", dir.path("kubeconfig"))
	if _, err := os.Stat(dir.path("kubeconfig")); err != nil {
		fmt.Fprintf(os.Stderr, "playground: no playground is running in %s: start one with `playground up`\n", dir)
		return
	}
	// What kubectl caches about this API server is of no use to the next one: it goes when the playground goes.
	if os.Getenv("KUBECACHEDIR") == "" {
		os.Setenv("KUBECACHEDIR", dir.path(kubectlCache))
	}
}
