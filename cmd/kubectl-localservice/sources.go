package main

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const nodesResource = "nodes"

// source is a resource that a watcher follows.
type source struct {
	cache.ListWatch

	resource string
	object   runtime.Object
	client   any
	into     *cache.Indexer
	// changed is told the state of an object before and after an event, nil where there is none.
	changed func(before, after any)
}

// lister is what all clients of a resource have. The context and the options are those of a request.
type lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// newSource makes a source of the objects that an option narrows down.
func newSource[L runtime.Object](resource string, client any, objects lister[L],
	narrow func(*metav1.ListOptions)) *source {
	s := &source{resource: resource, client: client}
	s.ListWithContextFunc = func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		narrow(&opts)
		return objects.List(ctx, opts)
	}
	s.WatchFuncWithContext = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		narrow(&opts)
		return objects.Watch(ctx, opts)
	}
	return s
}

func (w *watcher) sources() []*source {
	all := func(*metav1.ListOptions) {}
	ls := newSource("localservices", w.cluster.localServices,
		w.cluster.localServices.LocalserviceV1alpha1().LocalServices(w.namespace), func(opts *metav1.ListOptions) {
			if w.name != "" {
				opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String()
			}
		})
	ls.object, ls.into, ls.changed = &v1alpha1.LocalService{}, &w.localServices, w.localServiceChanged

	nodes := newSource(nodesResource, w.metadata,
		w.metadata.Resource(corev1.SchemeGroupVersion.WithResource(nodesResource)), all)
	nodes.object, nodes.into, nodes.changed = &metav1.PartialObjectMetadata{}, &w.nodes, w.nodeChanged

	// Not only those with the label: another one may have taken a name.
	services := newSource("services", w.kube, w.kube.CoreV1().Services(w.namespace), all)
	services.object, services.into, services.changed = &corev1.Service{}, &w.services, w.serviceChanged

	slices := newSource("endpointslices", w.kube, w.kube.DiscoveryV1().EndpointSlices(w.namespace),
		func(opts *metav1.ListOptions) { opts.LabelSelector = w.ownerSelector() })
	slices.object, slices.into, slices.changed = &discoveryv1.EndpointSlice{}, &w.endpointSlices, w.sliceChanged

	pods := newSource("pods", w.kube, w.kube.CoreV1().Pods(w.namespace), all)
	pods.object, pods.into, pods.changed = &corev1.Pod{}, &w.pods, w.podChanged
	return []*source{ls, nodes, services, slices, pods}
}

// ownerSelector selects what has the label of the LocalService, or of any.
func (w *watcher) ownerSelector() string {
	if w.name != "" {
		return labels.FormatLabels(labels.Set{v1alpha1.OwnerLabelKey: w.name})
	}
	exists, err := labels.NewRequirement(v1alpha1.OwnerLabelKey, selection.Exists, nil)
	if err != nil {
		panic(err) // The key is ours.
	}
	return exists.String()
}

// newInformer makes a cache of a source, which notes what goes wrong with it.
func (w *watcher) newInformer(s *source) (cache.Indexer, cache.Controller) {
	noted := cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, err := s.ListWithContext(ctx, opts)
			if err != nil { // A list that works does not tell whether the watch will.
				w.problem(ctx, s.resource, err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			watching, err := s.WatchWithContext(ctx, opts)
			w.problem(ctx, s.resource, err)
			return watching, err
		},
	}
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(&noted, s.client),
		ObjectType:    s.object,
		Transform:     diagnose.Trim,
		Indexers:      cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { s.changed(nil, object) },
			UpdateFunc: s.changed,
			DeleteFunc: func(object any) {
				if tombstone, isTombstone := object.(cache.DeletedFinalStateUnknown); isTombstone {
					object = tombstone.Obj
				}
				s.changed(object, nil)
			},
		},
	})
	return store.(cache.Indexer), controller
}

// either calls a function for the state before and after, where there is one, until it returns true.
func either[T any](before, after any, is func(*T) bool) bool {
	for _, object := range []any{after, before} {
		if typed, ok := object.(*T); ok && is(typed) {
			return true
		}
	}
	return false
}

func (w *watcher) localServiceChanged(before, after any) {
	either(before, after, func(ls *v1alpha1.LocalService) bool {
		w.touchKey(keyOf(ls))
		return true
	})
}

// nodeChanged goes by labels: of a node nothing else matters, and its heartbeat changes the rest all the time.
func (w *watcher) nodeChanged(before, after any) {
	was, existed := before.(*metav1.PartialObjectMetadata)
	is, exists := after.(*metav1.PartialObjectMetadata)
	if existed && exists && maps.Equal(was.Labels, is.Labels) {
		return
	}
	w.touch(func(ls *v1alpha1.LocalService) bool {
		return either(before, after, func(node *metav1.PartialObjectMetadata) bool { return selectsNode(ls, node.Labels) })
	}, metav1.NamespaceAll)
}

func (w *watcher) serviceChanged(before, after any) {
	either(before, after, func(service *corev1.Service) bool {
		w.touch(func(ls *v1alpha1.LocalService) bool { return mayBeOf(service, ls) }, service.Namespace)
		return true
	})
}

func (w *watcher) sliceChanged(before, after any) {
	either(before, after, func(slice *discoveryv1.EndpointSlice) bool {
		owner := slice.Labels[v1alpha1.OwnerLabelKey]
		w.touch(func(ls *v1alpha1.LocalService) bool { return ls.Name == owner }, slice.Namespace)
		return false
	})
}

func (w *watcher) podChanged(before, after any) {
	either(before, after, func(pod *corev1.Pod) bool {
		w.touch(func(ls *v1alpha1.LocalService) bool { return selectsPod(ls, pod.Labels) }, pod.Namespace)
		return false
	})
}
