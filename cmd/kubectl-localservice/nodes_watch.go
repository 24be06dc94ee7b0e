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
)

// untilInterrupted ends a watch with Ctrl-C, and silences client-go: a lost watch is reported as a problem.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	klog.SetLogger(klog.Logger{})
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
}

// watchNodes prints all nodes of LocalServices, and then those that change.
func (p *plugin) watchNodes(ctx context.Context, c *cluster, name string, flags *nodesFlags,
	printer *nodesPrinter) error {
	ctx, cancel := untilInterrupted(ctx)
	defer cancel()
	w := c.newWatcher(name, flags.clusterDomain)
	if err := w.check(ctx); err != nil {
		return err
	}
	if !w.allNodes {
		p.warnOfNodes()
	}
	var failure error // The error of printing: the reader is gone.
	before := map[string]*diagnose.NodeList{}
	problems := p.problemPrinter()
	w.run(ctx, func(n news) {
		problems(n.problems)
		var now []*diagnose.NodeList
		for key, list := range n.lists {
			if list == nil {
				fmt.Fprintf(p.ErrOut, "LocalService %s is gone.\n", key)
				list = ptr.To(ptr.Deref(before[key.String()], diagnose.NodeList{}))
				list.Items = nil
			}
			now = append(now, list)
		}
		if !n.loaded {
			return
		}
		if failure = printer.printChanges(before, sorted(now)); failure != nil {
			cancel()
		}
		for key, list := range n.lists {
			if list == nil {
				delete(before, key.String())
			}
		}
	})
	return failure
}

func keyOf(list *diagnose.NodeList) string { return list.Namespace + "/" + list.LocalService }

// printChanges prints the items of lists that have changed since before, which it updates; all items of a list that
// was not there.
func (p *nodesPrinter) printChanges(before map[string]*diagnose.NodeList, now []*diagnose.NodeList) error {
	var changed, same []*diagnose.NodeList
	for _, list := range now {
		was, copied := before[keyOf(list)], *list
		copied.Items = diagnose.Changes(was, list)
		if p.problems {
			copied.Items = withProblems(was, copied.Items)
		}
		before[keyOf(list)] = list
		if was == nil || len(copied.Items) > 0 {
			changed = append(changed, &copied)
		} else {
			same = append(same, list)
		}
	}
	if p.table {
		p.printMessages(same)
	}
	if len(changed) == 0 {
		return nil
	}
	return p.print(changed)
}

// withProblems keeps the items with a problem, and those that had one.
func withProblems(before *diagnose.NodeList, items []diagnose.Node) []diagnose.Node {
	had := map[string]bool{}
	for i := range ptr.Deref(before, diagnose.NodeList{}).Items {
		if n := &before.Items[i]; hasProblem(n) {
			had[n.Node+" "+n.Hostname] = true
		}
	}
	kept := []diagnose.Node{} // [] in JSON, not null
	for i := range items {
		if n := &items[i]; hasProblem(n) || had[n.Node+" "+n.Hostname] {
			kept = append(kept, *n)
		}
	}
	return kept
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
