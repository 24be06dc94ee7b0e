package main

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// completionTimeout bounds how long a shell waits after the Tab key.
const completionTimeout = 5 * time.Second

// completionScript is what kubectl runs to complete the arguments of this plugin.
//
//go:embed kubectl_complete-localservice
var completionScript string

func (p *plugin) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion",
		Short: "Print the script that lets kubectl complete this plugin's arguments",
		Long: `Print the script that lets kubectl complete this plugin's arguments. It works in every shell in which
kubectl's own completion works, and must be an executable file named kubectl_complete-localservice in a directory of
$PATH.`,
		Example: `  # Install it beside the plugin
  kubectl localservice completion > ~/.local/bin/kubectl_complete-localservice
  chmod +x ~/.local/bin/kubectl_complete-localservice`,
		Args:              exactArgs(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(p.Out, completionScript)
			return err
		},
	}
}

// choices are what an argument may be, given those before it.
type choices func(ctx context.Context, c *cluster, args []string) ([]string, error)

// complete asks the cluster for the choices at the cursor, which the shell narrows down to those with the prefix. There
// are none if it fails: a Tab key is no place for errors, but for those who look for them.
func (p *plugin) complete(choicesOfArgs ...choices) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(choicesOfArgs) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		c, err := p.connect()
		var names []string
		if err == nil {
			names, err = choicesOfArgs[len(args)](ctx, c, args)
		}
		if err != nil {
			cobra.CompDebugln(err.Error(), true)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func localServiceNames(ctx context.Context, c *cluster, _ []string) ([]string, error) {
	all, err := list[v1alpha1.LocalService](ctx, nil,
		c.localServices.LocalserviceV1alpha1().LocalServices(c.namespace).List)
	var names []string
	for _, ls := range all {
		names = append(names, ls.Name)
	}
	return names, err
}

// nodesWithName are the nodes, or with groupBy their groups.
func nodesWithName(ctx context.Context, c *cluster, args []string) (nodes []string, err error) {
	ls, err := c.localService(ctx, nameOf(args[0]))
	if err != nil {
		return nil, err
	}
	if ls.Spec.Mode == v1alpha1.ModeHostnames {
		names, err := c.names(ctx, ls, "")
		for i := range names {
			if names[i].HasService() {
				nodes = append(nodes, names[i].Node)
			}
		}
		return nodes, err
	}
	services, err := list[corev1.Service](ctx, labels.Set{v1alpha1.OwnerLabelKey: ls.Name},
		c.kube.CoreV1().Services(c.namespace).List)
	known := diagnose.KnownNodes(diagnose.Input{LocalService: ls, Services: services})
	return slices.Sorted(maps.Keys(known)), err
}
