package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/view"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// snapshotInterval separates two snapshots of a watch, at least. After one that takes long, the pause is three
	// times as long.
	snapshotInterval = time.Second
	// controllerPoll is how often a watch looks at the controller's Lease.
	controllerPoll = 10 * time.Second
)

// objects holds what LocalServices are made of, as the user may read it: listed once, or followed by informers. All
// commands see it through snapshots.
type objects struct {
	*cluster
	*choice

	one      *v1alpha1.LocalService // as the command found it; nil for several
	allNodes bool                   // may be listed
	withPods bool
	follows  bool // what changes

	localServices, nodes, services, endpointSlices, pods *source

	around *utilcache.Expiring // see keep
	wake   chan struct{}

	mu         sync.Mutex
	controller diagnose.Controller
	problems   map[string]string // by resource
}

// source reads a resource.
type source struct {
	cache.SharedIndexInformer
	cache.ListWatch
}

// snapshot holds what a watch reports. Before the cluster has been read, there are only problems.
type snapshot struct {
	view.Status

	lists []*diagnose.NodeList
}

// newObjects makes the sources for one LocalService or, with nil, for those of the namespace.
func (c *cluster) newObjects(one *v1alpha1.LocalService, chosen *choice) *objects {
	o := &objects{cluster: c, choice: chosen, one: one, allNodes: true, withPods: true,
		wake: make(chan struct{}, 1), problems: map[string]string{}, around: utilcache.NewExpiring()}
	only := ""
	if one != nil {
		only = fields.OneTermEqualSelector(metav1.ObjectNameField, one.Name).String()
	}
	o.localServices = newSource(o, "localservices", &v1alpha1.LocalService{},
		c.localServices.LocalserviceV1alpha1().LocalServices(c.namespace), only)
	o.nodes = newSource(o, "nodes", &corev1.Node{}, c.kube.CoreV1().Nodes(), "")
	o.services = newSource(o, "services", &corev1.Service{}, c.kube.CoreV1().Services(c.namespace), "")
	o.endpointSlices = newSource(o, "endpointslices", &discoveryv1.EndpointSlice{},
		c.kube.DiscoveryV1().EndpointSlices(c.namespace), "")
	o.pods = newSource(o, "pods", &corev1.Pod{}, c.kube.CoreV1().Pods(c.namespace), "")
	return o
}

// lister lists and watches a resource, as all clients do.
type lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// newSource makes a source of the objects that a field selector selects.
func newSource[L runtime.Object](o *objects, resource string, object runtime.Object, api lister[L],
	only string) *source {
	s := &source{}
	s.ListWithContextFunc = func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		opts.FieldSelector = only
		return api.List(ctx, opts)
	}
	s.WatchFuncWithContext = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		opts.FieldSelector = only
		watching, err := api.Watch(ctx, opts)
		o.addProblem(ctx, resource, err)
		return watching, err
	}
	s.SharedIndexInformer = cache.NewSharedIndexInformer(
		cache.ToListWatcherWithWatchListSemantics(&s.ListWatch, s),
		object, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	_, err := s.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { o.signal() },
		UpdateFunc: func(any, any) { o.signal() }, DeleteFunc: func(any) { o.signal() }})
	utilruntime.Must(err) // The informer has not been stopped.
	utilruntime.Must(s.SetTransform(trim))
	utilruntime.Must(s.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		o.addProblem(ctx, resource, err) // Also of a list. A list that succeeds does not show that the watch will.
	}))
	return s
}

// trim drops the largest fields that nothing reads, before an object is kept.
func trim(object any) (any, error) {
	if o, isObject := object.(metav1.Object); isObject { // A tombstone is none.
		o.SetManagedFields(nil)
	}
	if node, isNode := object.(*corev1.Node); isNode {
		node.Status.Images = nil
	}
	return object, nil
}

// IsWatchListSemanticsUnSupported keeps informers from streaming lists: behind a proxy that drops bookmarks, they would
// wait for the end of the list without end.
func (*source) IsWatchListSemanticsUnSupported() bool { return true }

func (o *objects) sources() []*source {
	sources := []*source{o.localServices, o.services, o.endpointSlices}
	if o.allNodes {
		sources = append(sources, o.nodes)
	}
	if o.withPods {
		sources = append(sources, o.pods)
	}
	return sources
}

// read lists everything once.
func (o *objects) read(ctx context.Context) error {
	var reading sync.WaitGroup
	defer reading.Wait()
	if o.withPods { // Only they are diagnosed.
		reading.Go(func() { o.setController(ctx) })
	}
	return o.each(func(s *source) error {
		opts := metav1.ListOptions{}
		if o.one != nil && s == o.localServices {
			return s.GetIndexer().Add(o.one)
		}
		if o.one != nil && s == o.pods {
			opts.LabelSelector = selectorOf(o.one.Spec.Selector).String()
		}
		return pager.New(s.ListWithContext).EachListItem(ctx, opts, func(object runtime.Object) error {
			trimmed, _ := trim(object)
			return s.GetIndexer().Add(trimmed)
		})
	})
}

// selectorOf selects nothing by a label that no object can have.
func selectorOf(set labels.Set) labels.Selector {
	selector, err := labels.ValidatedSelectorFromSet(set)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// check finds out whether the user may read what a watch needs.
func (o *objects) check(ctx context.Context) error {
	return o.each(func(s *source) error {
		_, err := s.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
}

// each reads from all sources at the same time. Many users who may see everything in a namespace may not list nodes:
// they see the nodes that have a name.
func (o *objects) each(read func(*source) error) error {
	var reading errgroup.Group
	isForbidden := false
	for _, s := range o.sources() {
		reading.Go(func() error {
			err := read(s)
			if s == o.nodes && apierrors.IsForbidden(err) {
				isForbidden = true
				return nil
			}
			return known(err)
		})
	}
	err := reading.Wait()
	o.allNodes = !isForbidden
	return err
}

// lists returns the findings about the chosen LocalServices, by namespace and name.
func (o *objects) lists(ctx context.Context) (lists []*diagnose.NodeList) {
	all := slices.DeleteFunc(inNamespace[v1alpha1.LocalService](o.localServices, metav1.NamespaceAll),
		func(ls *v1alpha1.LocalService) bool { return !o.has(ls) })
	natural := diagnose.Natural()
	slices.SortFunc(all, func(a, b *v1alpha1.LocalService) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), natural(a.Name, b.Name))
	})
	var in diagnose.Input
	for i, ls := range all {
		if i == 0 || ls.Namespace != all[i-1].Namespace {
			in = o.input(ls.Namespace)
		}
		lists = append(lists, o.list(ctx, ls, in))
	}
	return lists
}

// input returns what concerns LocalServices of a namespace.
func (o *objects) input(namespace string) diagnose.Input {
	o.mu.Lock()
	defer o.mu.Unlock()
	return diagnose.Input{
		Nodes: inNamespace[corev1.Node](o.nodes, metav1.NamespaceAll), AllNodes: o.allNodes,
		Services:       inNamespace[corev1.Service](o.services, namespace),
		EndpointSlices: inNamespace[discoveryv1.EndpointSlice](o.endpointSlices, namespace),
		Pods:           inNamespace[corev1.Pod](o.pods, namespace),
		Controller:     o.controller, Now: time.Now(), Stable: o.follows, ClusterDomain: o.clusterDomain,
		Kubectl: o.kubectl,
	}
}

// list returns the findings about a LocalService. What is around it is read if it may say more.
func (o *objects) list(ctx context.Context, ls *v1alpha1.LocalService, in diagnose.Input) *diagnose.NodeList {
	in.LocalService = ls
	list := diagnose.Nodes(in)
	if !list.AsksAround || !o.withPods {
		return list
	}
	in.Around = keep(o, ls.Namespace, func() diagnose.Around { return o.lookAround(ctx, ls.Namespace) })
	isSelected := func(p *corev1.Pod) bool { return plan.SelectsPod(ls, labels.Set(p.Labels)) }
	if !slices.ContainsFunc(in.Pods, isSelected) {
		in.Around.Namespaces = keep(o, cache.MetaObjectToName(ls).String()+" "+labels.FormatLabels(ls.Spec.Selector),
			func() []string { return o.elsewhere(ctx, ls) })
	}
	return diagnose.Nodes(in)
}

// keep returns what was read for a key, or reads it if that is 15 seconds old.
func keep[T any](o *objects, key string, read func() T) T {
	kept, found := o.around.Get(key)
	if !found {
		kept = read()
		o.around.Set(key, kept, aroundLasts)
	}
	return kept.(T)
}

// inNamespace returns the objects in a namespace, or in all.
func inNamespace[T any](s *source, namespace string) (objects []*T) {
	utilruntime.Must(cache.ListAllByNamespace(s.GetIndexer(), namespace, labels.Everything(), func(object any) {
		objects = append(objects, object.(*T))
	}))
	return objects
}

// follow reports a snapshot, and another one when something has changed, until ctx is done.
func (o *objects) follow(ctx context.Context, report func(snapshot)) {
	o.follows = true
	var running sync.WaitGroup
	defer running.Wait()
	var synced []cache.InformerSynced
	for _, s := range o.sources() {
		synced = append(synced, s.HasSynced)
		running.Go(func() { s.RunWithContext(ctx) })
	}
	var loaded atomic.Bool
	running.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			o.setController(ctx)
			loaded.Store(cache.WaitForCacheSync(ctx.Done(), synced...))
			o.signal() // Containers that run may have become well.
		}, controllerPoll)
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		}
		began := time.Now()
		report(o.snapshot(ctx, loaded.Load()))
		sleep(ctx, max(snapshotInterval, 3*time.Since(began)))
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (o *objects) snapshot(ctx context.Context, loaded bool) snapshot {
	s := snapshot{Status: view.Status{Loaded: loaded}}
	if loaded {
		s.lists = o.lists(ctx)
	}
	if loaded && len(s.lists) == 0 {
		s.Nothing = o.none(ctx)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Controller = o.controller.Stops(o.kubectl, time.Time{})
	s.Problems = slices.Compact(slices.Sorted(maps.Values(o.problems)))
	return s
}

func (o *objects) setController(ctx context.Context) {
	controller := o.cluster.controller(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.controller = controller
}

func (o *objects) signal() {
	select {
	case o.wake <- struct{}{}:
	default: // It is already awake.
	}
}

// addProblem records why a resource cannot be watched, or that it can. Errors that end with the next list do not count.
func (o *objects) addProblem(ctx context.Context, resource string, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.problems[resource]
	delete(o.problems, resource)
	if err != nil {
		o.problems[resource] = whyNoWatch(resource, err)
	}
	if o.problems[resource] != before {
		o.signal()
	}
}

// whyNoWatch returns the same text for each retry of a watch. If the cluster cannot be reached, all resources get the
// same text, without the URL in the error, whose parameters change each time.
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
