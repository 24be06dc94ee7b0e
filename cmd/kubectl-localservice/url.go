package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

func (p *plugin) urlCommand() *cobra.Command {
	var port, clusterDomain string
	cmd := &cobra.Command{
		Use:   "url NAME NODE",
		Short: "Print the URL at which a LocalService answers on a node",
		Long: `Print the URL at which the pods of a LocalService on one node answer, for clients inside the cluster.
With spec.groupBy, NODE is a group of nodes. With mode: Hostnames, the URL has the whole DNS name.

The URL begins with https if the port's appProtocol or name is https, and with http otherwise. For a headless
LocalService (clusterIP: None, or mode: Hostnames) it has the port of the pods, because headless Services do not
translate ports.`,
		Example: `  # Ask the pod on k8s02
  kubectl exec deploy/client -- curl -s $(kubectl localservice url demo k8s02)

  # Another port than the first
  kubectl localservice url demo k8s02 --port metrics`,
		Args:              exactArgs(2),
		ValidArgsFunction: p.complete(localServiceNames, nodesWithName),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.url(cmd.Context(), nameOf(args[0]), nameOf(args[1]), port, clusterDomain)
		},
	}
	addClusterDomain(cmd, &clusterDomain)
	cmd.Flags().StringVar(&port, "port", "", "Name or number of the LocalService's port; the first one by default.")
	return cmd
}

func (p *plugin) url(ctx context.Context, name, node, portName, clusterDomain string) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	ls, err := c.localService(ctx, name)
	if err != nil {
		return err
	}
	if message := diagnose.Unobserved(ls); message != "" {
		fmt.Fprintln(p.ErrOut, "warning: "+message)
	}
	port, err := findPort(ls, portName)
	if err != nil {
		return err
	}
	hostOf := c.hostOfService
	if ls.Spec.Mode == v1alpha1.ModeHostnames {
		hostOf = c.hostOfName
	}
	host, service, err := hostOf(ctx, ls, node, clusterDomain)
	if err != nil {
		return err
	}
	number, err := c.portOfClients(ctx, ls, port, service)
	if err != nil {
		return err
	}
	scheme := "http"
	if strings.EqualFold(ptr.Deref(port.AppProtocol, port.Name), "https") {
		scheme = "https"
	}
	_, err = fmt.Fprintf(p.Out, "%s://%s:%d\n", scheme, host, number)
	return err
}

func seeNodes(ls *v1alpha1.LocalService) string {
	return fmt.Sprintf("see `kubectl localservice nodes %s -n %s`", ls.Name, ls.Namespace)
}

// hostOfService returns the host of a node in mode Services, and the name of its Service.
func (c *cluster) hostOfService(ctx context.Context, ls *v1alpha1.LocalService, node, _ string) (host, service string,
	err error) {
	service = naming.ServiceName(ls.Name, node)
	found, err := c.kube.CoreV1().Services(ls.Namespace).Get(ctx, service, metav1.GetOptions{})
	why := ""
	switch {
	case err == nil && metav1.IsControlledBy(found, ls):
		return service + "." + ls.Namespace, service, nil
	case err == nil:
		why = ", because the name is taken by another Service"
	case !apierrors.IsNotFound(err):
		return "", "", err
	}
	return "", "", fmt.Errorf("LocalService %s/%s has no Service %s for a node %s%s: %s", ls.Namespace, ls.Name,
		service, node, why, seeNodes(ls))
}

// hostOfName is hostOfService for mode Hostnames; with groupBy, node is a group.
func (c *cluster) hostOfName(ctx context.Context, ls *v1alpha1.LocalService, node, clusterDomain string) (host,
	service string, err error) {
	w, err := c.read(ctx, ls, clusterDomain, false)
	if err != nil {
		return "", "", err
	}
	what := "node " + node
	if ls.Spec.GroupBy != "" {
		what = "group of nodes " + node
	}
	for _, n := range diagnose.Nodes(w.input(ctx, ls)).Items {
		switch {
		case n.Node == node && n.HasService():
			return n.DNSName, n.Service, nil
		case n.Node == node:
			what += ": " + n.Message
		}
	}
	return "", "", fmt.Errorf("LocalService %s/%s has no name for a %s: %s", ls.Namespace, ls.Name, what, seeNodes(ls))
}

// findPort finds a port of a LocalService by its name or number; for "", the first one.
func findPort(ls *v1alpha1.LocalService, nameOrNumber string) (*v1alpha1.ServicePort, error) {
	var choices []string
	for i := range ls.Spec.Ports {
		port := &ls.Spec.Ports[i]
		number := strconv.Itoa(int(port.Port))
		if nameOrNumber == "" || nameOrNumber == port.Name || nameOrNumber == number {
			return port, nil
		}
		choices = append(choices, strings.TrimSpace(port.Name+" "+number))
	}
	if len(choices) == 0 {
		return nil, fmt.Errorf("LocalService %s/%s names no ports, so that it has no URL", ls.Namespace, ls.Name)
	}
	return nil, fmt.Errorf("LocalService %s/%s has no port %s: choose one of %s",
		ls.Namespace, ls.Name, nameOrNumber, strings.Join(choices, ", "))
}

// portOfClients returns the number of the port that clients connect to: for a headless Service, the pods' own port. If
// the LocalService gives that by name, the number comes from EndpointSlices.
func (c *cluster) portOfClients(ctx context.Context, ls *v1alpha1.LocalService, port *v1alpha1.ServicePort,
	service string) (int32, error) {
	switch target := port.TargetPort; {
	case plan.HasClusterIPs(ls),
		target.IntVal == 0 && target.StrVal == "":
		return port.Port, nil
	case target.StrVal == "":
		return target.IntVal, nil
	}
	slices, err := c.kube.DiscoveryV1().EndpointSlices(ls.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return 0, err
	}
	for i := range slices.Items {
		for _, p := range slices.Items[i].Ports {
			if ptr.Deref(p.Name, "") == port.Name && p.Port != nil {
				return *p.Port, nil
			}
		}
	}
	return 0, fmt.Errorf("clients of headless Services connect to the pods' own port %s, and Service %s has no "+
		"endpoint with its number: %s", port.TargetPort.StrVal, service, seeNodes(ls))
}
