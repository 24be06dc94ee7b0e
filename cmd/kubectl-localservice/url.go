package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/internal/diagnose"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// urlOptions are the flags of `url`.
type urlOptions struct {
	*plugin
	port          string
	clusterDomain string
}

func (p *plugin) urlCommand() *cobra.Command {
	o := &urlOptions{plugin: p}
	cmd := &cobra.Command{
		Use:   "url NAME NODE",
		Short: "Print the URL at which a LocalService answers on a node",
		Long: `Print the URL at which the pods of a LocalService on one node answer, for clients inside the cluster.

The URL begins with https if the port's appProtocol or name is https, and with http otherwise. For a headless
LocalService (clusterIP: None) it has the port of the pods, because headless Services do not translate ports.`,
		Example: `  # Ask the pod on k8s02
  kubectl exec deploy/client -- curl -s $(kubectl localservice url demo k8s02)

  # Another port than the first, and the full name
  kubectl localservice url demo k8s02 --port metrics --cluster-domain cluster.local`,
		Args:              arguments("NAME of a LocalService", "NODE"),
		ValidArgsFunction: p.completeURL,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err1 := localServiceName(args[0])
			node, err2 := nodeName(args[1])
			if err := errors.Join(err1, err2); err != nil {
				return usageError(cmd, err)
			}
			return o.run(cmd.Context(), name, node)
		},
	}
	cmd.Flags().StringVar(&o.port, "port", "", "Name or number of the LocalService's port. The default is the "+
		"first one.")
	cmd.Flags().StringVar(&o.clusterDomain, "cluster-domain", "", "Domain of the cluster's DNS, to print the "+
		"full name; for example "+diagnose.DefaultClusterDomain+".")
	must(cmd.RegisterFlagCompletionFunc("port", p.completePort))
	return cmd
}

func (o *urlOptions) run(ctx context.Context, name, node string) error {
	c, err := o.connect()
	if err != nil {
		return err
	}
	ls, err := c.localService(ctx, name)
	if err != nil {
		return err
	}
	port, err := diagnose.Port(ls, o.port)
	if err != nil {
		return err
	}
	nodeKnown, err := checkNode(ctx, c, ls, node)
	if err != nil {
		return err
	}
	if err := o.checkService(ctx, c, ls, node, nodeKnown); err != nil {
		return err
	}
	url, err := diagnose.URL(ls, node, port, o.clusterDomain, nil)
	if errors.Is(err, diagnose.ErrEndpointsNeeded) {
		url, err = o.urlByEndpoints(ctx, c, ls, node, port)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(o.Out, url)
	return err
}

// checkNode finds out whether the LocalService has a Service for a node. It returns false if that cannot be known.
func checkNode(ctx context.Context, c *cluster, ls *v1alpha1.LocalService, name string) (known bool, err error) {
	node, err := c.metadata.Resource(nodesResource).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return false, nil
	case apierrors.IsNotFound(err):
		return false, fmt.Errorf("there is no node %s: `kubectl localservice nodes %s -n %s` lists those of the "+
			"LocalService", name, ls.Name, ls.Namespace)
	case err != nil:
		return false, request{"get", nodesResource, "", name}.failed(err)
	case !plan.Selects(ls, labels.Set(node.Labels)):
		return false, fmt.Errorf("LocalService %s/%s does not select node %s: the node lacks labels of its "+
			"nodeSelector %s",
			ls.Namespace, ls.Name, name, labels.Set(ls.Spec.NodeSelector))
	}
	return true, nil
}

// checkService looks whether the URL leads to where it should. A missing Service is worth a warning: its URL is known
// before it exists.
func (o *urlOptions) checkService(ctx context.Context, c *cluster, ls *v1alpha1.LocalService, node string,
	nodeKnown bool) error {
	name := naming.ServiceName(ls.Name, node)
	service, err := c.metadata.Resource(servicesResource).Namespace(ls.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !nodeKnown:
		return fmt.Errorf("LocalService %s/%s has no Service for a node %s, and you may not look whether there "+
			"is such a node", ls.Namespace, ls.Name, node)
	case apierrors.IsNotFound(err):
		fmt.Fprintf(o.ErrOut, "warning: nothing answers there: there is no Service %s/%s yet; see `kubectl "+
			"localservice nodes %s -n %s`\n",
			ls.Namespace, name, ls.Name, ls.Namespace)
	case err != nil:
		return request{"get", servicesResource, ls.Namespace, name}.failed(err)
	case !metav1.IsControlledBy(service, ls):
		return fmt.Errorf("there is no URL of LocalService %s/%s on node %s: Service %s: %s",
			ls.Namespace, ls.Name, node, name, diagnose.Conflict(service))
	}
	return nil
}

func (o *urlOptions) urlByEndpoints(ctx context.Context, c *cluster, ls *v1alpha1.LocalService, node string,
	port *v1alpha1.ServicePort) (string, error) {
	slices, err := c.endpointSlices(ctx, ls.Namespace, naming.ServiceName(ls.Name, node))
	if err != nil {
		return "", err
	}
	url, err := diagnose.URL(ls, node, port, o.clusterDomain, slices)
	if err != nil {
		return "", fmt.Errorf("%w, and there are none for node %s: see `kubectl localservice nodes %s -n %s`",
			err, node, ls.Name, ls.Namespace)
	}
	return url, nil
}
