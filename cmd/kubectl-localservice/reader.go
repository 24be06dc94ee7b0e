package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os/signal"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
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
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/view"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	snapshotInterval = time.Second      // between two snapshots, at least. A slow one is followed by a longer pause.
	controllerPoll   = 10 * time.Second // between two looks of a watch at the controller's Lease
)

// choice holds which LocalServices are read: those with the names, or all of the namespace, or of all, with the labels.
type choice struct {
	names                   []string
	selector, clusterDomain string
	allNamespaces           bool
}

func (c *choice) addFlags(cmd *cobra.Command) {
	cmd.Flags().FuncP("selector", "l", "Show the LocalServices with these `labels`.", addTo(&c.selector))
	cmd.Flags().StringVar(&c.clusterDomain, "cluster-domain", "cluster.local", "Domain of the cluster's DNS.")
	cmd.Flags().BoolVarP(&c.allNamespaces, "all-namespaces", "A", false, "Show the LocalServices of all namespaces.")
}

// addTo returns a function for a flag with a selector: one that is given again selects by both.
func addTo(selector *string) func(string) error {
	return func(more string) error {
		*selector = words.Join(",", *selector, more)
		return nil
	}
}

// complete takes the names, which may have the form that -o name prints: lsvc/demo.
func (c *choice) complete(args []string) {
	for _, arg := range args {
		c.names = append(c.names, path.Base(arg))
	}
}

func (c *choice) validate() error {
	if len(c.names) > 0 && (c.allNamespaces || c.selector != "") {
		return errors.New("a name is one of a namespace, whatever its labels are: leave out either the name, or -A and -l")
	}
	if _, err := labels.Parse(c.selector); err != nil {
		return fmt.Errorf("--selector %q: %w", c.selector, err)
	}
	return nil
}

// reader reads what LocalServices are made of, as far as the user may: it lists it once, and then follows it.
type reader struct {
	*cluster
	choice

	one      *v1alpha1.LocalService // the only one that is chosen, nil for several
	allNodes bool                   // may be listed
	withPods bool
	follows  bool // what changes

	localServices, nodes, services, endpointSlices, pods *source

	around *utilcache.Expiring // see cached
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

// snapshot holds what a watch reports.
type snapshot struct {
	view.Status

	lists []*diagnose.NodeList
}

// readAll reads what the chosen LocalServices are made of, and what their pods and the controller say.
func (f *factory) readAll(ctx context.Context, chosen choice) (*reader, error) {
	c, err := f.connect()
	if err != nil {
		return nil, err
	}
	o, err := c.read(ctx, chosen, true)
	if err == nil && !o.allNodes {
		fmt.Fprintln(f.ErrOut, "warning: you may not list nodes, so that some may be missing here")
	}
	return o, err
}

// read lists what the chosen LocalServices are made of.
func (c *cluster) read(ctx context.Context, chosen choice, withPods bool) (*reader, error) {
	if chosen.allNamespaces {
		c.namespace = metav1.NamespaceAll
	}
	o := &reader{cluster: c, choice: chosen, allNodes: true, withPods: withPods, wake: make(chan struct{}, 1),
		problems: map[string]string{}, around: utilcache.NewExpiring()}
	o.services = newSource(o, "services", &corev1.Service{}, o.kube.CoreV1().Services(o.namespace), "")
	for _, name := range chosen.names {
		ls, err := o.localService(ctx, name)
		if err != nil {
			return nil, err
		}
		if len(chosen.names) == 1 {
			o.one = ls
		}
	}
	only := ""
	if o.one != nil {
		only = fields.OneTermEqualSelector(metav1.ObjectNameField, o.one.Name).String()
	}
	o.localServices = newSource(o, "localservices", &v1alpha1.LocalService{},
		o.cluster.localServices.LocalserviceV1alpha1().LocalServices(o.namespace), only)
	o.nodes = newSource(o, "nodes", &corev1.Node{}, o.kube.CoreV1().Nodes(), "")
	o.endpointSlices = newSource(o, "endpointslices", &discoveryv1.EndpointSlice{},
		o.kube.DiscoveryV1().EndpointSlices(o.namespace), "")
	o.pods = newSource(o, "pods", &corev1.Pod{}, o.kube.CoreV1().Pods(o.namespace), "")
	return o, o.readSources(ctx)
}

func (o *reader) localService(ctx context.Context, name string) (*v1alpha1.LocalService, error) {
	api := o.cluster.localServices.LocalserviceV1alpha1().LocalServices(o.namespace)
	ls, err := api.Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) || isUnknownResource(err) {
		return ls, err
	}
	_ = o.readSource(ctx, o.services) // There is less to say if they may not be listed.
	return nil, errors.New(words.Join(". ", fmt.Sprintf("there is no LocalService %s/%s: `%s get localservices "+
		"-n %[1]s` lists those of this namespace, -n chooses another one", o.namespace, name, o.kubectl),
		diagnose.Orphans(inNamespace[corev1.Service](o.services, o.namespace),
			func(key string) bool { return key == o.namespace+"/"+name }, o.kubectl)))
}

// lister lists and watches a resource, as all clients do.
type lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// newSource makes a source of the objects that a field selector selects.
func newSource[L runtime.Object](o *reader, resource string, object runtime.Object, api lister[L],
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
	s.SharedIndexInformer = cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&s.ListWatch, s),
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

// IsWatchListSemanticsUnSupported avoids streaming lists, whose end a proxy that drops bookmarks hides.
func (*source) IsWatchListSemanticsUnSupported() bool { return true }

func (o *reader) sources() []*source {
	sources := []*source{o.localServices, o.services, o.endpointSlices}
	if o.allNodes {
		sources = append(sources, o.nodes)
	}
	if o.withPods {
		sources = append(sources, o.pods)
	}
	return sources
}

// readSources lists from all sources at once. Users who may not list nodes see those that have a name.
func (o *reader) readSources(ctx context.Context) error {
	var reading errgroup.Group
	for _, s := range o.sources() {
		reading.Go(func() error {
			err := o.readSource(ctx, s)
			if s == o.nodes && apierrors.IsForbidden(err) {
				o.allNodes, err = false, nil
			}
			return err
		})
	}
	if o.withPods { // Only they are diagnosed.
		o.setController(ctx)
	}
	return reading.Wait()
}

func (o *reader) readSource(ctx context.Context, s *source) error {
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
}

// lists returns the findings about the chosen LocalServices, by namespace and name.
func (o *reader) lists(ctx context.Context) (lists []*diagnose.NodeList) {
	selector, _ := labels.Parse(o.selector) // It is valid.
	all := slices.DeleteFunc(inNamespace[v1alpha1.LocalService](o.localServices, metav1.NamespaceAll),
		func(ls *v1alpha1.LocalService) bool {
			return len(o.names) > 0 && !slices.Contains(o.names, ls.Name) || !selector.Matches(labels.Set(ls.Labels))
		})
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

// none says that there is no LocalService of those that are chosen.
func (o *reader) none() string {
	which, where := strings.Join(o.names, " or "), "namespace "+o.namespace
	if o.namespace == metav1.NamespaceAll {
		where = "any namespace"
	}
	if o.selector != "" {
		which = "with labels " + o.selector
	}
	return words.Join(" ", "There is no LocalService", which, "in "+where+".", o.input(o.namespace).Orphans)
}

// input returns what concerns LocalServices of a namespace.
func (o *reader) input(namespace string) diagnose.Input {
	o.mu.Lock()
	defer o.mu.Unlock()
	services := inNamespace[corev1.Service](o.services, namespace)
	isMissing := func(key string) bool {
		_, exists, _ := o.localServices.GetIndexer().GetByKey(key)
		return !exists && o.one == nil // Otherwise only that one has been read.
	}
	return diagnose.Input{
		Nodes: inNamespace[corev1.Node](o.nodes, metav1.NamespaceAll), AllNodes: o.allNodes,
		Services:       services,
		EndpointSlices: inNamespace[discoveryv1.EndpointSlice](o.endpointSlices, namespace),
		Pods:           inNamespace[corev1.Pod](o.pods, namespace),
		Orphans:        diagnose.Orphans(services, isMissing, o.kubectl),
		Controller:     o.controller, Now: time.Now(), Stable: o.follows, ClusterDomain: o.clusterDomain,
		Kubectl: o.kubectl,
	}
}

// list returns the findings about a LocalService. What is around it is read if it may say more.
func (o *reader) list(ctx context.Context, ls *v1alpha1.LocalService, in diagnose.Input) *diagnose.NodeList {
	in.LocalService = ls
	list := diagnose.Nodes(in)
	if !list.AsksAround || !o.withPods {
		return list
	}
	in.Around = cached(o, ls.Namespace, func() diagnose.Around { return o.lookAround(ctx, ls.Namespace) })
	isSelected := func(p *corev1.Pod) bool { return plan.SelectsPod(ls, labels.Set(p.Labels)) }
	if !slices.ContainsFunc(in.Pods, isSelected) {
		in.Around.Namespaces = cached(o, cache.MetaObjectToName(ls).String()+" "+labels.FormatLabels(ls.Spec.Selector),
			func() []string { return o.elsewhere(ctx, ls) })
	}
	return diagnose.Nodes(in)
}

// cached returns what was read for a key, or reads it if that is 15 seconds old.
func cached[T any](o *reader, key string, read func() T) T {
	value, found := o.around.Get(key)
	if !found {
		value = read()
		o.around.Set(key, value, aroundLasts)
	}
	return value.(T)
}

// inNamespace returns the objects in a namespace, or in all.
func inNamespace[T any](s *source, namespace string) (objects []*T) {
	utilruntime.Must(cache.ListAllByNamespace(s.GetIndexer(), namespace, labels.Everything(), func(object any) {
		objects = append(objects, object.(*T))
	}))
	return objects
}

// untilInterrupted ends a watch with Ctrl-C, and silences client-go: a lost watch is reported as a problem.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	klog.SetLogger(klog.Logger{})
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
}

// follow reports a snapshot of what has been read, and another one when something has changed, until ctx is done.
func (o *reader) follow(ctx context.Context, report func(snapshot)) {
	o.follows = true
	var running sync.WaitGroup
	defer running.Wait()
	for _, s := range o.sources() {
		running.Go(func() { s.RunWithContext(ctx) })
	}
	running.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			o.setController(ctx)
			o.signal() // Containers that run may have become well.
		}, controllerPoll)
	})
	for ctx.Err() == nil {
		began := time.Now()
		report(o.snapshot(ctx))
		sleep(ctx, max(snapshotInterval, 3*time.Since(began)))
		select {
		case <-ctx.Done():
		case <-o.wake:
		}
	}
}

func (o *reader) snapshot(ctx context.Context) snapshot {
	s := snapshot{Status: view.Status{Loaded: true}, lists: o.lists(ctx)}
	if len(s.lists) == 0 {
		s.Nothing = o.none()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Controller = o.controller.Stops(o.kubectl, time.Time{})
	s.Problems = slices.Compact(slices.Sorted(maps.Values(o.problems)))
	return s
}

func (o *reader) setController(ctx context.Context) {
	controller := o.readController(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.controller = controller
}

func (o *reader) signal() {
	select {
	case o.wake <- struct{}{}:
	default: // It is already awake.
	}
}

// addProblem records why a resource cannot be watched, or that it can. Errors that end with the next list do not count.
func (o *reader) addProblem(ctx context.Context, resource string, err error) {
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
	return fmt.Sprintf("cannot watch %s, trying again: %v", resource, explainError(err))
}
