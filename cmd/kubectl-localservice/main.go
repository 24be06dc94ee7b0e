// kubectl-localservice is a kubectl plugin that tells, for every node of a LocalService, what answers there and if
// nothing does, why. It only reads.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second signal ends the program at once.
	p := newPlugin(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	os.Exit(p.run(ctx, os.Args[1:]))
}

// plugin is what the commands share: flags, and where to print.
type plugin struct {
	genericiooptions.IOStreams
	config *genericclioptions.ConfigFlags
	// connect makes the clients. Tests replace it.
	connect func() (*cluster, error)
}

func newPlugin(streams genericiooptions.IOStreams) *plugin {
	p := &plugin{IOStreams: streams, config: genericclioptions.NewConfigFlags(true)}
	p.connect = p.newCluster
	return p
}

// run executes a command line, and returns the exit code: 0 or, as of kubectl, 1.
func (p *plugin) run(ctx context.Context, args []string) int {
	root := p.command()
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(p.ErrOut, "error: %v\n", err)
		return 1
	}
	return 0
}

func (p *plugin) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-localservice",
		Short: "Look into LocalServices, node by node",
		Long: "A LocalService gives every node a Service of its own. This plugin tells what answers on each node " +
			"and, if nothing does, why.",
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl localservice"},
		SilenceErrors:     true, // run prints them.
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // kubectl has its own way: see completion.
	}
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.ErrOut)
	root.SetFlagErrorFunc(usageError)
	p.config.AddFlags(root.PersistentFlags())
	logFlags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(logFlags)
	root.PersistentFlags().AddGoFlag(logFlags.Lookup("v"))
	root.AddCommand(p.nodesCommand(), p.urlCommand(), p.completionCommand(), p.versionCommand())
	p.completeConfigFlags(root)
	return root
}

func (p *plugin) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Print the version of the plugin",
		Args:              arguments(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			info := version.Get()
			_, err := fmt.Fprintf(p.Out, "kubectl-localservice %s (%s, %s)\n",
				programVersion(info.GitVersion), info.GoVersion, info.Platform)
			return err
		},
	}
}

// programVersion is the version that was set at build time or, for `go install`, that of the module.
func programVersion(gitVersion string) string {
	if info, ok := debug.ReadBuildInfo(); ok && strings.Contains(gitVersion, "$Format") && info.Main.Version != "" {
		return info.Main.Version
	}
	return gitVersion
}

// arguments checks that a command gets exactly these arguments.
func arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usageError(cmd, fmt.Errorf("%s is missing", strings.Join(names[len(args):], " and ")))
		case len(args) > len(names):
			return usageError(cmd, fmt.Errorf("unexpected arguments: %s", strings.Join(args[len(names):], " ")))
		}
		return nil
	}
}

func usageError(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w\nSee '%s -h' for help and examples", err, cmd.CommandPath())
}

// localServiceName is the name in an argument, which may begin with the resource: lsvc/NAME.
func localServiceName(arg string) (string, error) {
	name, err := resourceName(arg, v1alpha1.Kind, "lsvc", "localservice", "localservices",
		"localservice.localservice.dev", "localservices.localservice.dev")
	if err != nil {
		return "", err
	}
	if len(name) > naming.MaxLocalServiceLength || strings.ContainsAny(name, "./ ") {
		return "", fmt.Errorf("%q cannot be the name of a LocalService", name)
	}
	return name, nil
}

func nodeName(arg string) (string, error) {
	return resourceName(arg, "Node", "no", "node", "nodes")
}

func resourceName(arg, kind string, resources ...string) (string, error) {
	resource, name, found := strings.Cut(arg, "/")
	if !found {
		name = arg
	} else if !slices.Contains(resources, strings.ToLower(resource)) {
		return "", fmt.Errorf("%q is not a %s: give its name, or %s/NAME", arg, kind, resources[0])
	}
	if name == "" {
		return "", fmt.Errorf("the name of a %s is empty", kind)
	}
	return name, nil
}
