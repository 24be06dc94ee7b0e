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
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// nodesFlags holds the flags of nodes.
type nodesFlags struct {
	clusterDomain, dnsService                      string
	dns, noHeaders, watch, allNamespaces, problems bool
	many                                           bool // LocalServices, instead of one
	output                                         *genericclioptions.PrintFlags
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
	output := flags.output
	cmd := &cobra.Command{
		Use:   "nodes [NAME]",
		Short: "Show every node's name, its endpoints, and why it has none",
		Long:  fmt.Sprintf(nodesHelp, reasonsHelp()),
		Example: `  # What answers on each node, and why nothing does
  kubectl localservice nodes demo

  # What is wrong in all namespaces
  kubectl localservice nodes -A --problems

  # With DNS names, pods and addresses
  kubectl localservice nodes demo -o wide

  # The nodes where nothing answers
  kubectl localservice nodes demo -o jsonpath='{range .items[?(@.endpoints.ready==0)]}{.node}{"\n"}{end}'

  # Which names the cluster's DNS does not answer as it should
  kubectl localservice nodes demo --dns

  # What changes, as it does
  kubectl localservice nodes demo --watch

  # Look at the Services themselves
  kubectl describe $(kubectl localservice nodes demo -o name)`,
		Args:              withUsage(cobra.MaximumNArgs(1)),
		ValidArgsFunction: p.complete(localServiceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				name = argName(args[0])
			}
			flags.many = name == ""
			return p.nodes(cmd.Context(), name, flags)
		},
	}
	output.AddFlags(cmd)
	cmd.Flag("output").Usage = "Output format. One of: (" + strings.Join(output.AllowedFormats(), ", ") + ", wide)."
	cmd.Flag("show-managed-fields").Hidden = true // There are none.
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		append(output.AllowedFormats(), "wide"), cobra.ShellCompDirectiveNoFileComp)))
	addClusterDomain(cmd, &flags.clusterDomain)
	addAllNamespaces(cmd, &flags.allNamespaces)
	cmd.Flags().BoolVar(&flags.problems, "problems", false, "Print only names with a problem.")
	cmd.Flags().BoolVar(&flags.noHeaders, "no-headers", false, "Print the table without its headers.")
	cmd.Flags().BoolVarP(&flags.watch, "watch", "w", false, "After printing the nodes, print those that change, until "+
		"Ctrl-C.")
	cmd.Flags().BoolVar(&flags.dns, "dns", false, "Ask the cluster's DNS server for every name, and show what it "+
		"answers.")
	cmd.Flags().StringVar(&flags.dnsService, "dns-service", defaultDNSService, "Service of the cluster's DNS "+
		"server, as namespace/name.")
	return cmd
}

func addAllNamespaces(cmd *cobra.Command, all *bool) {
	cmd.Flags().BoolVarP(all, "all-namespaces", "A", false, "Show the LocalServices of all namespaces.")
}

// inAllNamespaces makes a cluster that of all namespaces, if the flag says so.
func (c *cluster) inAllNamespaces(all bool, name string) error {
	if all && name != "" {
		return errors.New("a name is one of a namespace: leave out either the name or -A")
	}
	if all {
		c.namespace = metav1.NamespaceAll
	}
	return nil
}

func addClusterDomain(cmd *cobra.Command, domain *string) {
	cmd.Flags().StringVar(domain, "cluster-domain", "cluster.local", "Domain of the cluster's DNS.")
}

func (p *plugin) nodes(ctx context.Context, name string, flags *nodesFlags) error {
	switch {
	case flags.dns && flags.watch:
		return errors.New("a watch does not ask DNS: leave out either --dns or --watch")
	case !flags.dns && flags.dnsService != defaultDNSService:
		return errors.New("--dns-service says whom to ask: set --dns, too")
	}
	printer, err := p.newNodesPrinter(flags)
	if err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	if err := c.inAllNamespaces(flags.allNamespaces, name); err != nil {
		return err
	}
	var ls *v1alpha1.LocalService
	if name != "" {
		if ls, err = c.localService(ctx, name); err != nil {
			return err
		}
	}
	o := c.newObjects(name, flags.clusterDomain)
	if flags.watch {
		return printer.watchNodes(ctx, o)
	}
	if err := o.read(ctx, ls); err != nil {
		return err
	}
	p.warnOfNodes(o)
	return printer.printOnce(ctx, c, o.lists(ctx))
}

// printOnce prints lists, with the answers of DNS if they are asked for. If it cannot be asked, that is an error, and
// the table has no column for it.
func (p *nodesPrinter) printOnce(ctx context.Context, c *cluster, lists []*diagnose.NodeList) (err error) {
	if len(lists) == 0 && p.table != nil {
		fmt.Fprintln(p.ErrOut, "There is no LocalService here.")
		return nil
	}
	var notAsked error
	if p.dns {
		var warning string
		if lists, warning, notAsked = c.withDNS(ctx, lists, p.nodesFlags); warning != "" {
			fmt.Fprintln(p.ErrOut, "warning: "+words.Printable(warning))
		}
	}
	if len(lists) == 0 {
		return p.print(nil) // An empty List.
	}
	if err := p.printChanges(lists); err != nil || p.table == nil {
		return errors.Join(notAsked, err)
	}
	if p.problems && !slices.ContainsFunc(lists, hasProblem) {
		fmt.Fprintln(p.ErrOut, "No name has a problem.")
	}
	if p.many {
		fmt.Fprintln(p.ErrOut, totalLine(lists))
	}
	return notAsked
}

func hasProblem(list *diagnose.NodeList) bool {
	return slices.ContainsFunc(list.Items, func(n diagnose.Node) bool { return n.Problems() != "" })
}

// warnOfNodes says what somebody does not see who may not list nodes.
func (p *plugin) warnOfNodes(o *objects) {
	if !o.allNodes {
		fmt.Fprintln(p.ErrOut, "warning: you may not list nodes, so that nodes without a name are not shown")
	}
}

// untilInterrupted ends a watch with Ctrl-C, and silences client-go: a lost watch is reported as a problem.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	klog.SetLogger(klog.Logger{})
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
}

// watchNodes prints all nodes of LocalServices, and then those that change.
func (p *nodesPrinter) watchNodes(ctx context.Context, o *objects) (failure error) {
	ctx, cancel := untilInterrupted(ctx)
	defer cancel()
	if err := o.check(ctx); err != nil {
		return err
	}
	p.warnOfNodes(o)
	problems := p.problemPrinter()
	o.follow(ctx, func(s snapshot) {
		problems(s.Problems)
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
		if len(before.Items) > 0 && !slices.ContainsFunc(lists, func(l *diagnose.NodeList) bool { return l.Key() == key }) {
			fmt.Fprintf(p.ErrOut, "LocalService %s is gone.\n", key)
			list := *before
			list.Items, list.Message, list.Controller = nil, "", ""
			gone = append(gone, &list)
		}
	}
	return gone
}

// problemPrinter returns a function that prints new problems, and prints when the earlier ones are over.
func (p *plugin) problemPrinter() func([]string) {
	var printed []string
	return func(problems []string) {
		for _, problem := range problems {
			if !slices.Contains(printed, problem) {
				fmt.Fprintln(p.ErrOut, "warning: "+words.Printable(problem))
			}
		}
		if len(printed) > 0 && len(problems) == 0 {
			fmt.Fprintln(p.ErrOut, "The watch continues.")
		}
		printed = problems
	}
}

// reasonsHelp returns the reasons and what they mean.
func reasonsHelp() string {
	var help strings.Builder
	for _, r := range diagnose.Reasons {
		fmt.Fprintf(&help, "  %-18s %s\n", r.Reason, r.Means)
	}
	return help.String()
}
