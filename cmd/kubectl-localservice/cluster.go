package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/component-base/version"

	"github.com/localservice-dev/local-service-controller/internal/diagnose"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	clientset "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned"
)

var (
	localServicesResource  = v1alpha1.SchemeGroupVersion.WithResource("localservices")
	nodesResource          = corev1.SchemeGroupVersion.WithResource("nodes")
	namespacesResource     = corev1.SchemeGroupVersion.WithResource("namespaces")
	servicesResource       = corev1.SchemeGroupVersion.WithResource("services")
	podsResource           = corev1.SchemeGroupVersion.WithResource("pods")
	endpointSlicesResource = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
)

// cluster is what the commands read from.
type cluster struct {
	namespace     string
	kube          kubernetes.Interface
	localServices clientset.Interface
	metadata      metadata.Interface
}

// newCluster makes the clients that the flags ask for. They are not throttled: there are few requests, and the API
// server has its own priority and fairness.
func (p *plugin) newCluster() (*cluster, error) {
	namespace, _, err := p.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, configFailed(err)
	}
	config, err := p.config.ToRESTConfig()
	if err != nil {
		return nil, configFailed(err)
	}
	if err := p.checkHost(config); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.UserAgent = "kubectl-localservice/" + programVersion(version.Get().GitVersion)
	config.WarningHandlerWithContext = rest.NoWarnings{} // About API versions: of no use to who did not choose them.
	localServices, err1 := clientset.NewForConfig(config)
	meta, err2 := metadata.NewForConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	kube, err3 := kubernetes.NewForConfig(config)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, fmt.Errorf("make clients for %s: %w", config.Host, err)
	}
	return &cluster{namespace: namespace, kube: kube, localServices: localServices, metadata: meta}, nil
}

func (c *cluster) localService(ctx context.Context, name string) (*v1alpha1.LocalService, error) {
	ls, err := c.localServices.LocalserviceV1alpha1().LocalServices(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, request{"get", localServicesResource, c.namespace, name}.failed(err)
	}
	return ls, nil
}

// read gets all that a view of the nodes is made of, in one list for each resource: never a request for a node.
// What could not be had, and is not needed, is in the warnings.
func (c *cluster) read(ctx context.Context, ls *v1alpha1.LocalService, chunkSize int64) (in diagnose.Input,
	warnings []string, err error) {
	in.LocalService = ls
	owned := labels.Set{v1alpha1.OwnerLabelKey: ls.Name}
	var nodesErr, servicesErr, slicesErr, podsErr error
	var reading sync.WaitGroup
	reading.Go(func() { in.Nodes, nodesErr = c.nodes(ctx, ls, chunkSize) })
	reading.Go(func() {
		in.Services, servicesErr = list[corev1.Service](ctx, servicesResource, ls.Namespace, owned, chunkSize,
			pageOf(c.kube.CoreV1().Services(ls.Namespace).List))
	})
	reading.Go(func() {
		in.EndpointSlices, slicesErr = list[discoveryv1.EndpointSlice](ctx, endpointSlicesResource, ls.Namespace,
			owned, chunkSize, pageOf(c.kube.DiscoveryV1().EndpointSlices(ls.Namespace).List))
	})
	reading.Go(func() {
		in.Pods, podsErr = list[corev1.Pod](ctx, podsResource, ls.Namespace, ls.Spec.Selector, chunkSize,
			pageOf(c.kube.CoreV1().Pods(ls.Namespace).List))
	})
	reading.Wait()
	if apierrors.IsForbidden(nodesErr) && servicesErr == nil {
		// Many who may see all in a namespace may not see the cluster's nodes.
		in.Nodes, nodesErr = diagnose.NodesOfServices(ls, in.Services), nil
		warnings = append(warnings, "you may not list nodes, so that nodes without a Service of this "+
			"LocalService are not shown")
	}
	if err := errors.Join(nodesErr, servicesErr, slicesErr, podsErr); err != nil {
		return in, nil, err
	}
	if len(diagnose.MissingServices(in)) > 0 {
		in.OtherServices, err = list[metav1.PartialObjectMetadata](ctx, servicesResource, ls.Namespace, nil,
			chunkSize, pageOf(c.metadata.Resource(servicesResource).Namespace(ls.Namespace).List))
	}
	return in, warnings, err
}

func (c *cluster) nodes(ctx context.Context, ls *v1alpha1.LocalService,
	chunkSize int64) ([]*metav1.PartialObjectMetadata, error) {
	return list[metav1.PartialObjectMetadata](ctx, nodesResource, "", ls.Spec.NodeSelector, chunkSize,
		pageOf(c.metadata.Resource(nodesResource).List))
}

func (c *cluster) endpointSlices(ctx context.Context, namespace, service string) ([]discoveryv1.EndpointSlice, error) {
	slices, err := c.kube.DiscoveryV1().EndpointSlices(namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return nil, request{"list", endpointSlicesResource, namespace, ""}.failed(err)
	}
	return slices.Items, nil
}

// pageOf makes the list method of a client fit for a pager.
func pageOf[L runtime.Object](method func(context.Context, metav1.ListOptions) (L, error)) pager.ListPageFunc {
	return func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) { return method(ctx, opts) }
}
