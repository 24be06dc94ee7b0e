// kubectl-localservice is a kubectl plugin that shows, for every node of a LocalService, what answers there and, if
// nothing does, why. All commands but create only read.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // for kubeconfigs with an auth-provider
	"k8s.io/component-base/version"
	"k8s.io/kubectl/pkg/kuberc"

	"github.com/localservice-dev/local-service-controller/internal/words"
)

func main() {
	f := newFactory(genericiooptions.IOStreams{Out: os.Stdout, ErrOut: os.Stderr})
	os.Exit(run(f, os.Args[1:]))
}

// run executes a command line, and returns the exit code: 0 or, like kubectl, 1.
func run(f *factory, args []string) int {
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
			_, err := kuberc.NewPreferences().Apply(cmd.Root(), f.config, []string{kubectlCommand, "localservice"}, f.ErrOut)
			return err
		},
	}
	root.SetArgs(args)
	root.SetOut(f.Out)
	root.SetErr(f.ErrOut)
	f.config.AddFlags(root.PersistentFlags())
	root.AddCommand(newNodesCommand(f), newViewCommand(f), newURLCommand(f), newCreateCommand(f))
	cobra.CheckErr(root.RegisterFlagCompletionFunc("namespace", f.completion(completeNamespace)))
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	if !errors.Is(err, errNotAnswering) {
		message := explainError(err).Error()
		if _, isRemote := errors.AsType[*apierrors.StatusError](err); isRemote {
			message = words.Printable(message) // A webhook may have written it.
		}
		fmt.Fprintf(f.ErrOut, "error: %s\n", message)
		if !isRunning { // The flags or arguments are wrong.
			fmt.Fprintf(f.ErrOut, "Usage: %s\nSee '%s -h' for help and examples\n", cmd.UseLine(), cmd.CommandPath())
		}
	}
	return 1
}
