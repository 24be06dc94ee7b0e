package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned/scheme"
)

type createOptions struct {
	*factory
	name, selector, nodeSelector, mode, dryRun string
	ports                                      []string
	headless                                   bool
	output                                     *genericclioptions.PrintFlags
}

func newCreateCommand(f *factory) *cobra.Command {
	o := &createOptions{factory: f, output: genericclioptions.NewPrintFlags("created").WithTypeSetter(scheme.Scheme)}
	cmd := &cobra.Command{
		Use:   "create NAME --selector LABELS",
		Short: "Create a LocalService",
		Long: `Create a LocalService, or with --dry-run=client -o yaml print one. Fields without a flag are for the file.

With kubectl-create-localservice in $PATH, "kubectl create localservice" is the same (kubectl 1.31 or newer).`,
		Example: `  # A headless Service for each node, for the pods with the label app=cache
  kubectl localservice create cache --selector app=cache --headless --port 11211

  # With a cluster IP each; port 80 leads to the pods' port 8080, and metrics to the one that is named so
  kubectl localservice create web --selector app=web --port http=80:8080 --port metrics=9090:metrics

  # A name for each of many nodes, in one Service, on nodes with a label
  kubectl localservice create agent --selector app=agent --mode Hostnames --node-selector disk=ssd`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name = args[0]
			return o.run(cmd.Context())
		},
	}
	o.output.AddFlags(cmd)
	cmd.Flag("show-managed-fields").Hidden = true
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions(o.output.AllowedFormats(), cobra.ShellCompDirectiveNoFileComp)))
	flags := cmd.Flags()
	flags.Func("selector", "`labels` of the pods, such as app=cache,tier=a.", addTo(&o.selector))
	cobra.CheckErr(cmd.MarkFlagRequired("selector"))
	flags.StringArrayVar(&o.ports, "port", nil, "Port of the Services: 80, 80:8080 or 80:web with the pods' port, "+
		"http=80:8080 with a name, 53/UDP with a protocol. Repeat it for more ports, which need names.")
	flags.BoolVar(&o.headless, "headless", false, "Make headless Services (clusterIP: None): the names lead to the "+
		"pods' own addresses and ports.")
	flags.StringVar(&o.mode, "mode", "", "Services (the default) or Hostnames, which makes one Service for all nodes.")
	flags.Func("node-selector", "`labels` of the nodes that get a name, such as 'disk=ssd,zone notin (a,b),"+
		"!node-role.kubernetes.io/control-plane'; all nodes by default.", addTo(&o.nodeSelector))
	flags.StringVar(&o.dryRun, "dry-run", "none", "none, client (only print the object) or server (send it, but "+
		"do not store it).")
	flags.Lookup("dry-run").NoOptDefVal = "unchanged" // It was a boolean in old versions of kubectl: say so.
	return cmd
}

func (o *createOptions) run(ctx context.Context) error {
	ls, err := o.localService()
	if err != nil {
		return err
	}
	done := map[string]string{"none": "%s", "client": "%s (dry run)", "server": "%s (server dry run)"}[o.dryRun]
	if done == "" {
		return errors.New("--dry-run must be none, client or server")
	}
	if err := o.output.Complete(done); err != nil {
		return err
	}
	printer, err := o.output.ToPrinter()
	if err != nil {
		return err
	}
	options := metav1.CreateOptions{FieldManager: "kubectl-create"} // as kubectl create
	if o.dryRun == "server" {
		options.DryRun = []string{metav1.DryRunAll}
	}
	if ports := words.TranslatedPorts(ls, nil); ports != "" {
		fmt.Fprintf(o.ErrOut, "warning: %s\n", ports)
	}
	if o.dryRun == "client" {
		ls.Namespace = ptr.Deref(o.config.Namespace, "")
	} else {
		c, err := o.connect()
		if err != nil {
			return err
		}
		ls, err = c.localServices.LocalserviceV1alpha1().LocalServices(c.namespace).Create(ctx, ls, options)
		if err != nil {
			return fmt.Errorf("create LocalService %s/%s: %w", c.namespace, o.name, err)
		}
	}
	return printer.PrintObj(ls, o.Out)
}

// localService returns the LocalService that the flags describe. The API server checks the rest.
func (o *createOptions) localService() (*v1alpha1.LocalService, error) {
	ls := &v1alpha1.LocalService{ObjectMeta: metav1.ObjectMeta{Name: o.name},
		Spec: v1alpha1.LocalServiceSpec{Mode: v1alpha1.Mode(o.mode)}}
	pods, err := parseSelector(o.selector)
	if err != nil || len(pods.MatchExpressions) > 0 {
		return nil, fmt.Errorf("--selector %q: give labels as key=value, each key once, with commas between them, such as "+
			"app=demo,tier=web", o.selector)
	}
	nodes, err := parseSelector(o.nodeSelector)
	if err != nil {
		return nil, fmt.Errorf("--node-selector: %w: use =, in, notin, LABEL and !LABEL", err)
	}
	ls.Spec.Selector, ls.Spec.NodeSelector = pods.MatchLabels, nodes.MatchLabels
	var term v1alpha1.NodeSelectorTerm
	for _, r := range nodes.MatchExpressions {
		term.MatchExpressions = append(term.MatchExpressions, v1alpha1.NodeLabelRequirement{Key: r.Key,
			Operator: corev1.NodeSelectorOperator(r.Operator), Values: r.Values})
	}
	if len(term.MatchExpressions) > 0 {
		ls.Spec.NodeSelectorTerms = []v1alpha1.NodeSelectorTerm{term}
	}
	if o.headless {
		ls.Spec.ClusterIP = corev1.ClusterIPNone
	}
	for _, text := range o.ports {
		port, err := parsePort(text)
		if err != nil {
			return nil, fmt.Errorf("--port %s: %w", text, err)
		}
		ls.Spec.Ports = append(ls.Spec.Ports, port)
	}
	return ls, nil
}

// parseSelector reads a label selector, and refuses a label with two values: only the last one would count.
func parseSelector(text string) (*metav1.LabelSelector, error) {
	selector, err := metav1.ParseToLabelSelector(text)
	all, _ := labels.ParseToRequirements(text)
	if err == nil && len(selector.MatchLabels)+len(selector.MatchExpressions) < len(all) {
		return nil, errors.New("a label has two values")
	}
	return selector, err
}

// parsePort reads [name=]port[:target][/protocol].
func parsePort(text string) (port v1alpha1.ServicePort, err error) {
	rest, protocol, hasProtocol := strings.Cut(text, "/")
	port.Protocol = cmp.Or(corev1.Protocol(strings.ToUpper(protocol)), corev1.ProtocolTCP)
	if name, after, hasName := strings.Cut(rest, "="); hasName {
		port.Name, rest = name, after
	}
	number, target, hasTarget := strings.Cut(rest, ":")
	parsed, err := strconv.ParseInt(number, 10, 32)
	if err != nil || hasTarget && target == "" || hasProtocol && protocol == "" {
		return port, errors.New("it must be [name=]port[:target][/protocol], such as 80, 80:8080 or dns=53:5353/UDP")
	}
	port.TargetPort = intstr.Parse(cmp.Or(target, number))
	invalid := validation.IsValidPortNum(int(parsed))
	if port.TargetPort.Type == intstr.Int {
		invalid = append(invalid, validation.IsValidPortNum(port.TargetPort.IntValue())...)
	}
	if len(invalid) > 0 {
		return port, errors.New("a port " + invalid[0])
	}
	port.Port = int32(parsed)
	return port, nil
}
