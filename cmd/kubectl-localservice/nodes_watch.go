package main

import (
	"context"
	"fmt"
	"os/signal"
	"slices"
	"syscall"

	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// untilInterrupted ends a watch with Ctrl-C, and silences client-go: a lost watch is reported as a problem.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	klog.SetLogger(klog.Logger{})
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
}

// watchNodes prints all nodes of a LocalService, and then those that change.
func (p *plugin) watchNodes(ctx context.Context, c *cluster, ls *v1alpha1.LocalService, clusterDomain string,
	printer *nodesPrinter) error {
	ctx, cancel := untilInterrupted(ctx)
	defer cancel()
	w := c.newWatcher(ls.Name, clusterDomain)
	if err := w.check(ctx); err != nil {
		return err
	}
	if !w.allNodes {
		p.warnOfNodes(ls)
	}
	var failure error // The error of printing: the reader is gone.
	var before *diagnose.NodeList
	problems := p.problemPrinter()
	w.run(ctx, func(n news) {
		problems(n.problems)
		for key, list := range n.lists {
			if list == nil {
				fmt.Fprintf(p.ErrOut, "LocalService %s is gone.\n", key)
				list = ptr.To(ptr.Deref(before, diagnose.NodeList{}))
				list.Items = nil
			}
			var err error
			if before, err = list, printer.printChanges(before, list); err != nil {
				failure = err
				cancel()
			}
		}
	})
	return failure
}

// printChanges prints the items of a list that have changed since before; all of them if before is nil.
func (p *nodesPrinter) printChanges(before, now *diagnose.NodeList) error {
	changed := *now
	changed.Items = diagnose.Changes(before, now)
	switch {
	case before == nil, len(changed.Items) > 0:
		return p.print(&changed)
	case p.table:
		p.printLine(&p.message, now.Message)
	}
	return nil
}

// problemPrinter returns a function that prints new problems, and prints when the earlier ones are over.
func (p *plugin) problemPrinter() func([]string) {
	var printed []string
	return func(problems []string) {
		for _, problem := range problems {
			if !slices.Contains(printed, problem) {
				fmt.Fprintln(p.ErrOut, "warning: "+problem)
			}
		}
		if len(printed) > 0 && len(problems) == 0 {
			fmt.Fprintln(p.ErrOut, "The watch continues.")
		}
		printed = problems
	}
}
