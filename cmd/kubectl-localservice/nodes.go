package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/internal/words"
)

type nodesFlags struct {
	choice

	dnsService                      string
	dns, noHeaders, watch, problems bool
	exitCode                        bool
	output                          *genericclioptions.PrintFlags
}

const nodesHelp = `Show, for every node that a LocalService selects, its name, how many endpoints of the name are
ready, and if not all are well, why. Without NAME, show all LocalServices of the namespace. The reasons are:

%s
The table shows the cause of each and below it, once for all nodes with that cause, what to do. -o wide has all in one
line. -o json and -o yaml have the same as fields, which keep their names, and -o name has the Services.

With --dns, the cluster's DNS server is asked for every name, through a port-forward to the first ready pod of
--dns-service. Answers and Empty (no pod is ready) are right; Unknown is no address, OtherNode and OtherAddresses are
wrong ones, and NoAnswer is a failure. A name that has just changed may be answered with an outdated address.

With --watch, each line is printed again when it changes, at most once a second.`

// defaultDNSService names the Service of the cluster's DNS as kubeadm and most distributions do.
const defaultDNSService = "kube-system/kube-dns"

func (p *plugin) nodesCommand() *cobra.Command {
	flags := &nodesFlags{output: genericclioptions.NewPrintFlags("")}
	var reasons strings.Builder
	for _, r := range diagnose.Reasons {
		fmt.Fprintf(&reasons, "  %-18s %s\n", r.Reason, r.Means)
	}
	cmd := &cobra.Command{
		Use:   "nodes [NAME...]",
		Short: "Show every node's name, its endpoints, and why it has none",
		Long:  fmt.Sprintf(nodesHelp, reasons.String()),
		Example: `  # What answers on each node, and why nothing does
  kubectl localservice nodes demo

  # What is wrong in all namespaces
  kubectl localservice nodes -A --problems

  # The nodes where nothing answers
  kubectl localservice nodes demo -o jsonpath='{range .items[?(@.endpoints.ready==0)]}{.node}{"\n"}{end}'

  # Look at the Services themselves
  kubectl describe $(kubectl localservice nodes demo -o name)`,
	}
	flags.addTo(cmd, p, func(ctx context.Context) error { return p.nodes(ctx, flags) })
	flags.output.AddFlags(cmd)
	formats := append(flags.output.AllowedFormats(), "wide")
	cmd.Flag("output").Usage = "Output format. One of: (" + strings.Join(formats, ", ") + ")."
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flag("show-managed-fields").Hidden = true // There are none.
	cmd.Flags().BoolVar(&flags.problems, "problems", false, "Print only names with a problem.")
	cmd.Flags().BoolVar(&flags.noHeaders, "no-headers", false, "Print the table without its headers.")
	cmd.Flags().BoolVar(&flags.exitCode, "exit-code", false, "Exit with 1 if a LocalService is not Ready, or not all of "+
		"its names answer.")
	cmd.Flags().BoolVarP(&flags.watch, "watch", "w", false, "After printing the nodes, print those that change, until "+
		"Ctrl-C.")
	cmd.Flags().BoolVar(&flags.dns, "dns", false, "Ask the cluster's DNS server for every name, and show what it "+
		"answers.")
	cmd.Flags().StringVar(&flags.dnsService, "dns-service", defaultDNSService, "Service of the cluster's DNS "+
		"server, as namespace/name.")
	return cmd
}

func (p *plugin) nodes(ctx context.Context, flags *nodesFlags) error {
	switch {
	case (flags.dns || flags.exitCode) && flags.watch:
		return errors.New("a watch neither asks DNS nor ends by itself: leave out --watch, or --dns and --exit-code")
	case !flags.dns && flags.dnsService != defaultDNSService:
		return errors.New("--dns-service says whom to ask: set --dns, too")
	}
	printer, err := p.newNodesPrinter(flags)
	if err != nil {
		return err
	}
	o, err := p.objects(ctx, &flags.choice)
	if err != nil {
		return err
	}
	if flags.watch {
		return printer.watchNodes(ctx, o)
	}
	if err := o.read(ctx); err != nil {
		return err
	}
	p.warnOfNodes(o)
	lists := o.lists(ctx)
	err = printer.printOnce(ctx, o, lists)
	if resources := words.Printable(o.controller.Unguarded); resources != "" && printer.table != nil {
		fmt.Fprintf(p.ErrOut, "The guard does not protect %s: the controller's log says what to do.\n", resources)
	}
	if err == nil && flags.exitCode && slices.ContainsFunc(lists, func(list *diagnose.NodeList) bool {
		return list.Summary.Problem != "" || list.Summary.Answering < list.Summary.Nodes
	}) {
		return errNotAnswering
	}
	return err
}

// errNotAnswering is the error of --exit-code, about which nothing more is printed.
var errNotAnswering = errors.New("not all names answer")

// printOnce prints lists, with the answers of DNS if they are asked for. If it cannot be asked, that is an error, and
// the table has no column for it.
func (p *nodesPrinter) printOnce(ctx context.Context, o *objects, lists []*diagnose.NodeList) (err error) {
	if len(lists) == 0 && p.table != nil {
		fmt.Fprintln(p.ErrOut, o.none(ctx))
		return nil
	}
	var notAsked error
	if p.dns {
		notAsked = o.askDNS(ctx, lists, p.nodesFlags)
	}
	if len(lists) == 0 {
		return p.print(nil) // An empty List.
	}
	if err := p.printChanges(lists); err != nil || p.table == nil {
		return errors.Join(notAsked, err)
	}
	hasProblem := func(list *diagnose.NodeList) bool { return len(diagnose.Changes(nil, list, true)) > 0 }
	if p.problems && !slices.ContainsFunc(lists, hasProblem) {
		fmt.Fprintln(p.ErrOut, "No name has a problem.")
	}
	return notAsked
}

// watchNodes prints all nodes of LocalServices, and then those that change.
func (p *nodesPrinter) watchNodes(ctx context.Context, o *objects) (failure error) {
	ctx, cancel := untilInterrupted(ctx)
	defer cancel()
	if err := o.check(ctx); err != nil {
		return err
	}
	p.warnOfNodes(o)
	var problems []string // that are printed
	o.follow(ctx, func(s snapshot) {
		if !slices.Equal(s.Problems, problems) {
			problems = s.Problems
			message := "The watch continues."
			if len(problems) > 0 {
				message = "warning: " + strings.Join(problems, "; ")
			}
			fmt.Fprintln(p.ErrOut, words.Printable(message))
		}
		if !s.Loaded {
			return
		}
		if failure = p.printChanges(append(s.lists, p.gone(s.lists)...)); failure != nil {
			cancel() // The reader is gone.
		}
	})
	return failure
}

// gone returns lists without names for the LocalServices that have been printed and are gone.
func (p *nodesPrinter) gone(lists []*diagnose.NodeList) (gone []*diagnose.NodeList) {
	for key, before := range p.before {
		isThere := func(list *diagnose.NodeList) bool { return list.Key() == key }
		if len(before.Items) > 0 && !slices.ContainsFunc(lists, isThere) {
			fmt.Fprintf(p.ErrOut, "LocalService %s is gone.\n", key)
			list := *before
			list.Items, list.Message, list.Controller = nil, "", ""
			gone = append(gone, &list)
		}
	}
	return gone
}
