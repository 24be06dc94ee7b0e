package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// choice holds which LocalServices nodes and view show: one, some, all of the namespace, or all.
type choice struct {
	name, clusterDomain, selector string // name is "" unless there is one
	names                         []string
	allNamespaces                 bool
}

// addTo makes a command take the choice from its arguments and flags.
func (c *choice) addTo(cmd *cobra.Command, p *plugin, run func(context.Context) error) {
	cmd.ValidArgsFunction = p.complete(names)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, arg := range args {
			c.names = append(c.names, argName(arg))
		}
		if len(args) == 1 {
			c.name = c.names[0]
		}
		return run(cmd.Context())
	}
	cmd.Flags().StringVarP(&c.selector, "selector", "l", "", "Show the LocalServices with these labels.")
	cmd.Flags().StringVar(&c.clusterDomain, "cluster-domain", "cluster.local", "Domain of the cluster's DNS.")
	cmd.Flags().BoolVarP(&c.allNamespaces, "all-namespaces", "A", false, "Show the LocalServices of all namespaces.")
}

// objects returns the sources of what is chosen.
func (p *plugin) objects(ctx context.Context, chosen *choice) (*objects, error) {
	c, err := p.connect()
	selector, selectorErr := labels.Parse(chosen.selector)
	var one *v1alpha1.LocalService
	switch {
	case selectorErr != nil:
		return nil, fmt.Errorf("--selector %q: %w", chosen.selector, selectorErr)
	case err != nil:
		return nil, err
	case len(chosen.names) > 0 && (chosen.allNamespaces || chosen.selector != ""):
		return nil, errors.New("a name is one of a namespace, whatever its labels are: leave out either the name, or " +
			"-A and -l")
	case chosen.allNamespaces:
		c.namespace = metav1.NamespaceAll
	}
	for _, name := range chosen.names {
		if one, err = c.localService(ctx, name); err != nil {
			return nil, err
		}
	}
	if chosen.name == "" {
		one = nil
	}
	o := c.newObjects(one, chosen.clusterDomain)
	o.chosen = func(ls *v1alpha1.LocalService) bool {
		return (len(chosen.names) == 0 || slices.Contains(chosen.names, ls.Name)) && selector.Matches(labels.Set(ls.Labels))
	}
	return o, nil
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
