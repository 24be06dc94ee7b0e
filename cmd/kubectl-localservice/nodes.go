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

type nodesOptions struct {
	*factory
	choice

	dnsService                                string
	dns, noHeaders, watch, problems, exitCode bool
	output                                    *genericclioptions.PrintFlags
}

const nodesHelp = `Show, for every node that a LocalService selects, its name, how many endpoints of the name are
ready, and if not all are well, why. Without NAME, show all LocalServices of the namespace. The reasons are:

%s
The table shows the cause of each and below it, once for all nodes with that cause, what to do. -o wide has all in one
line, -o json and -o yaml have the same as fields, and -o name has the Services.

With --dns, Answers and Empty (no pod is ready) are right; Unknown is no address, OtherNode and OtherAddresses are wrong
ones, and NoAnswer is a failure. A name that has just changed may be answered with an outdated address.`

// defaultDNSService names the Service of the cluster's DNS as kubeadm and most distributions do.
const defaultDNSService = "kube-system/kube-dns"

func newNodesCommand(f *factory) *cobra.Command {
	o := &nodesOptions{factory: f, output: genericclioptions.NewPrintFlags("")}
	var reasons strings.Builder
	for _, r := range diagnose.Reasons {
		fmt.Fprintf(&reasons, "  %-18s %s\n", r.Reason, r.Means)
	}
	cmd := &cobra.Command{
		Use:   "nodes [NAME...]",
		Short: "Show every node's name, its endpoints, and why it has none",
		Long:  fmt.Sprintf(nodesHelp, reasons.String()),
		Example: `  # What is wrong in all namespaces
  kubectl localservice nodes -A --problems

  # The nodes where nothing answers
  kubectl localservice nodes demo -o jsonpath='{range .items[?(@.endpoints.ready==0)]}{.node}{"\n"}{end}'

  # Look at the Services themselves
  kubectl describe $(kubectl localservice nodes demo -o name)`,
		ValidArgsFunction: f.completion(completeName),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.complete(args)
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.addFlags(cmd)
	o.output.AddFlags(cmd)
	formats := append(o.output.AllowedFormats(), "wide")
	cmd.Flag("output").Usage = "Output format. One of: (" + strings.Join(formats, ", ") + ")."
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flag("show-managed-fields").Hidden = true // There are none.
	cmd.Flags().BoolVar(&o.problems, "problems", false, "Print only names with a problem.")
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "Print the table without its headers.")
	cmd.Flags().BoolVar(&o.exitCode, "exit-code", false, "Exit with 1 if a LocalService is not Ready, or not all of "+
		"its names answer.")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "After printing the nodes, print those that change, until "+
		"Ctrl-C.")
	cmd.Flags().BoolVar(&o.dns, "dns", false, "Ask the cluster's DNS server for every name, "+
		"through a port-forward, and show what it answers.")
	cmd.Flags().StringVar(&o.dnsService, "dns-service", defaultDNSService, "Service of the cluster's DNS "+
		"server, as namespace/name.")
	return cmd
}

func (o *nodesOptions) validate() error {
	switch {
	case (o.dns || o.exitCode) && o.watch:
		return errors.New("a watch neither asks DNS nor ends by itself: leave out --watch, or --dns and --exit-code")
	case !o.dns && o.dnsService != defaultDNSService:
		return errors.New("--dns-service says whom to ask: set --dns, too")
	}
	return o.choice.validate()
}

// errNotAnswering is the error of --exit-code, about which nothing more is printed.
var errNotAnswering = errors.New("not all names answer")

// run prints the nodes. If DNS is to be asked, and cannot be, that is an error, and the table has no column for it.
func (o *nodesOptions) run(ctx context.Context) error {
	printer := &nodesPrinter{IOStreams: o.IOStreams, flags: o.output, single: len(o.names) == 1,
		allNamespaces: o.allNamespaces, noHeaders: o.noHeaders, problems: o.problems}
	if err := printer.complete(); err != nil {
		return err
	}
	read, err := o.readAll(ctx, o.choice)
	switch {
	case err != nil:
		return err
	case o.watch:
		return o.runWatch(ctx, read, printer)
	}
	lists := read.lists(ctx)
	if o.dns && len(lists) > 0 {
		err = read.askDNS(ctx, lists, o.dnsService)
	}
	err = errors.Join(err, printer.printChanges(lists))
	if len(lists) == 0 && printer.table != nil {
		fmt.Fprintln(o.ErrOut, read.none())
	}
	if err == nil && o.exitCode && slices.ContainsFunc(lists, func(list *diagnose.NodeList) bool {
		return list.Summary.Problem != "" || list.Summary.Answering < list.Summary.Nodes
	}) {
		return errNotAnswering
	}
	return err
}

// runWatch prints all nodes, and then those that change.
func (o *nodesOptions) runWatch(ctx context.Context, read *reader, printer *nodesPrinter) (failure error) {
	ctx, cancel := untilInterrupted(ctx)
	defer cancel()
	var problems []string // that are printed
	read.follow(ctx, func(s snapshot) {
		if !slices.Equal(s.Problems, problems) {
			problems = s.Problems
			message := "The watch continues."
			if len(problems) > 0 {
				message = "warning: " + strings.Join(problems, "; ")
			}
			fmt.Fprintln(o.ErrOut, words.Printable(message))
		}
		if failure = printer.printChanges(s.lists); failure != nil {
			cancel() // The reader is gone.
		}
	})
	return failure
}
