package app

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Options hold the values of the program's flags: addFlags says what each means.
type Options struct {
	NodeLabelKey              string
	LabelPods, LabelAllPods   bool
	Workers, WriteConcurrency int
	Namespaces                []string

	kubeconfig, master string
	httpAddress        string
	profiling, guard   bool

	metricsSecureAddress            string
	metricsCertFile, metricsKeyFile string

	leaderElect                               bool
	leaderElectionNamespace, leaderElectionID string
	leaseDuration                             time.Duration

	printVersion bool

	logging *logsapi.LoggingConfiguration
}

const seeHelp = "Run local-service-controller -help for all flags."

// NewOptions parses a command line. The error is flag.ErrHelp if the command line asks for help or the version, which
// NewOptions has then printed.
func NewOptions(args []string, stdout, stderr io.Writer) (*Options, error) {
	o := &Options{logging: logsapi.NewLoggingConfiguration()}
	flags := flag.NewFlagSet("local-service-controller", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {} // Parse would print it below every error, and scroll the error out of sight.
	o.addFlags(flags)
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stderr, "local-service-controller gives every node a Service of its own in every LocalService.\n\n"+
			"Usage: local-service-controller [flags]\n\nFlags:\n")
		flags.PrintDefaults()
		return nil, err
	} else if err != nil {
		fmt.Fprintln(stderr, seeHelp) // The error has been printed.
		return nil, err
	}
	if o.printVersion {
		fmt.Fprintln(stdout, "local-service-controller version", version.Get().GitVersion)
		return nil, flag.ErrHelp
	}
	if err := errors.Join(o.validate(flags), logsapi.ValidateAndApply(o.logging, nil)); err != nil {
		fmt.Fprintf(stderr, "%v\n%s\n", err, seeHelp)
		return nil, err
	}
	return o, nil
}

func (o *Options) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig",
		"", "`file` with the cluster's address and credentials; without it those of the pod that this program runs "+
			"in, else $KUBECONFIG or ~/.kube/config")
	flags.StringVar(&o.master, "master", "", "`URL` of the API server; overrides the one in the kubeconfig")
	flags.StringVar(&o.NodeLabelKey, "node-label-key", v1alpha1.DefaultNodeLabelKey,
		"`key` of the pod label that holds the name of the pod's node. Choose one by which no workload selects its "+
			"pods: the controller does not change such a label")
	flags.BoolVar(&o.LabelPods, "label-pods", true,
		"label the pods that a LocalService selects. With -label-pods=false no permission for pods is needed: their "+
			"labels come from admission policies, or all LocalServices have mode Hostnames")
	flags.BoolVar(&o.LabelAllPods, "label-all-pods", false,
		"label every scheduled pod, not only those that a LocalService selects")
	flags.Func("namespaces", "`names` of the namespaces to work in, with commas between them; without it, all. "+
		"Permissions are needed in these namespaces, and cluster-wide only for Nodes", o.setNamespaces)
	flags.IntVar(&o.Workers, "workers", 32,
		"`number` of LocalServices of one namespace that are synced at the same time; a third more are for the others")
	flags.IntVar(&o.WriteConcurrency, "write-concurrency", 16,
		"`number` of Services, of EndpointSlices, and of pods that are written at the same time; each LocalService "+
			"may have one more Service under way at any time. There is no other throttle")
	flags.StringVar(&o.httpAddress, "http-address",
		":8081",
		"`address` that serves /healthz, /readyz and, without -metrics-secure-address, /metrics; empty for none")
	flags.StringVar(&o.metricsSecureAddress, "metrics-secure-address", "",
		"`address` that serves /metrics over TLS, to clients whose bearer token permits it, instead of -http-address")
	flags.StringVar(&o.metricsCertFile, "metrics-tls-cert-file", "",
		"`file` with the certificate for -metrics-secure-address, which is read again when it changes; without it, "+
			"one is made that is self-signed")
	flags.StringVar(&o.metricsKeyFile, "metrics-tls-key-file", "", "`file` with the key of -metrics-tls-cert-file")
	flags.BoolVar(&o.profiling, "profiling", false, "serve profiles of the program at /debug/pprof, too")
	flags.BoolVar(&o.guard, "guard", false, "look at the start and once an hour whether the guard is in force, and report "+
		"if it is not; on by default inside a cluster")
	flags.BoolVar(&o.printVersion, "version", false, "print the version and exit")
	flags.BoolVar(&o.leaderElect, "leader-elect", false,
		"let only one of several instances work, the holder of a Lease; on by default inside a cluster")
	flags.StringVar(&o.leaderElectionNamespace, "leader-election-namespace",
		"", "`namespace` of the Lease; by default that of the pod that this program runs in, else kube-system")
	flags.StringVar(&o.leaderElectionID, "leader-election-id", "local-service-controller", "`name` of the Lease")
	flags.DurationVar(&o.leaseDuration, "leader-election-lease-duration", 15*time.Second,
		"`time`, of at least 3s, after which the work of a leader that does not answer is taken over; a leader "+
			"that is stopped hands over at once")
	logsapi.AddGoFlags(o.logging, flags)
}

// validate finds contradictions, and fills in the defaults that depend on where the program runs.
func (o *Options) validate(flags *flag.FlagSet) error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(flags.NArg() == 0, "unexpected argument %q: flags begin with a dash, as in -kubeconfig=FILE", flags.Arg(0))
	problems := validation.IsQualifiedName(o.NodeLabelKey)
	must(len(problems) == 0, "-node-label-key=%s is no label key: %s", o.NodeLabelKey, strings.Join(problems, "; "))
	must(o.NodeLabelKey != v1alpha1.OwnerLabelKey, "-node-label-key=%s is the label that holds the LocalService of "+
		"a Service: choose another one", o.NodeLabelKey)
	must(o.LabelPods || !o.LabelAllPods, "-label-pods=false contradicts -label-all-pods")
	must(o.Workers >= 1, "-workers=%d must be at least 1", o.Workers)
	must(o.WriteConcurrency >= 1, "-write-concurrency=%d must be at least 1", o.WriteConcurrency)
	must((o.metricsCertFile == "") == (o.metricsKeyFile == ""), "-metrics-tls-cert-file and -metrics-tls-key-file "+
		"need each other")
	must(o.metricsCertFile == "" || o.metricsSecureAddress != "",
		"-metrics-tls-cert-file needs -metrics-secure-address")
	// A Lease has whole seconds: below 3, its rounded duration would be shorter than the renew deadline.
	must(o.leaseDuration >= 3*time.Second, "-leader-election-lease-duration=%s must be at least 3s", o.leaseDuration)
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["leader-elect"] {
		o.leaderElect = o.inCluster()
	}
	if !given["guard"] {
		o.guard = o.inCluster()
	}
	if o.leaderElectionNamespace == "" {
		o.leaderElectionNamespace = podNamespace()
	}
	return errors.Join(errs...)
}

// setNamespaces parses a list of namespaces. It refuses an empty one: a list means fewer than all.
func (o *Options) setNamespaces(list string) error {
	names := strings.Split(list, ",")
	for _, name := range names {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return fmt.Errorf("%q cannot be the name of a namespace: %s", name, strings.Join(problems, "; "))
		}
	}
	o.Namespaces = sets.List(sets.New(names...))
	return nil
}

// renewDeadline returns how long a leader tries to renew its Lease.
func (o *Options) renewDeadline() time.Duration { return o.leaseDuration * 16 / 30 }

// inCluster reports whether to use the credentials of the pod that the program runs in.
func (o *Options) inCluster() bool {
	return o.kubeconfig == "" && o.master == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" &&
		os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// restConfig returns how to reach the API server.
func (o *Options) restConfig() (*rest.Config, error) {
	if o.inCluster() {
		return rest.InClusterConfig()
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	overrides := &clientcmd.ConfigOverrides{}
	overrides.ClusterInfo.Server = o.master
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("there is no cluster to work for: say which with -kubeconfig=FILE or $KUBECONFIG, " +
			"or run this program in a pod")
	}
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return config, nil
}

// podNamespace returns the namespace of the pod that the program runs in, kube-system outside of a pod.
func podNamespace() string {
	data, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return metav1.NamespaceSystem
	}
	return strings.TrimSpace(string(data))
}
