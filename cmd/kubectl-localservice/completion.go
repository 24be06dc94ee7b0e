package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// completionTimeout bounds how long a shell waits after the Tab key.
const completionTimeout = 5 * time.Second

// choices returns what an argument may be, given those before it.
type choices func(ctx context.Context, c *cluster, args []string) ([]string, error)

// complete asks the cluster for the choices at the cursor, which the shell narrows down by prefix. If that fails, there
// are none: the Tab key is no place for errors, except in cobra's debug log.
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

func localServiceNames(ctx context.Context, c *cluster, _ []string) (names []string, err error) {
	all, err := c.localServices.LocalserviceV1alpha1().LocalServices(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range all.Items {
		names = append(names, all.Items[i].Name)
	}
	return names, nil
}

// nodesWithName returns the nodes that have a name, or with groupBy their groups.
func nodesWithName(ctx context.Context, c *cluster, args []string) (nodes []string, err error) {
	ls, err := c.localService(ctx, argName(args[0]))
	if err != nil {
		return nil, err
	}
	_, list, err := c.namesOf(ctx, ls)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].HasService {
			nodes = append(nodes, list.Items[i].Node)
		}
	}
	return nodes, nil
}
