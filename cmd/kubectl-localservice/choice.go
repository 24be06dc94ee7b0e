package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// choice holds which LocalServices nodes and view show: one, all of the namespace, or all.
type choice struct {
	name, clusterDomain string
	allNamespaces       bool
}

// addTo makes a command take the choice from its arguments and flags.
func (c *choice) addTo(cmd *cobra.Command, p *plugin, run func(context.Context) error) {
	cmd.Args, cmd.ValidArgsFunction = cobra.MaximumNArgs(1), p.completeName
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			c.name = argName(args[0])
		}
		return run(cmd.Context())
	}
	cmd.Flags().StringVar(&c.clusterDomain, "cluster-domain", "cluster.local", "Domain of the cluster's DNS.")
	cmd.Flags().BoolVarP(&c.allNamespaces, "all-namespaces", "A", false, "Show the LocalServices of all namespaces.")
}

// objects returns the sources of what is chosen.
func (p *plugin) objects(ctx context.Context, chosen *choice) (*objects, error) {
	c, err := p.connect()
	var one *v1alpha1.LocalService
	switch {
	case err != nil:
		return nil, err
	case chosen.allNamespaces && chosen.name != "":
		return nil, errors.New("a name is one of a namespace: leave out either the name or -A")
	case chosen.allNamespaces:
		c.namespace = metav1.NamespaceAll
	case chosen.name != "":
		if one, err = c.localService(ctx, chosen.name); err != nil {
			return nil, err
		}
	}
	return c.newObjects(one, chosen.clusterDomain), nil
}

// warnOfNodes says what somebody does not see who may not list nodes.
func (p *plugin) warnOfNodes(o *objects) {
	if !o.allNodes {
		fmt.Fprintln(p.ErrOut, "warning: you may not list nodes, so that some may be missing here")
	}
}

// untilInterrupted ends a watch with Ctrl-C, and silences client-go: a lost watch is reported as a problem.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	klog.SetLogger(klog.Logger{})
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
}

// completeName completes the first argument, the name of a LocalService. If that fails, there is none: the Tab key is
// no place for errors, except in cobra's debug log.
func (p *plugin) completeName(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	c, err := p.connect()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, err := c.localServices.LocalserviceV1alpha1().LocalServices(c.namespace).List(cmd.Context(),
		metav1.ListOptions{})
	if err != nil {
		cobra.CompDebugln(err.Error(), true)
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for i := range all.Items {
		names = append(names, all.Items[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
