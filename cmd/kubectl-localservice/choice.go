package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// choice holds which LocalServices nodes and view show: one, some, all of the namespace, or all.
type choice struct {
	name, clusterDomain, selector string // name is "" unless there is one
	names                         []string
	allNamespaces                 bool
	labels                        labels.Selector // what selector says
}

func (c *choice) has(ls *v1alpha1.LocalService) bool {
	return (len(c.names) == 0 || slices.Contains(c.names, ls.Name)) && c.labels.Matches(labels.Set(ls.Labels))
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
	if err != nil {
		return nil, err
	}
	var one *v1alpha1.LocalService
	switch chosen.labels, err = labels.Parse(chosen.selector); {
	case err != nil:
		return nil, fmt.Errorf("--selector %q: %w", chosen.selector, err)
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
	return c.newObjects(one, chosen), nil
}

// none says that there is no LocalService of those that are chosen.
func (o *objects) none(ctx context.Context) string {
	which, where := strings.Join(o.names, " or "), "namespace "+o.namespace
	if o.namespace == metav1.NamespaceAll {
		where = "any namespace"
	}
	if o.selector != "" {
		which = "with labels " + o.selector
	}
	left := keep(o, "", func() string { return o.orphans(ctx, "") })
	return words.Join(" ", "There is no LocalService", which, "in "+where+".", left)
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
