package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

type urlOptions struct {
	*factory
	name, node, port string
	external         bool
}

func newURLCommand(f *factory) *cobra.Command {
	o := &urlOptions{factory: f}
	cmd := &cobra.Command{
		Use:   "url NAME NODE",
		Short: "Print the URL at which a LocalService answers on a node",
		Long: `Print the URL at which the pods of a LocalService on one node answer, for clients inside the cluster.
With spec.groupBy, NODE is a group of nodes.

The scheme follows from the port's appProtocol, or from its name or number, and is http otherwise. Without a scheme,
such as for UDP and grpc, only host:port is printed. For a headless LocalService (clusterIP: None, or mode: Hostnames),
the port is that of the pods, because headless Services do not translate ports.

With --external, it is the address of the Service's load balancer or, without one, the node's own with the node port.`,
		Example: `  # Ask the pod on k8s02
  kubectl exec deploy/client -- curl -s $(kubectl localservice url demo k8s02)

  # Another port than the first
  kubectl localservice url demo k8s02 --port metrics

  # From outside the cluster
  curl $(kubectl localservice url demo k8s02 --external)`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: f.completion(completeNameAndNode),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name, o.node = path.Base(args[0]), path.Base(args[1])
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&o.external, "external", false, "Print the URL for clients outside the cluster.")
	cmd.Flags().StringVar(&o.port, "port", "", "Name or number of the LocalService's port; the first one by default.")
	return cmd
}

// completeNameAndNode returns the names of the LocalServices or, after one, the nodes or groups that have a Service.
func completeNameAndNode(ctx context.Context, c *cluster, args []string) (nodes []string, err error) {
	if len(args) != 1 {
		return completeName(ctx, c, args)
	}
	read, err := c.read(ctx, choice{names: []string{path.Base(args[0])}}, false)
	if err != nil {
		return nil, err
	}
	for _, n := range read.lists(ctx)[0].Items {
		if n.HasService {
			nodes = append(nodes, n.Node)
		}
	}
	return nodes, nil
}

func (o *urlOptions) run(ctx context.Context) error {
	c, err := o.connect()
	if err != nil {
		return err
	}
	read, err := c.read(ctx, choice{names: []string{o.name}}, false)
	if err != nil {
		return err
	}
	ls := read.one
	port, err := choosePort(ls, o.port)
	if err != nil {
		return err
	}
	n, err := read.nameOf(read.lists(ctx)[0], o.node)
	if err != nil {
		return err
	}
	host, number := n.Name()+"."+ls.Namespace, int32(0)
	if o.external {
		host, number, err = c.externalAddress(ctx, ls, n, port)
	} else {
		number, err = read.portOfClients(port, n.Service)
	}
	if err != nil {
		return err
	}
	// A node reports its own addresses, and the output is for shells.
	if net.ParseIP(host) == nil && len(content.IsDNS1123Subdomain(host)) > 0 {
		return fmt.Errorf("node %s reports the address %q, which is neither an IP address nor a DNS name", n.Node, host)
	}
	if n.Endpoints.Ready == 0 {
		fmt.Fprintf(o.ErrOut, "warning: nothing answers as %s.%s now: %s\n", n.Name(), ls.Namespace, c.seeNodes(ls))
	}
	_, err = fmt.Fprintln(o.Out, schemeOf(port)+net.JoinHostPort(host, strconv.Itoa(int(number))))
	return err
}

// schemeOf returns how URLs of a port begin, "" if it has none. It guesses that as kubectl and Ingress controllers do:
// by the appProtocol or the first part of the name, then by the number.
func schemeOf(port *v1alpha1.ServicePort) string {
	hint := strings.TrimPrefix(strings.ToLower(ptr.Deref(port.AppProtocol, port.Name)), "kubernetes.io/")
	switch hint, _, _ = strings.Cut(hint, "-"); {
	case port.Protocol != "" && port.Protocol != corev1.ProtocolTCP:
		return ""
	case hint == "https", hint == "ws", hint == "wss":
		return hint + "://"
	case hint == "http", hint == "http2", hint == "h2c":
		return "http://"
	case port.AppProtocol != nil, slices.Contains([]string{"grpc", "tcp", "tls", "mongo", "mysql", "redis"}, hint):
		return ""
	case port.Port == 443:
		return "https://"
	}
	return "http://"
}

// externalAddress returns where clients outside the cluster reach the Service of a node.
func (c *cluster) externalAddress(ctx context.Context, ls *v1alpha1.LocalService, n *diagnose.Node,
	port *v1alpha1.ServicePort) (host string, number int32, err error) {
	if ls.Spec.Mode == v1alpha1.ModeHostnames {
		return "", 0, fmt.Errorf("LocalService %s/%s is for clients inside the cluster, as its mode is Hostnames: "+
			"clients outside reach nodes only in mode Services, with spec.type NodePort or LoadBalancer", ls.Namespace,
			ls.Name)
	}
	if len(n.LoadBalancer) > 0 {
		return n.LoadBalancer[0], port.Port, nil
	}
	for _, p := range n.Ports {
		if p.Name == port.Name && p.Port == port.Port {
			number = p.NodePort
		}
	}
	if number == 0 {
		return "", 0, fmt.Errorf("no address for clients outside the cluster in Service %s/%s: set spec.type of "+
			"LocalService %s to NodePort or LoadBalancer, or wait for the load balancer", ls.Namespace, n.Service, ls.Name)
	}
	node, err := c.kube.CoreV1().Nodes().Get(ctx, n.Node, metav1.GetOptions{})
	if err != nil {
		return "", 0, err
	}
	for _, kind := range []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP} {
		for _, address := range node.Status.Addresses {
			if address.Type == kind {
				return address.Address, number, nil
			}
		}
	}
	return "", 0, fmt.Errorf("node %s has no address: look at its status with `%s get node %[1]s -o wide`", n.Node,
		c.kubectl)
}

// seeNodes names the command that says more. kubectl takes flags only after the name of a plugin.
func (c *cluster) seeNodes(ls *v1alpha1.LocalService) string {
	return fmt.Sprintf("see `kubectl localservice nodes %s -n %s%s`", ls.Name, ls.Namespace,
		strings.TrimPrefix(c.kubectl, kubectlCommand))
}

// nameOf returns the name of a node, which may be given as the name spells it; with groupBy, node is a group.
func (o *reader) nameOf(list *diagnose.NodeList, node string) (*diagnose.Node, error) {
	ls, what, why := o.one, cmp.Or(list.GroupBy, "node"), ""
	if _, exists, _ := o.nodes.GetIndexer().GetByKey(node); o.allNodes && list.GroupBy == "" && !exists {
		why = "there is no such node"
	}
	for _, n := range list.Items {
		isNode := n.Node == node || n.Name() == ls.Name+"-"+node || n.Name() == node+"."+ls.Name
		if isNode && n.HasService {
			return n, nil
		} else if isNode {
			why = n.Cause
		}
	}
	return nil, fmt.Errorf("LocalService %s/%s has no name for %s", ls.Namespace, ls.Name,
		words.Join(": ", what+" "+node, why, o.seeNodes(ls)))
}

// choosePort finds a port by its name or number, the first for "". A headless LocalService without ports has them all.
func choosePort(ls *v1alpha1.LocalService, nameOrNumber string) (*v1alpha1.ServicePort, error) {
	var choices []string
	number, err := strconv.ParseUint(nameOrNumber, 10, 16)
	if len(ls.Spec.Ports) == 0 && !plan.HasClusterIPs(ls) && err == nil && number > 0 {
		return &v1alpha1.ServicePort{Port: int32(number)}, nil
	}
	for i := range ls.Spec.Ports {
		port := &ls.Spec.Ports[i]
		number := strconv.Itoa(int(port.Port))
		if nameOrNumber == "" || nameOrNumber == port.Name || nameOrNumber == number {
			return port, nil
		}
		choices = append(choices, strings.TrimSpace(port.Name+" "+number))
	}
	if len(choices) == 0 {
		return nil, fmt.Errorf("LocalService %s/%s names no ports: choose one of the pods' with --port and its number",
			ls.Namespace, ls.Name)
	}
	return nil, fmt.Errorf("LocalService %s/%s has no port %s: choose one of %s",
		ls.Namespace, ls.Name, nameOrNumber, strings.Join(choices, ", "))
}

// portOfClients returns the number of the port that clients connect to: for a headless Service, the pods' own port. If
// the LocalService gives that by name, the number comes from EndpointSlices.
func (o *reader) portOfClients(port *v1alpha1.ServicePort, service string) (int32, error) {
	switch ls := o.one; {
	case plan.HasClusterIPs(ls):
		return port.Port, nil
	case port.TargetPort.StrVal == "":
		return cmp.Or(port.TargetPort.IntVal, port.Port), nil
	}
	for _, slice := range inNamespace[discoveryv1.EndpointSlice](o.endpointSlices, o.namespace) {
		for _, p := range slice.Ports {
			if slice.Labels[discoveryv1.LabelServiceName] == service && p.Port != nil && ptr.Deref(p.Name, "") == port.Name {
				return *p.Port, nil
			}
		}
	}
	return 0, fmt.Errorf("clients of headless Services connect to the pods' own port %s, and Service %s/%s has no "+
		"endpoint with its number: %s", port.TargetPort.StrVal, o.namespace, service, o.seeNodes(o.one))
}
