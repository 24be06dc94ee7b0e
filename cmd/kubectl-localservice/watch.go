package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// watchDelay is for how long changes are gathered: a rollout or a new node makes many at a time.
const watchDelay = 200 * time.Millisecond

// news is what a watch reports, each time that something has changed.
type news struct {
	// loaded is whether the cluster has been read. Before that there are only problems.
	loaded bool
	// lists are the LocalServices of which something has changed, nil for one that is gone.
	lists map[types.NamespacedName]*diagnose.NodeList
	// problems say what keeps the watch from hearing of changes, now.
	problems []string
}

// watcher follows what LocalServices are made of, with the rights of the user. Handlers note which LocalServices an
// event concerns; what those look like now is decided from the caches, by diagnose.
type watcher struct {
	*cluster
	name          string // of the only LocalService to look at, "" for all in the namespace
	clusterDomain string
	allNodes      bool // may be listed

	localServices, nodes, services, endpointSlices, pods cache.Indexer
	informers                                            []cache.Controller

	wake chan struct{}

	mu       sync.Mutex
	loaded   bool
	touched  map[types.NamespacedName]bool
	problems map[string]string // by resource
}

// newWatcher finds out whether the user may read what a watch needs. Those who may not list nodes see the nodes that
// have a name.
func (c *cluster) newWatcher(ctx context.Context, name, clusterDomain string) (*watcher, error) {
	w := &watcher{cluster: c, name: name, clusterDomain: clusterDomain, wake: make(chan struct{}, 1),
		touched: map[types.NamespacedName]bool{}, problems: map[string]string{}}
	var asking errgroup.Group
	for _, source := range w.sources() {
		asking.Go(func() error {
			_, err := source.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
			if source.resource == nodesResource {
				if w.allNodes = !apierrors.IsForbidden(err); !w.allNodes {
					return nil
				}
			}
			return known(err)
		})
	}
	if err := asking.Wait(); err != nil {
		return nil, err
	}
	for _, source := range w.sources() {
		indexer, informer := w.newInformer(source)
		*source.into = indexer
		if source.resource != nodesResource || w.allNodes {
			w.informers = append(w.informers, informer)
		}
	}
	return w, nil
}

// run tells what there is, and then what changes, until ctx is done.
func (w *watcher) run(ctx context.Context, tell func(news)) {
	var running sync.WaitGroup
	defer running.Wait()
	var synced []cache.InformerSynced
	for _, informer := range w.informers {
		synced = append(synced, informer.HasSynced)
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), synced...) {
			w.load()
		}
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchDelay):
		}
		tell(w.news())
	}
}

// load has all LocalServices looked at.
func (w *watcher) load() {
	w.mu.Lock()
	w.loaded = true
	w.mu.Unlock()
	w.touch(func(*v1alpha1.LocalService) bool { return true }, metav1.NamespaceAll)
	w.signal()
}

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // It is awake.
	}
}

// touch notes that something has changed about the LocalServices of a namespace that an event concerns. Until all is
// read, all of them will be looked at anyway.
func (w *watcher) touch(concerns func(*v1alpha1.LocalService) bool, namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.loaded {
		return
	}
	for _, ls := range inNamespace[v1alpha1.LocalService](w.localServices, namespace) {
		if concerns(ls) {
			w.touched[keyOf(ls)] = true
		}
	}
	if len(w.touched) > 0 {
		w.signal()
	}
}

// touchKey is touch for one LocalService, which may be gone.
func (w *watcher) touchKey(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.loaded {
		w.touched[key] = true
		w.signal()
	}
}

func (w *watcher) news() news {
	w.mu.Lock()
	n := news{loaded: w.loaded, lists: map[types.NamespacedName]*diagnose.NodeList{}}
	for _, resource := range slices.Sorted(maps.Keys(w.problems)) {
		if !slices.Contains(n.problems, w.problems[resource]) {
			n.problems = append(n.problems, w.problems[resource])
		}
	}
	touched := w.touched
	w.touched = map[types.NamespacedName]bool{}
	w.mu.Unlock()
	for key := range touched {
		n.lists[key] = w.list(key)
	}
	return n
}

// list is what is known of a LocalService now, nil if there is none.
func (w *watcher) list(key types.NamespacedName) *diagnose.NodeList {
	object, found, _ := w.localServices.GetByKey(key.String())
	if !found {
		return nil
	}
	ls := object.(*v1alpha1.LocalService)
	in := diagnose.Input{
		LocalService:   ls,
		Nodes:          map[string]labels.Set{},
		Services:       inNamespace[corev1.Service](w.services, ls.Namespace),
		EndpointSlices: inNamespace[discoveryv1.EndpointSlice](w.endpointSlices, ls.Namespace),
		Pods:           inNamespace[corev1.Pod](w.pods, ls.Namespace),
		ClusterDomain:  w.clusterDomain,
	}
	in.Services = slices.DeleteFunc(in.Services, func(s *corev1.Service) bool { return !mayBeOf(s, ls) })
	in.EndpointSlices = slices.DeleteFunc(in.EndpointSlices, func(s *discoveryv1.EndpointSlice) bool {
		return s.Labels[v1alpha1.OwnerLabelKey] != ls.Name
	})
	for _, node := range inNamespace[metav1.PartialObjectMetadata](w.nodes, metav1.NamespaceAll) {
		if selectsNode(ls, node.Labels) {
			in.Nodes[node.Name] = node.Labels
		}
	}
	if !w.allNodes {
		in.Nodes = diagnose.KnownNodes(in)
	}
	return diagnose.Nodes(in)
}

// mayBeOf reports whether the name of a Service may be one that a LocalService needs: all of them begin with its own.
func mayBeOf(service *corev1.Service, ls *v1alpha1.LocalService) bool {
	return strings.HasPrefix(service.Name, ls.Name)
}

func selectsNode(ls *v1alpha1.LocalService, node map[string]string) bool {
	selector, err := labels.ValidatedSelectorFromSet(ls.Spec.NodeSelector)
	return err == nil && selector.Matches(labels.Set(node))
}

func selectsPod(ls *v1alpha1.LocalService, pod map[string]string) bool {
	return labels.SelectorFromSet(ls.Spec.Selector).Matches(labels.Set(pod))
}

func keyOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// inNamespace are the objects of a cache in a namespace, or in all, as those are listed. The slice is the caller's.
func inNamespace[T any](indexer cache.Indexer, namespace string) []*T {
	all := indexer.List
	if namespace != metav1.NamespaceAll {
		all = func() []any {
			objects, _ := indexer.ByIndex(cache.NamespaceIndex, namespace) // Fails only without that index.
			return objects
		}
	}
	objects := all()
	typed := make([]*T, len(objects))
	for i := range objects {
		typed[i] = objects[i].(*T)
	}
	return typed
}

// whyNoWatch is the same text each time that a watch is tried again. That the cluster cannot be reached concerns all
// resources; the error then has an address with parameters in it, which are others each time.
func whyNoWatch(resource string, err error) string {
	if unreachable, ok := errors.AsType[*url.Error](err); ok {
		err = unreachable.Err
		if cause, ok := errors.AsType[*net.OpError](err); ok {
			err = cause
		}
		return fmt.Sprintf("the cluster cannot be reached, trying again: %v", err)
	}
	return fmt.Sprintf("cannot watch %s, trying again: %v", resource, explained(err))
}

// problem notes why a resource cannot be watched, or that it can. Those that end by reading it again are none.
func (w *watcher) problem(ctx context.Context, resource string, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) ||
		apierrors.IsTimeout(err) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.problems[resource]
	delete(w.problems, resource)
	if err != nil {
		w.problems[resource] = whyNoWatch(resource, err)
	}
	if w.problems[resource] != before {
		w.signal()
	}
}
