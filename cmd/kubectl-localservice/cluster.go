package main

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	clientset "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned"
)

// cluster is what the commands read from.
type cluster struct {
	namespace     string
	kube          kubernetes.Interface
	localServices clientset.Interface
	metadata      metadata.Interface // For nodes, of which the names are a small part.
}

// newCluster makes the clients that the flags ask for. They are not throttled: there are few requests, and the API
// server has its own priority and fairness.
func (p *plugin) newCluster() (*cluster, error) {
	namespace, _, err := p.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config, err := p.config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS = -1
	localServices, err1 := clientset.NewForConfig(config)
	meta, err2 := metadata.NewForConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	kube, err3 := kubernetes.NewForConfig(config)
	return &cluster{namespace, kube, localServices, meta}, errors.Join(err1, err2, err3)
}

func (c *cluster) localService(ctx context.Context, name string) (*v1alpha1.LocalService, error) {
	ls, err := c.localServices.LocalserviceV1alpha1().LocalServices(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if err = known(err); apierrors.IsNotFound(err) && !isUnknown(err) {
		return nil, fmt.Errorf("there is no LocalService %s/%s: `kubectl get localservices -n %s` lists those of "+
			"this namespace, -n chooses another one", c.namespace, name, c.namespace)
	}
	return ls, err
}

// isUnknown reports whether it is the resource that is not found: then the answer has no Status.
func isUnknown(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// known tells of an error that LocalServices are not installed, if that is why.
func known(err error) error {
	if isUnknown(err) {
		return fmt.Errorf("the cluster does not know LocalServices: install local-service-controller, by "+
			"install.yaml of a release or its Helm chart: %w", err)
	}
	return err
}

// read gets what a view of the nodes is made of, in one list for each resource: never a request for a node. Without
// pods, it is only good for the names. Many who may see all in a namespace may not see the cluster's nodes: then read
// returns those that have a name.
func (c *cluster) read(ctx context.Context, ls *v1alpha1.LocalService, withPods bool) (in diagnose.Input,
	allNodes bool, err error) {
	in.LocalService, in.Nodes = ls, map[string]labels.Set{}
	var reading errgroup.Group
	reading.Go(func() error {
		nodes, err := list[metav1.PartialObjectMetadata](ctx, ls.Spec.NodeSelector,
			c.metadata.Resource(corev1.SchemeGroupVersion.WithResource("nodes")).List)
		for _, node := range nodes {
			in.Nodes[node.Name] = node.Labels
		}
		if allNodes = !apierrors.IsForbidden(err); !allNodes {
			return nil
		}
		return err
	})
	reading.Go(func() (err error) {
		// Not only those with the label: another one may have taken a name.
		in.Services, err = list[corev1.Service](ctx, nil, c.kube.CoreV1().Services(ls.Namespace).List)
		return err
	})
	reading.Go(func() (err error) {
		in.EndpointSlices, err = list[discoveryv1.EndpointSlice](ctx, labels.Set{v1alpha1.OwnerLabelKey: ls.Name},
			c.kube.DiscoveryV1().EndpointSlices(ls.Namespace).List)
		return err
	})
	reading.Go(func() (err error) {
		if withPods {
			in.Pods, err = list[corev1.Pod](ctx, ls.Spec.Selector, c.kube.CoreV1().Pods(ls.Namespace).List)
		}
		return err
	})
	err = reading.Wait()
	if !allNodes {
		in.Nodes = diagnose.KnownNodes(in)
	}
	return in, allNodes, err
}

// names are those of a LocalService with mode Hostnames.
func (c *cluster) names(ctx context.Context, ls *v1alpha1.LocalService, clusterDomain string) ([]diagnose.Node, error) {
	in, _, err := c.read(ctx, ls, false)
	in.ClusterDomain = clusterDomain
	return diagnose.Nodes(in).Items, err
}

// list reads the objects that have some labels, in chunks.
func list[T any, L runtime.Object](ctx context.Context, with labels.Set,
	page func(context.Context, metav1.ListOptions) (L, error)) ([]*T, error) {
	selector, err := labels.ValidatedSelectorFromSet(with)
	if err != nil {
		return nil, nil // No object has a label that no object can have.
	}
	pages := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return page(ctx, opts)
	})
	opts := metav1.ListOptions{LabelSelector: selector.String()}
	var items []*T
	err = pages.EachListItem(ctx, opts, func(item runtime.Object) error {
		items = append(items, any(item).(*T))
		return nil
	})
	return items, err
}
