package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/fanout"
	clientset "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned"
	informers "github.com/localservice-dev/local-service-controller/pkg/generated/informers/externalversions/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/preflight"
	"github.com/localservice-dev/local-service-controller/pkg/slim"
)

// scheduledPods leaves out, at the API server, the pods that no label is of use to.
var scheduledPods = fields.AndSelectors(
	fields.OneTermNotEqualSelector("spec.nodeName", ""),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
).String()

// dependencies are what the controllers are made of: clients, caches, and what the flags say.
type dependencies struct {
	kube     kubernetes.Interface
	client   clientset.Interface
	recorder events.EventRecorder
	clock    clock.WithTicker

	localServices, nodes, services, endpointSlices, pods cache.SharedIndexInformer
	serviceCIDRs                                         cache.SharedIndexInformer // nil where the API server has none

	nodeLabelKey     string
	labelAllPods     bool
	writeConcurrency int
	limits           fanout.Limits
}

// addInformers makes the caches, each of which keeps only what we read. LocalServices are compared again every resync
// period, 0 for never.
func (d *dependencies) addInformers(meta metadata.Interface, resync time.Duration) error {
	d.localServices = informers.NewLocalServiceInformer(d.client, metav1.NamespaceAll, resync, cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
	})
	d.nodes = metadatainformer.NewFilteredMetadataInformer(meta, corev1.SchemeGroupVersion.WithResource("nodes"), metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	d.services = coreinformers.NewServiceInformer(d.kube, metav1.NamespaceAll, 0, cache.Indexers{})
	d.endpointSlices = discoveryinformers.NewFilteredEndpointSliceInformer(d.kube, metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		// EndpointSlices have the labels of their Services, and ours have these.
		o.LabelSelector = v1alpha1.OwnerLabelKey + "," + d.nodeLabelKey
	})
	if hasServiceCIDRs(d.kube) {
		d.serviceCIDRs = networkinginformers.NewServiceCIDRInformer(d.kube, 0, cache.Indexers{})
	}
	d.pods = coreinformers.NewFilteredPodInformer(d.kube, metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = scheduledPods
	})
	var errs []error
	for _, i := range d.informers() {
		errs = append(errs,
			i.informer.SetTransform(i.transform),
			i.informer.SetWatchErrorHandlerWithContext(preflight.WatchErrorHandler(i.resource)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("set up caches: %w", err)
	}
	return nil
}

type namedInformer struct {
	resource  string
	informer  cache.SharedIndexInformer
	transform cache.TransformFunc
}

func (d *dependencies) informers() []namedInformer {
	all := []namedInformer{
		{"localservices." + v1alpha1.GroupName, d.localServices, stripManagedFields},
		{"nodes", d.nodes, trimNode},
		{"services", d.services, trimService(d.nodeLabelKey)},
		{"endpointslices.discovery.k8s.io", d.endpointSlices, trimEndpointSlice},
		{"pods", d.pods, trimPod(d.nodeLabelKey)},
	}
	if d.serviceCIDRs != nil {
		all = append(all, namedInformer{"servicecidrs.networking.k8s.io", d.serviceCIDRs, stripManagedFields})
	}
	return all
}

// hasServiceCIDRs says whether the API server tells the addresses that it has for Services: from Kubernetes 1.33 on.
func hasServiceCIDRs(kube kubernetes.Interface) bool {
	resources, err := kube.Discovery().ServerResourcesForGroupVersion(networkingv1.SchemeGroupVersion.String())
	return err == nil && slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == "servicecidrs" })
}

// startInformers begins to fill the caches. The function that it returns waits, after ctx is done, until they stop.
func (d *dependencies) startInformers(ctx context.Context) (wait func()) {
	var running sync.WaitGroup
	for _, i := range d.informers() {
		running.Go(func() { i.informer.RunWithContext(ctx) })
	}
	return running.Wait
}

// waitForCaches waits until the caches are filled, and returns false if ctx is done before.
func (d *dependencies) waitForCaches(ctx context.Context) bool {
	var synced []cache.InformerSynced
	for _, i := range d.informers() {
		synced = append(synced, i.informer.HasSynced)
	}
	return cache.WaitForCacheSync(ctx.Done(), synced...)
}

func stripManagedFields(obj any) (any, error) {
	if object, ok := obj.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

// trim makes the transform function of a cache from one that makes little of a whole object. What has been trimmed before,
// and tombstones, stay as they are.
func trim[T any](little func(full T) (any, error)) cache.TransformFunc {
	return func(obj any) (any, error) {
		full, ok := obj.(T)
		if !ok {
			return obj, nil
		}
		return little(full)
	}
}

// trimService is the transform function of the cache of Services.
func trimService(nodeLabelKey string) cache.TransformFunc {
	return trim(func(full *corev1.Service) (any, error) { return fanout.NewService(full, nodeLabelKey) })
}

// node is what the cache keeps of a Node: what tells whether a LocalService selects it.
type node struct {
	slim.Identity
	labels slim.Labels
}

// trimNode is the transform function of the cache of Nodes.
var trimNode = trim(func(full *metav1.PartialObjectMetadata) (any, error) {
	return &node{Identity: slim.IdentityOf(full), labels: slim.LabelsOf(full.Labels)}, nil
})

// DeepCopyObject makes a node a runtime.Object, so that the cache mutation detector watches over it.
func (n *node) DeepCopyObject() runtime.Object { return new(*n) }
