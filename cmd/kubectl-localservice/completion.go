package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// complete returns a function for the Tab key. If find fails, there is nothing to choose from: the Tab key is no place
// for errors, except in cobra's debug log.
func (p *plugin) complete(find func(ctx context.Context, c *cluster, args []string) ([]string,
	error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (choices []string, _ cobra.ShellCompDirective) {
		c, err := p.connect()
		if err == nil {
			choices, err = find(cmd.Context(), c, args)
		}
		if err != nil {
			cobra.CompDebugln(err.Error(), true)
		}
		return choices, cobra.ShellCompDirectiveNoFileComp
	}
}

// names returns the names of the LocalServices that are not among the arguments yet.
func names(ctx context.Context, c *cluster, args []string) (names []string, err error) {
	all, err := c.localServices.LocalserviceV1alpha1().LocalServices(c.namespace).List(ctx, metav1.ListOptions{})
	for i := 0; err == nil && i < len(all.Items); i++ {
		if !slices.Contains(args, all.Items[i].Name) {
			names = append(names, all.Items[i].Name)
		}
	}
	return names, err
}

// nameAndNode returns the names of the LocalServices or, after one, the nodes or groups that have a Service.
func nameAndNode(ctx context.Context, c *cluster, args []string) (nodes []string, err error) {
	if len(args) != 1 {
		return names(ctx, c, args)
	}
	ls, err := c.localService(ctx, argName(args[0]))
	if err != nil {
		return nil, err
	}
	o := c.newObjects(ls, &choice{})
	o.withPods = false
	err = o.read(ctx)
	for _, n := range o.list(ctx, ls, o.input(ls.Namespace)).Items {
		if n.HasService {
			nodes = append(nodes, n.Node)
		}
	}
	return nodes, err
}

func namespaces(ctx context.Context, c *cluster, _ []string) (names []string, err error) {
	all, err := c.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	for i := 0; err == nil && i < len(all.Items); i++ {
		names = append(names, all.Items[i].Name)
	}
	return names, err
}
