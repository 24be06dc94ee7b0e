// kubectl-localservice is a kubectl plugin that shows, for every node of a LocalService, what answers there and, if
// nothing does, why. All commands but create only read.
package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // for kubeconfigs with an auth-provider
	"k8s.io/component-base/version"
	"k8s.io/kubectl/pkg/kuberc"

	"github.com/localservice-dev/local-service-controller/internal/words"
)

func main() {
	p := newPlugin(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	os.Exit(p.run(os.Args[1:]))
}

// plugin holds what the commands share: flags, and where to print.
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

// run executes a command line, and returns the exit code: 0 or, like kubectl, 1.
func (p *plugin) run(args []string) int {
	isRunning := false
	root := &cobra.Command{
		Use:   "kubectl-localservice",
		Short: "Look into LocalServices, node by node",
		Long: "A LocalService gives every node, or group of nodes, a name of its own. This plugin shows what answers " +
			"on each and, if nothing does, why. All commands but create only read.",
		Version:     version.Get().GitVersion,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl localservice"},
		// kubectl completes its plugins, by a script in the archive.
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		SilenceErrors:     true, // They are printed below.
		SilenceUsage:      true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			isRunning = true
			// The user's kuberc says which credential plugins may run. Its defaults are for kubectl's own commands.
			_, err := kuberc.NewPreferences().Apply(cmd.Root(), p.config, []string{kubectlCommand, "localservice"}, p.ErrOut)
			return err
		},
	}
	root.SetArgs(args)
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.ErrOut)
	p.config.AddFlags(root.PersistentFlags())
	root.AddCommand(p.nodesCommand(), p.viewCommand(), p.urlCommand(), p.createCommand())
	cobra.CheckErr(root.RegisterFlagCompletionFunc("namespace", p.complete(namespaces)))
	cmd, err := root.ExecuteC()
	if err != nil && !errors.Is(err, errNotAnswering) {
		message := explained(err).Error()
		if _, isRemote := errors.AsType[*apierrors.StatusError](err); isRemote {
			message = words.Printable(message) // A webhook may have written it.
		}
		fmt.Fprintf(p.ErrOut, "error: %s\n", message)
		if !isRunning { // The flags or arguments are wrong.
			fmt.Fprintf(p.ErrOut, "Usage: %s\nSee '%s -h' for help and examples\n", cmd.UseLine(), cmd.CommandPath())
		}
	}
	if err != nil {
		return 1
	}
	return 0
}

// argName returns the name in an argument, which may have the form that -o name prints: lsvc/demo.
func argName(arg string) string { return arg[strings.LastIndexByte(arg, '/')+1:] }

// explained says what to do about an error that any request may return.
func explained(err error) error {
	_, unreachable := errors.AsType[*url.Error](err)
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("ask for the permission: %w", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server does not accept your credentials: log in again, or check `kubectl config "+
			"view --minify`: %w", err)
	case unreachable:
		return fmt.Errorf("the cluster cannot be reached: check that it runs, and that $KUBECONFIG or --kubeconfig "+
			"names a file with its address: %w", err)
	}
	return err
}
