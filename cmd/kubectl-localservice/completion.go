package main

import (
	"context"
	_ "embed"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/metadata"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/localservice-dev/local-service-controller/internal/plan"
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
kubectl's own completion works, and must be an executable file named kubectl_complete-localservice in a directory of $PATH.`,
		Example: `  # Install it beside the plugin
  kubectl localservice completion > ~/.local/bin/kubectl_complete-localservice
  chmod +x ~/.local/bin/kubectl_complete-localservice`,
		Args:              arguments(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(p.Out, completionScript)
			return err
		},
	}
}

func (p *plugin) completeLocalService(cmd *cobra.Command, args []string, prefix string) ([]string,
	cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.complete(cmd, prefix, func(ctx context.Context, c *cluster) ([]string, error) {
		return names(ctx, c.metadata.Resource(localServicesResource).Namespace(c.namespace))
	})
}

func (p *plugin) completeURL(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return p.completeLocalService(cmd, args, prefix)
	}
	return p.complete(cmd, prefix, func(ctx context.Context, c *cluster) ([]string, error) {
		ls, err := c.localServiceOf(ctx, args)
		if err != nil {
			return nil, err
		}
		nodes, err := c.nodes(ctx, ls, 0)
		var selected []string
		for _, node := range nodes {
			if plan.Selects(ls, labels.Set(node.Labels)) {
				selected = append(selected, node.Name)
			}
		}
		return selected, err
	})
}

func (p *plugin) completePort(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.complete(cmd, prefix, func(ctx context.Context, c *cluster) ([]string, error) {
		ls, err := c.localServiceOf(ctx, args)
		if err != nil {
			return nil, err
		}
		var ports []string
		for i := range ls.Spec.Ports {
			if name := ls.Spec.Ports[i].Name; name != "" {
				ports = append(ports, name)
			}
		}
		return ports, nil
	})
}

func (c *cluster) localServiceOf(ctx context.Context, args []string) (*v1alpha1.LocalService, error) {
	name, err := localServiceName(args[0])
	if err != nil {
		return nil, err
	}
	return c.localService(ctx, name)
}

// completeConfigFlags completes what chooses a cluster: namespaces from the API server, the rest from the kubeconfig.
func (p *plugin) completeConfigFlags(cmd *cobra.Command) {
	must(cmd.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, prefix string) ([]string,
		cobra.ShellCompDirective) {
		return p.complete(cmd, prefix, func(ctx context.Context, c *cluster) ([]string, error) {
			return names(ctx, c.metadata.Resource(namespacesResource))
		})
	}))
	for flag, choices := range map[string]func(*clientcmdapi.Config) []string{
		"context": func(c *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.Contexts)) },
		"cluster": func(c *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.Clusters)) },
		"user":    func(c *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.AuthInfos)) },
	} {
		must(cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, prefix string) ([]string,
			cobra.ShellCompDirective) {
			config, err := p.config.ToRawKubeConfigLoader().ConfigAccess().GetStartingConfig()
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return withPrefix(choices(config), prefix), cobra.ShellCompDirectiveNoFileComp
		}))
	}
}

// complete asks the cluster for the choices at the cursor. There are none if it fails: a Tab key is no place for
// errors, but for those who look for them.
func (p *plugin) complete(cmd *cobra.Command, prefix string,
	ask func(context.Context, *cluster) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	c, err := p.connect()
	if err != nil {
		cobra.CompDebugln(err.Error(), true)
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	choices, err := ask(ctx, c)
	if err != nil {
		cobra.CompDebugln(err.Error(), true)
	}
	return withPrefix(choices, prefix), cobra.ShellCompDirectiveNoFileComp
}

func names(ctx context.Context, resource metadata.ResourceInterface) ([]string, error) {
	list, err := resource.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

func withPrefix(choices []string, prefix string) []string {
	return slices.DeleteFunc(choices, func(s string) bool { return !strings.HasPrefix(s, prefix) })
}

// must panics on an error that only a mistake in this program can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
