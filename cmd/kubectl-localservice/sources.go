package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// source is a resource that a watcher reads, and what it has read.
type source struct {
	cache.SharedIndexInformer
	cache.ListWatch

	resource string
	// labels returns the labels of the objects that concern a LocalService, none for all objects.
	labels func(*v1alpha1.LocalService) labels.Set
	// hasSynced reports whether each object of the initial list has led to an event.
	hasSynced cache.InformerSynced
}

// concerns reports whether an object may be a part of a LocalService.
func (s *source) concerns(object metav1.Object, ls *v1alpha1.LocalService) bool {
	switch s.resource { // Others may have taken a name: all names begin with that of the LocalService.
	case "services":
		return strings.HasPrefix(object.GetName(), ls.Name)
	case otherSlices:
		return strings.HasPrefix(object.GetLabels()[discoveryv1.LabelServiceName], ls.Name)
	case "nodes":
		return plan.Selects(ls, object.GetName(), labels.Set(object.GetLabels()))
	}
	return selectorOf(s.labels(ls)).Matches(labels.Set(object.GetLabels()))
}

// otherSlices are EndpointSlices that Kubernetes does not make for a Service's pods, and that are not the controller's:
// few, if any.
const otherSlices = "other endpointslices"

// selectorOf selects nothing by a label that no object can have.
func selectorOf(set labels.Set) labels.Selector {
	selector, err := labels.ValidatedSelectorFromSet(set)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// lister lists and watches a resource, as all clients do.
type lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// newSource makes a source of the objects that the selectors in an option select.
func newSource[L runtime.Object](w *watcher, resource string, object runtime.Object, client any, objects lister[L],
	only metav1.ListOptions, labelsOf func(*v1alpha1.LocalService) labels.Set) *source {
	narrow := func(opts *metav1.ListOptions) {
		opts.FieldSelector = cmp.Or(only.FieldSelector, opts.FieldSelector)
		opts.LabelSelector = cmp.Or(only.LabelSelector, opts.LabelSelector)
	}
	s := &source{resource: resource, labels: labelsOf}
	s.ListWithContextFunc = func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		narrow(&opts)
		return objects.List(ctx, opts)
	}
	s.WatchFuncWithContext = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		narrow(&opts)
		watching, err := objects.Watch(ctx, opts)
		w.problem(ctx, resource, err)
		return watching, err
	}
	s.SharedIndexInformer = cache.NewSharedIndexInformer(
		cache.ToListWatcherWithWatchListSemantics(&s.ListWatch, client),
		object, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	typed := cache.NewTypedSharedIndexInformer[metav1.Object](s)
	registration, err := typed.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[metav1.Object]{
		AddFunc: func(object metav1.Object) { w.changed(s, object) },
		UpdateFunc: func(before, after metav1.Object) {
			if !isHeartbeat(before, after) {
				w.changed(s, before)
				w.changed(s, after)
			}
		},
		DeleteFunc: func(gone cache.DeletedObject[metav1.Object]) {
			if gone.OptionalObj != nil {
				w.changed(s, gone.OptionalObj)
			}
		},
	})
	utilruntime.Must(err) // The informer has not been stopped.
	s.hasSynced = registration.HasSynced
	utilruntime.Must(s.SetTransform(diagnose.Trim))
	utilruntime.Must(s.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		w.problem(ctx, resource, err) // Also of a list. A list that succeeds does not show that the watch will.
	}))
	return s
}

// isHeartbeat reports whether a node has changed in nothing that matters, as it does all the time.
func isHeartbeat(before, after metav1.Object) bool {
	was, isNode := before.(*corev1.Node)
	now, _ := after.(*corev1.Node)
	return isNode && maps.Equal(was.Labels, now.Labels) &&
		reflect.DeepEqual(diagnose.NodeStateOf(was), diagnose.NodeStateOf(now))
}

// newWatcher makes a watcher of one LocalService in the namespace or, without a name, of all.
func (c *cluster) newWatcher(name, clusterDomain string) *watcher {
	w := &watcher{clusterDomain: clusterDomain, allNodes: true, findController: c.controller, wake: make(chan struct{}, 1),
		touched: map[types.NamespacedName]bool{}, problems: map[string]string{},
		owners: owners{kube: c.kube, known: map[string]ownerKeys{}}}
	var named, owned metav1.ListOptions
	owned.LabelSelector = v1alpha1.OwnerLabelKey
	if name != "" {
		named.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		owned.LabelSelector = labels.FormatLabels(labels.Set{v1alpha1.OwnerLabelKey: name})
	}
	w.localServices = newSource(w, "localservices", &v1alpha1.LocalService{}, c.localServices,
		c.localServices.LocalserviceV1alpha1().LocalServices(c.namespace), named, nil)
	w.nodes = newSource(w, "nodes", &corev1.Node{}, c.kube, c.kube.CoreV1().Nodes(), metav1.ListOptions{},
		func(ls *v1alpha1.LocalService) labels.Set { return ls.Spec.NodeSelector })
	w.services = newSource(w, "services", &corev1.Service{}, c.kube, c.kube.CoreV1().Services(c.namespace),
		metav1.ListOptions{}, func(*v1alpha1.LocalService) labels.Set { return nil })
	w.endpointSlices = newSource(w, "endpointslices", &discoveryv1.EndpointSlice{}, c.kube,
		c.kube.DiscoveryV1().EndpointSlices(c.namespace), owned,
		func(ls *v1alpha1.LocalService) labels.Set { return labels.Set{v1alpha1.OwnerLabelKey: ls.Name} })
	w.otherSlices = newSource(w, otherSlices, &discoveryv1.EndpointSlice{}, c.kube,
		c.kube.DiscoveryV1().EndpointSlices(c.namespace), metav1.ListOptions{LabelSelector: fmt.Sprintf(
			"%s,!%s,%s notin (%s,%s)", discoveryv1.LabelServiceName, v1alpha1.OwnerLabelKey, discoveryv1.LabelManagedBy,
			plan.KubernetesSliceManager, v1alpha1.EndpointSliceManager)},
		func(*v1alpha1.LocalService) labels.Set { return nil })
	w.pods = newSource(w, "pods", &corev1.Pod{}, c.kube, c.kube.CoreV1().Pods(c.namespace), metav1.ListOptions{},
		func(ls *v1alpha1.LocalService) labels.Set { return ls.Spec.Selector })
	return w
}

// read reads once what LocalServices are made of, with one list of each resource: one LocalService, or with nil all of
// the namespace. Pods are not needed for the names.
func (c *cluster) read(ctx context.Context, ls *v1alpha1.LocalService, clusterDomain string, withPods bool) (*watcher,
	error) {
	name, sources := "", []*source(nil)
	if ls != nil {
		name = ls.Name
	}
	w := c.newWatcher(name, clusterDomain)
	for _, s := range w.sources() {
		if (s != w.localServices || ls == nil) && (s != w.pods || withPods) {
			sources = append(sources, s)
		}
	}
	w.podsUnknown = !withPods
	var reading errgroup.Group
	if withPods { // Only they are diagnosed.
		reading.Go(func() error {
			w.controller = c.controller(ctx)
			return nil
		})
	}
	err := w.each(sources, func(s *source) error {
		opts := metav1.ListOptions{}
		if ls != nil {
			opts.LabelSelector = selectorOf(s.labels(ls)).String()
		}
		return pager.New(s.ListWithContext).EachListItem(ctx, opts, func(object runtime.Object) error {
			trimmed, err := diagnose.Trim(object)
			if err != nil {
				return err
			}
			return s.GetIndexer().Add(trimmed)
		})
	})
	return w, errors.Join(err, reading.Wait())
}

// check finds out whether the user may read what a watch needs.
func (w *watcher) check(ctx context.Context) error {
	return w.each(w.sources(), func(s *source) error {
		_, err := s.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
}

// each reads from some sources at the same time. Many users who may see everything in a namespace may not list nodes:
// they see the nodes that have a name.
func (w *watcher) each(sources []*source, read func(*source) error) error {
	var reading errgroup.Group
	var forbidden atomic.Bool
	for _, s := range sources {
		reading.Go(func() error {
			err := read(s)
			if s == w.nodes && apierrors.IsForbidden(err) {
				forbidden.Store(true)
				return nil
			}
			return known(err)
		})
	}
	err := reading.Wait()
	w.allNodes = w.allNodes && !forbidden.Load()
	return err
}

func (w *watcher) sources() []*source {
	return []*source{w.localServices, w.nodes, w.services, w.endpointSlices, w.otherSlices, w.pods}
}
