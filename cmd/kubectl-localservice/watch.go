package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// watchDelay is how long changes are batched: a rollout or a new node makes many at a time.
const watchDelay = 200 * time.Millisecond

// controllerPoll is how often a watch looks at the controller's Lease.
const controllerPoll = 10 * time.Second

// news is what a watch reports each time something has changed.
type news struct {
	// loaded is whether the cluster has been read. Before that there are only problems.
	loaded bool
	// lists are the LocalServices that have changed, nil for one that is gone.
	lists map[types.NamespacedName]*diagnose.NodeList
	// controller says that the controller does not seem to run, "" if it does.
	controller string
	// problems say what currently keeps the watch from observing changes.
	problems []string
}

// watcher reads what LocalServices are made of, with the permissions of the user, once or as it changes. It only
// records which LocalServices have changed; diagnose decides, from what was read, what they look like now.
type watcher struct {
	clusterDomain string
	allNodes      bool // may be listed
	podsUnknown   bool // were not read

	localServices, nodes, services, endpointSlices, otherSlices, pods *source

	owners owners // of pods
	// findController reads the controller's Lease.
	findController func(context.Context) diagnose.Controller

	wake chan struct{}

	mu         sync.Mutex
	controller diagnose.Controller
	loaded     bool
	touched    map[types.NamespacedName]bool
	problems   map[string]string // by resource
}

// run reports the current state, and then changes, until ctx is done.
func (w *watcher) run(ctx context.Context, report func(news)) {
	var running sync.WaitGroup
	defer running.Wait()
	var synced []cache.InformerSynced
	for _, s := range w.sources() {
		if w.allNodes || s != w.nodes {
			synced = append(synced, s.hasSynced)
			running.Go(func() { s.RunWithContext(ctx) })
		}
	}
	running.Go(func() {
		w.setController(w.findController(ctx))
		if cache.WaitForCacheSync(ctx.Done(), synced...) {
			w.load()
		}
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(controllerPoll):
				w.setController(w.findController(ctx))
			}
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
		report(w.news(ctx))
	}
}

// load records that everything has been read: all LocalServices are new.
func (w *watcher) load() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loaded = true
	w.touchAll()
}

func (w *watcher) touchAll() {
	for _, ls := range inNamespace[v1alpha1.LocalService](w.localServices, metav1.NamespaceAll) {
		w.touched[cache.MetaObjectToName(ls).AsNamespacedName()] = true
	}
	w.signal()
}

// setController records what the controller's Lease shows. A renewal alone changes nothing that is shown.
func (w *watcher) setController(controller diagnose.Controller) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.controller
	w.controller = controller
	controller.Renewed = before.Renewed
	if w.loaded && controller != before {
		w.touchAll()
	}
}

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // It is already awake.
	}
}

// changed records the LocalServices that an object concerns, which was added, changed or deleted. Until everything has
// been read, there is nothing to record.
func (w *watcher) changed(s *source, object metav1.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.loaded {
		return
	}
	if s == w.localServices {
		w.touched[cache.MetaObjectToName(object).AsNamespacedName()] = true
	} else {
		for _, ls := range inNamespace[v1alpha1.LocalService](w.localServices, object.GetNamespace()) {
			if s.concerns(object, ls) {
				w.touched[cache.MetaObjectToName(ls).AsNamespacedName()] = true
			}
		}
	}
	if len(w.touched) > 0 {
		w.signal()
	}
}

func (w *watcher) news(ctx context.Context) news {
	w.mu.Lock()
	select {
	case <-w.wake: // What it signals is in these news: otherwise the next would be empty.
	default:
	}
	n := news{loaded: w.loaded, controller: w.controller.Stops(time.Time{}),
		lists:    map[types.NamespacedName]*diagnose.NodeList{},
		problems: slices.Compact(slices.Sorted(maps.Values(w.problems)))}
	touched := w.touched
	w.touched = map[types.NamespacedName]bool{}
	w.mu.Unlock()
	for key := range touched {
		n.lists[key] = w.list(ctx, key)
	}
	return n
}

// list returns what is known about a LocalService now, nil if there is none.
func (w *watcher) list(ctx context.Context, key types.NamespacedName) *diagnose.NodeList {
	object, found, _ := w.localServices.GetIndexer().GetByKey(key.String())
	if !found {
		return nil
	}
	return diagnose.Nodes(w.input(ctx, object.(*v1alpha1.LocalService)))
}

// input returns what was read that concerns a LocalService.
func (w *watcher) input(ctx context.Context, ls *v1alpha1.LocalService) diagnose.Input {
	w.mu.Lock()
	controller := w.controller
	w.mu.Unlock()
	in := diagnose.Input{
		LocalService: ls,
		Nodes:        map[string]labels.Set{},
		AllNodes:     w.allNodes,
		States:       map[string]diagnose.NodeState{},
		Services:     concerning[corev1.Service](w.services, ls),
		EndpointSlices: append(concerning[discoveryv1.EndpointSlice](w.endpointSlices, ls),
			concerning[discoveryv1.EndpointSlice](w.otherSlices, ls)...),
		Pods:          concerning[corev1.Pod](w.pods, ls),
		PodsUnknown:   w.podsUnknown,
		Controller:    controller,
		ClusterDomain: w.clusterDomain,
		SelectorKeys: func(owner *metav1.OwnerReference) []string {
			return w.owners.selectorKeys(ctx, ls.Namespace, owner)
		},
	}
	for _, node := range inNamespace[corev1.Node](w.nodes, metav1.NamespaceAll) {
		if w.nodes.concerns(node, ls) {
			in.Nodes[node.Name] = node.Labels
			in.States[node.Name] = diagnose.NodeStateOf(node)
		}
	}
	if !w.allNodes {
		in.Nodes = diagnose.KnownNodes(in)
	}
	return in
}

// concerning returns the objects in the namespace of a LocalService that concern it.
func concerning[T any](s *source, ls *v1alpha1.LocalService) []*T {
	return slices.DeleteFunc(inNamespace[T](s, ls.Namespace), func(object *T) bool {
		return !s.concerns(any(object).(metav1.Object), ls)
	})
}

// inNamespace returns the objects in a namespace, or in all. The slice is the caller's.
func inNamespace[T any](s *source, namespace string) (objects []*T) {
	utilruntime.Must(cache.ListAllByNamespace(s.GetIndexer(), namespace, labels.Everything(), func(object any) {
		objects = append(objects, object.(*T))
	}))
	return objects
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

// problem records why a resource cannot be watched, or that it can. Errors that end with the next list do not count.
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
