package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/fanout"
	v1alpha1apply "github.com/localservice-dev/local-service-controller/pkg/generated/applyconfiguration/localservice/v1alpha1"
	clientset "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned"
	listers "github.com/localservice-dev/local-service-controller/pkg/generated/listers/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/metrics"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/pkg/reconcile"
	"github.com/localservice-dev/local-service-controller/pkg/slim"
)

const (
	// fieldManager is who we are in managedFields.
	fieldManager = v1alpha1.FieldManager
	// progressInterval is how often the status tells how far a large fan-out has come, and how often it follows the
	// coming and going of pods.
	progressInterval = time.Second
	// refusedCreateInterval is when Services are tried again that a limit has kept from being created.
	refusedCreateInterval = 30 * time.Second
	// writeTimeout bounds one write. A write that has begun is finished also during a shutdown.
	writeTimeout = 30 * time.Second
	// maxEventNote is how many bytes the API server accepts as the note of an event.
	maxEventNote = 1024
	// servicesByController is the index of Services by the UID of the LocalService that controls them.
	servicesByController = "controller"
	// slicesByService is the index of EndpointSlices by the key of the Service that they belong to.
	slicesByService = "service"

	// Reasons of events.
	eventServicesWritten  = "ServicesWritten"
	eventDeletingServices = "DeletingServices"
)

// localServiceController gives every node a Service of its own in every LocalService. It watches LocalServices, Nodes
// (their metadata), Services, and the EndpointSlices of those, to tell which have ready endpoints; it owns the Services
// whose controller reference is a LocalService; it writes those Services and the status of LocalServices.
type localServiceController struct {
	kube         kubernetes.Interface
	client       clientset.Interface
	recorder     events.EventRecorder
	clock        clock.WithTicker
	nodeLabelKey string
	limits       fanout.Limits

	localServices  listers.LocalServiceLister
	nodes          cache.Indexer
	services       cache.Indexer
	endpointSlices cache.Indexer
	serviceCIDRs   networkinglisters.ServiceCIDRLister // nil if the cluster has none

	handlers []cache.ResourceEventHandlerRegistration

	loop   *reconcile.Loop[types.NamespacedName]
	ledger *fanout.Ledger
	census *fanout.Census
	// slots bounds the writes that are under way, over all LocalServices.
	slots chan struct{}
}

func newLocalServiceController(deps dependencies) (*localServiceController, error) {
	c := &localServiceController{
		kube:           deps.kube,
		client:         deps.client,
		recorder:       deps.recorder,
		clock:          deps.clock,
		nodeLabelKey:   deps.nodeLabelKey,
		limits:         deps.limits,
		localServices:  listers.NewLocalServiceLister(deps.localServices.GetIndexer()),
		nodes:          deps.nodes.GetIndexer(),
		services:       deps.services.GetIndexer(),
		endpointSlices: deps.endpointSlices.GetIndexer(),
		ledger:         fanout.NewLedger(),
		census:         &fanout.Census{},
		slots:          make(chan struct{}, deps.writeConcurrency),
	}
	if deps.serviceCIDRs != nil {
		c.serviceCIDRs = networkinglisters.NewServiceCIDRLister(deps.serviceCIDRs.GetIndexer())
	}
	c.loop = reconcile.New("localservice", deps.clock, c.sync)
	if err := deps.services.AddIndexers(cache.Indexers{servicesByController: indexByController}); err != nil {
		return nil, fmt.Errorf("index Services by controller: %w", err)
	}
	if err := deps.endpointSlices.AddIndexers(cache.Indexers{slicesByService: indexByService}); err != nil {
		return nil, fmt.Errorf("index EndpointSlices by Service: %w", err)
	}
	return c, c.addEventHandlers(deps)
}

func (c *localServiceController) addEventHandlers(deps dependencies) error {
	h1, err1 := deps.localServices.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.localServiceChanged(nil, obj.(*v1alpha1.LocalService)) },
		UpdateFunc: func(old, obj any) { c.localServiceChanged(old.(*v1alpha1.LocalService), obj.(*v1alpha1.LocalService)) },
		DeleteFunc: func(obj any) { c.loop.Add(keyOf(deleted[*v1alpha1.LocalService](obj))) },
	})
	h2, err2 := deps.nodes.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial { // Each LocalService begins with a sync of all nodes, when all caches are filled.
				c.nodeChanged(nil, obj.(*node))
			}
		},
		UpdateFunc: func(old, obj any) {
			c.nodeChanged(old.(*node), obj.(*node))
		},
		DeleteFunc: func(obj any) { c.nodeChanged(deleted[*node](obj), nil) },
	})
	h3, err3 := deps.services.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			c.census.Change(nil, obj.(*fanout.Service))
			if !initial {
				c.serviceChanged(obj.(*fanout.Service))
			}
		},
		UpdateFunc: func(old, obj any) {
			c.census.Change(old.(*fanout.Service), obj.(*fanout.Service))
			if old.(*fanout.Service).GetResourceVersion() == obj.(*fanout.Service).GetResourceVersion() {
				return // A resync: the LocalServices have their own.
			}
			c.serviceChanged(old.(*fanout.Service))
			c.serviceChanged(obj.(*fanout.Service))
		},
		DeleteFunc: func(obj any) {
			c.census.Change(deleted[*fanout.Service](obj), nil)
			c.serviceChanged(deleted[*fanout.Service](obj))
		},
	})
	h4, err4 := deps.endpointSlices.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				c.endpointsChanged(obj.(*endpointSlice))
			}
		},
		UpdateFunc: func(old, obj any) {
			if old.(*endpointSlice).ready != obj.(*endpointSlice).ready {
				c.endpointsChanged(obj.(*endpointSlice))
			}
		},
		DeleteFunc: func(obj any) { c.endpointsChanged(deleted[*endpointSlice](obj)) },
	})
	c.handlers = []cache.ResourceEventHandlerRegistration{h1, h2, h3, h4}
	return errors.Join(err1, err2, err3, err4)
}

func (c *localServiceController) localServiceChanged(old, ls *v1alpha1.LocalService) {
	key := keyOf(ls)
	if old == nil || old.Generation != ls.Generation || old.UID != ls.UID || old.ResourceVersion == ls.ResourceVersion ||
		!maps.Equal(old.Annotations, ls.Annotations) {
		c.ledger.MarkAll(key) // Otherwise it is a status write, most likely our own.
	}
	c.loop.Add(key)
}

// nodeChanged looks at labels only: heartbeats must not cause work.
func (c *localServiceController) nodeChanged(before, after *node) {
	if before != nil && after != nil && before.labels == after.labels {
		return
	}
	selected := func(ls *v1alpha1.LocalService) bool {
		return before != nil && fanout.Selects(ls, before.labels) || after != nil && fanout.Selects(ls, after.labels)
	}
	name := cmp.Or(before, after).GetName()
	// The lister of a cache fails only on selectors that do not parse.
	all, _ := c.localServices.List(labels.Everything())
	for _, ls := range all {
		if selected(ls) {
			c.ledger.MarkNode(keyOf(ls), name)
			c.loop.Add(keyOf(ls))
		}
	}
}

// serviceChanged finds the LocalService that controls the Service, and those that want its name.
func (c *localServiceController) serviceChanged(service *fanout.Service) {
	if owner, _ := service.LocalService(); owner != "" {
		key := types.NamespacedName{Namespace: service.GetNamespace(), Name: owner}
		if naming.ServiceName(owner, service.Node()) == service.GetName() {
			c.ledger.MarkNode(key, service.Node())
		} else {
			c.ledger.MarkAll(key)
		}
		c.loop.Add(key)
	}
	for _, claim := range c.ledger.Claims(keyOf(service)) {
		c.ledger.MarkNode(claim.LocalService, claim.Node)
		c.loop.Add(claim.LocalService)
	}
}

// endpointsChanged finds the LocalService that controls the Service of an EndpointSlice.
func (c *localServiceController) endpointsChanged(slice *endpointSlice) {
	service := c.service(slice.GetNamespace(), slice.service)
	if service == nil {
		return
	}
	if owner, _ := service.LocalService(); owner != "" {
		key := types.NamespacedName{Namespace: slice.GetNamespace(), Name: owner}
		c.ledger.MarkNode(key, service.Node())
		c.loop.Add(key)
	}
}

// Run works until ctx is done, and returns when no worker is running any more. The caches must be filled.
func (c *localServiceController) Run(ctx context.Context, workers int) {
	for _, handler := range c.handlers {
		// The Services must have been counted before a limit is held against the numbers.
		if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
			return
		}
	}
	c.loop.Run(ctx, workers)
}

func (c *localServiceController) sync(ctx context.Context, key types.NamespacedName) error {
	ls, err := c.localServices.LocalServices(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		c.ledger.Forget(key)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get LocalService %s from the cache: %w", key, err)
	}
	if ls.DeletionTimestamp != nil || c.ledger.GaveUp(key, ls) {
		return nil // The garbage collector, or the namespace controller, deletes the Services.
	}
	template, err := fanout.NewTemplate(ls, c.nodeLabelKey)
	if err != nil {
		if statusErr := c.writeStatus(ctx, ls, fanout.Outcome{Invalid: err}); statusErr != nil {
			return statusErr
		}
		return reconcile.Terminal(fmt.Errorf("LocalService %s cannot be fanned out: %w", key, err))
	}

	found, plan := c.look(ls, template, c.ledger.Take(key, ls))
	c.ledger.Record(key, ls, found)
	if err := c.mayAdopt(ctx, ls, plan); err != nil {
		c.ledger.MarkAll(key)
		return err
	}
	plan, held := c.restrict(ctx, ls, plan)
	result := c.act(ctx, ls, template, plan)
	return c.conclude(ctx, ls, held, result)
}

// look finds out about the nodes in scope, and computes what to do for them.
func (c *localServiceController) look(ls *v1alpha1.LocalService, template *fanout.Template, scope fanout.Scope) (fanout.Findings, fanout.Plan) {
	in := c.plan(ls, template, scope)
	plan := fanout.Compute(in)
	found := fanout.Findings{Scope: scope, Selected: in.Nodes, Changes: plan.Changes}
	var name []byte
	for _, node := range in.Nodes {
		name = naming.AppendServiceName(name[:0], ls.Name, node)
		if service := in.Owned[string(name)]; service != nil && c.hasReadyEndpoint(ls.Namespace, service.GetName()) {
			found.Ready = append(found.Ready, node)
		}
	}
	return found, plan
}

// mayAdopt makes sure, before Services are adopted, that their LocalService is still there. The cache may not know yet that
// it is deleted when it knows already that its Services were orphaned, by the same command: adopted then, they would be
// deleted with it.
func (c *localServiceController) mayAdopt(ctx context.Context, ls *v1alpha1.LocalService, plan fanout.Plan) error {
	if plan.Count(fanout.Adopt) == 0 {
		return nil
	}
	live, err := c.client.LocalserviceV1alpha1().LocalServices(ls.Namespace).Get(ctx, ls.Name, metav1.GetOptions{})
	switch {
	case err == nil && live.UID == ls.UID && live.DeletionTimestamp == nil:
		return nil
	case err == nil || apierrors.IsNotFound(err):
		return reconcile.Stale(fmt.Errorf("adopt Services of LocalService %s: %w", keyOf(ls), errDeletedMeanwhile))
	}
	return fmt.Errorf("adopt Services of LocalService %s: is it still there? %w", keyOf(ls), err)
}

// restrict takes out of a plan what the operator's limits forbid, and announces what is left if it is much.
func (c *localServiceController) restrict(ctx context.Context, ls *v1alpha1.LocalService, plan fanout.Plan) (fanout.Plan, fanout.Held) {
	if plan.Count(fanout.Create, fanout.Delete) == 0 {
		return plan, fanout.Held{}
	}
	outcome := c.outcome(ls)
	owned := c.census.Owned(ls)
	plan, held := c.limits.Apply(plan, ls, owned, outcome.Capacity.InNamespace)
	if fanout.IsMassDeletion(plan, owned) {
		recordEvent(c.recorder, ls, corev1.EventTypeWarning, eventDeletingServices,
			fmt.Sprintf("About to delete %d of %d Services, which no selected node wants any more", plan.Count(fanout.Delete), owned))
	}
	told := meta.IsStatusConditionTrue(c.ledger.Status(keyOf(ls), ls).Conditions, v1alpha1.ConditionNearCapacity)
	if outcome.Capacity.IsShort() && !told && plan.Count(fanout.Create) > 0 {
		outcome.Writing = true
		if err := c.writeStatus(ctx, ls, outcome); err != nil {
			klog.FromContext(ctx).V(2).Info("Cannot tell that there are many Services", "localService", klog.KObj(ls), "err", err)
		}
	}
	return plan, held
}

// plan collects what a plan for the nodes in scope is computed from.
func (c *localServiceController) plan(ls *v1alpha1.LocalService, template *fanout.Template, scope fanout.Scope) fanout.Input {
	in := fanout.Input{
		Template: template,
		Owned:    map[string]*fanout.Service{},
		Lookup:   func(name string) *fanout.Service { return c.service(ls.Namespace, name) },
	}
	if scope.All {
		in.Nodes = c.selectedNodes(ls)
		in.Owned = c.ownedServices(ls)
		return in
	}
	for _, name := range scope.Nodes {
		if obj, exists, _ := c.nodes.GetByKey(name); exists && fanout.Selects(ls, obj.(*node).labels) {
			in.Nodes = append(in.Nodes, name)
		}
		if service := c.service(ls.Namespace, naming.ServiceName(ls.Name, name)); service != nil && service.ControlledBy(ls) {
			in.Owned[service.GetName()] = service
		}
	}
	return in
}

func (c *localServiceController) selectedNodes(ls *v1alpha1.LocalService) []string {
	all := c.nodes.List()
	names := make([]string, 0, len(all))
	for _, obj := range all {
		if n := obj.(*node); fanout.Selects(ls, n.labels) {
			names = append(names, n.GetName())
		}
	}
	return names
}

func (c *localServiceController) ownedServices(ls *v1alpha1.LocalService) map[string]*fanout.Service {
	// The index exists, so this cannot fail.
	objs, _ := c.services.ByIndex(servicesByController, string(ls.UID))
	owned := make(map[string]*fanout.Service, len(objs))
	for _, obj := range objs {
		service := obj.(*fanout.Service)
		owned[service.GetName()] = service
	}
	return owned
}

func (c *localServiceController) service(namespace, name string) *fanout.Service {
	obj, exists, _ := c.services.GetByKey(namespace + "/" + name)
	if !exists {
		return nil
	}
	return obj.(*fanout.Service)
}

func (c *localServiceController) hasReadyEndpoint(namespace, service string) bool {
	// The index exists, so this cannot fail.
	objs, _ := c.endpointSlices.ByIndex(slicesByService, namespace+"/"+service)
	return slices.ContainsFunc(objs, func(obj any) bool { return obj.(*endpointSlice).ready })
}

// result is what became of the writes of a plan.
type result struct {
	done    map[fanout.Action]int // changes that were made
	failed  []error               // writes that the API server refused
	stale   []error               // writes that were planned from an old cache
	skipped int                   // writes that were not tried
}

func (r *result) incomplete() bool {
	return len(r.failed)+len(r.stale)+r.skipped > 0
}

// act makes the changes of a plan, several at a time. It stops early on an error that all others would meet too.
func (c *localServiceController) act(ctx context.Context, ls *v1alpha1.LocalService, template *fanout.Template, plan fanout.Plan) result {
	writes := slices.DeleteFunc(slices.Clone(plan.Changes), func(change fanout.Change) bool {
		return change.Action == fanout.Conflict || change.Action == fanout.Wait
	})
	// What is deleted makes room for what is created, where a quota has none.
	slices.SortStableFunc(writes, func(a, b fanout.Change) int { return cmp.Compare(order(a.Action), order(b.Action)) })
	r := result{done: map[fanout.Action]int{}, skipped: len(writes)}
	if len(writes) == 0 {
		return r
	}
	progress := c.clock.NewTicker(progressInterval)
	defer progress.Stop()
	var hopeless hopelessActions
	for attempts := c.writeAll(ctx, ls, template, writes, &hopeless); ; {
		select {
		case attempt, open := <-attempts:
			if !open {
				return r
			}
			c.account(ls, &r, attempt)
		case <-progress.C():
			outcome := c.outcome(ls)
			outcome.Writing = true
			if err := c.writeStatus(ctx, ls, outcome); err != nil {
				klog.FromContext(ctx).V(2).Info("Cannot tell the progress", "localService", klog.KObj(ls), "err", err)
			}
		}
	}
}

// attempt is a write that was tried.
type attempt struct {
	change fanout.Change
	err    error
}

// account adds an attempt to the result, and settles its change in the ledger.
func (c *localServiceController) account(ls *v1alpha1.LocalService, r *result, a attempt) {
	r.skipped--
	switch {
	case a.err == nil:
		r.done[a.change.Action]++
		c.ledger.Settle(keyOf(ls), a.change.Node)
	case isStale(a.err):
		r.stale = append(r.stale, a.err)
	default:
		r.failed = append(r.failed, a.err)
	}
}

// hopelessActions are those that have failed in a way in which all others of their kind would fail, too.
type hopelessActions struct{ actions sync.Map }

func (h *hopelessActions) has(action fanout.Action) bool {
	_, found := h.actions.Load(action)
	return found
}

func (h *hopelessActions) learn(action fanout.Action, err error) {
	if err != nil && isHopeless(err) {
		h.actions.Store(action, nil)
	}
}

// writeAll tries writes until ctx is done, several at a time and none of those that are hopeless, and closes the channel
// after the last.
func (c *localServiceController) writeAll(ctx context.Context, ls *v1alpha1.LocalService, template *fanout.Template, writes []fanout.Change, hopeless *hopelessActions) <-chan attempt {
	todo, attempts := make(chan fanout.Change), make(chan attempt)
	var writers sync.WaitGroup
	for range min(len(writes), cap(c.slots)) {
		writers.Go(func() {
			for change := range todo {
				if hopeless.has(change.Action) {
					continue
				}
				err := c.write(ctx, ls, template, change)
				hopeless.learn(change.Action, err)
				attempts <- attempt{change, err}
			}
		})
	}
	go func() {
		defer close(attempts)
		defer writers.Wait()
		defer close(todo)
		for _, change := range writes {
			select {
			case todo <- change:
			case <-ctx.Done():
				return
			}
		}
	}()
	return attempts
}

// write makes one change, once a slot is free.
func (c *localServiceController) write(ctx context.Context, ls *v1alpha1.LocalService, template *fanout.Template, change fanout.Change) error {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if current, err := c.localServices.LocalServices(ls.Namespace).Get(ls.Name); err != nil || current.UID != ls.UID || current.DeletionTimestamp != nil {
		return errDeletedMeanwhile
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	err := c.writeService(ctx, ls, template, change)
	metrics.ServiceWrites.WithLabelValues(string(change.Action), metrics.Result(err)).Inc()
	if err != nil {
		return fmt.Errorf("%s Service %s/%s: %w", infinitive(change.Action), ls.Namespace, change.Name, err)
	}
	klog.FromContext(ctx).V(4).Info("Service written", "action", change.Action, "service", klog.KRef(ls.Namespace, change.Name), "node", change.Node)
	return nil
}

func (c *localServiceController) writeService(ctx context.Context, ls *v1alpha1.LocalService, template *fanout.Template, change fanout.Change) error {
	client := c.kube.CoreV1().Services(ls.Namespace)
	if change.Action == fanout.Delete || change.Action == fanout.Replace {
		// The precondition keeps a successor of the same name alive that the cache does not have yet.
		err := client.Delete(ctx, change.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(change.Live.UID()))})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	switch change.Action {
	case fanout.Create, fanout.Replace:
		_, err := client.Create(ctx, template.Service(change.Node), metav1.CreateOptions{FieldManager: fieldManager})
		return err
	case fanout.Update, fanout.Adopt:
		patch, err := template.Patch(change.Live, change.Node)
		if err != nil {
			return err
		}
		_, err = client.Patch(ctx, change.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
		return err
	}
	return nil
}

// outcome is what is known of all nodes of a LocalService.
func (c *localServiceController) outcome(ls *v1alpha1.LocalService) fanout.Outcome {
	outcome := c.ledger.Outcome(keyOf(ls))
	var cidrs []*networkingv1.ServiceCIDR
	if c.serviceCIDRs != nil {
		// The lister of a cache fails only on selectors that do not parse.
		cidrs, _ = c.serviceCIDRs.List(labels.Everything())
	}
	outcome.Capacity = c.census.Capacity(ls, outcome.Nodes-len(outcome.Conflicts), cidrs)
	return outcome
}

// conclude tells what became of a sync: in an event, the status, and its error.
func (c *localServiceController) conclude(ctx context.Context, ls *v1alpha1.LocalService, held fanout.Held, r result) error {
	key := keyOf(ls)
	if slices.ContainsFunc(r.failed, isNamespaceTerminating) {
		c.ledger.GiveUp(key, ls)
		return nil // Nothing that is written here will last.
	}
	if r.incomplete() || held.Deletes+held.Creates > 0 {
		c.ledger.MarkAll(key) // What is missing is found by looking at all.
	}
	if held.Creates > 0 {
		c.loop.AddAfter(key, refusedCreateInterval)
	}
	outcome := c.outcome(ls)
	outcome.Held = held
	outcome.Errors = r.failed
	outcome.Writing = len(r.failed) == 0 && r.incomplete()
	if summary := summarize(r.done); summary != "" {
		recordEvent(c.recorder, ls, corev1.EventTypeNormal, eventServicesWritten, fmt.Sprintf("%s (%d nodes selected)", summary, outcome.Nodes))
		klog.FromContext(ctx).V(2).Info("Services written", "localService", klog.KObj(ls), "summary", summary, "nodes", outcome.Nodes)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err() // Whoever goes on after us begins by looking at everything.
	case slices.ContainsFunc(r.stale, isDeletedMeanwhile):
		return nil // Nothing that is written for it will last.
	}
	statusErr := c.writeStatus(ctx, ls, outcome)
	switch {
	case len(r.failed) > 0:
		return fmt.Errorf("fan out LocalService %s: %s", key, fanout.SummarizeErrors(r.failed))
	case statusErr != nil:
		return statusErr
	case r.incomplete():
		return reconcile.Stale(fmt.Errorf("fan out LocalService %s: %s", key, fanout.SummarizeErrors(r.stale)))
	}
	return nil
}

// writeStatus writes the status that tells an outcome, if it is another than the LocalService has.
func (c *localServiceController) writeStatus(ctx context.Context, ls *v1alpha1.LocalService, outcome fanout.Outcome) error {
	key := keyOf(ls)
	old := c.ledger.Status(key, ls)
	status := fanout.Status(old, ls.Generation, outcome)
	if apiequality.Semantic.DeepEqual(old, status) {
		return nil
	}
	if wait := progressInterval - c.clock.Since(c.ledger.StatusTime(key)); wait > 0 &&
		old.ObservedGeneration == status.ObservedGeneration && len(changed(old.Conditions, status.Conditions)) == 0 {
		c.loop.AddAfter(key, wait) // Only numbers differ, as when pods come and go: once in a while is enough.
		return nil
	}
	c.warn(ls, old.Conditions, status.Conditions)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	written, err := c.client.LocalserviceV1alpha1().LocalServices(ls.Namespace).ApplyStatus(ctx,
		v1alpha1apply.LocalService(ls.Name, ls.Namespace).WithUID(ls.UID).WithStatus(statusApplyConfiguration(&status)),
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	metrics.StatusWrites.WithLabelValues(metrics.Result(err)).Inc()
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // It has been deleted, and maybe made anew: the watch will tell.
	}
	if err != nil {
		return fmt.Errorf("write the status of LocalService %s: %w", key, err)
	}
	c.ledger.RecordStatus(key, &status, written.ResourceVersion, c.clock.Now())
	return nil
}

// warn records an event when something begins to need attention, or changes while it does.
func (c *localServiceController) warn(ls *v1alpha1.LocalService, old, conditions []metav1.Condition) {
	for _, condition := range changed(old, conditions) {
		if isProblem(&condition) {
			recordEvent(c.recorder, ls, corev1.EventTypeWarning, condition.Reason, condition.Message)
		}
	}
}

// changed are the conditions that say something else than before. The numbers in the message of NearCapacity do not: they
// change with every Service of the cluster.
func changed(before, after []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(after), func(condition metav1.Condition) bool {
		old := meta.FindStatusCondition(before, condition.Type)
		return old != nil && old.Status == condition.Status && old.Reason == condition.Reason &&
			(old.Message == condition.Message || condition.Type == v1alpha1.ConditionNearCapacity)
	})
}

// isProblem says whether a condition is one that somebody should look at.
func isProblem(condition *metav1.Condition) bool {
	switch condition.Type {
	case v1alpha1.ConditionConflicted, v1alpha1.ConditionNearCapacity:
		return condition.Status == metav1.ConditionTrue
	case v1alpha1.ConditionReady:
		return slices.Contains([]string{v1alpha1.ReasonWriteFailed, v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonDeletionHeld, v1alpha1.ReasonTooManyServices}, condition.Reason)
	}
	return false
}

func statusApplyConfiguration(status *v1alpha1.LocalServiceStatus) *v1alpha1apply.LocalServiceStatusApplyConfiguration {
	out := v1alpha1apply.LocalServiceStatus().
		WithObservedGeneration(status.ObservedGeneration).
		WithNodes(status.Nodes).
		WithServices(status.Services).
		WithReadyNodes(status.ReadyNodes).
		WithReady(status.Ready)
	for i := range status.Conditions {
		c := &status.Conditions[i]
		out.WithConditions(metav1apply.Condition().WithType(c.Type).WithStatus(c.Status).WithObservedGeneration(c.ObservedGeneration).
			WithLastTransitionTime(c.LastTransitionTime).WithReason(c.Reason).WithMessage(c.Message))
	}
	return out
}

// verbs are the words for actions, in errors and in events.
var verbs = []struct {
	action          fanout.Action
	infinitive, did string
}{
	{fanout.Create, "create", "created"},
	{fanout.Adopt, "adopt", "adopted"},
	{fanout.Update, "update", "updated"},
	{fanout.Replace, "replace", "replaced"},
	{fanout.Delete, "delete", "deleted"},
}

// summarize tells what was written, "" for nothing.
func summarize(done map[fanout.Action]int) string {
	var parts []string
	for _, v := range verbs {
		if n := done[v.action]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", v.did, n))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "Services: " + strings.Join(parts, ", ")
}

// order is where an action stands among those of a plan.
func order(action fanout.Action) int {
	if action == fanout.Delete {
		return 0
	}
	return 1
}

func infinitive(action fanout.Action) string {
	for _, v := range verbs {
		if v.action == action {
			return v.infinitive
		}
	}
	return string(action)
}

// errDeletedMeanwhile is met when a LocalService is deleted while it is being fanned out.
var errDeletedMeanwhile = errors.New("the LocalService has been deleted")

func isDeletedMeanwhile(err error) bool {
	return errors.Is(err, errDeletedMeanwhile)
}

// isStale says whether a write failed because the cache was behind: the next plan, from a newer cache, will be right.
func isStale(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) ||
		isDeletedMeanwhile(err) || errors.Is(err, context.Canceled)
}

// isHopeless says whether the other writes of a fan-out would fail in the same way.
func isHopeless(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) ||
		isDeletedMeanwhile(err)
}

func isNamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// indexByController is the index function of servicesByController.
func indexByController(obj any) ([]string, error) {
	if _, owner := obj.(*fanout.Service).LocalService(); owner != "" {
		return []string{string(owner)}, nil
	}
	return nil, nil
}

// indexByService is the index function of slicesByService.
func indexByService(obj any) ([]string, error) {
	slice := obj.(*endpointSlice)
	return []string{slice.GetNamespace() + "/" + slice.service}, nil
}

// endpointSlice is what the cache keeps of an EndpointSlice.
type endpointSlice struct {
	slim.Identity
	service string // name of the Service
	ready   bool   // at least one endpoint is ready
}

// DeepCopyObject makes it a runtime.Object, so that the cache mutation detector watches over it.
func (s *endpointSlice) DeepCopyObject() runtime.Object { return new(*s) }

// trimEndpointSlice is the transform function of the cache of EndpointSlices.
var trimEndpointSlice = trim(func(full *discoveryv1.EndpointSlice) (any, error) {
	return &endpointSlice{
		Identity: slim.IdentityOf(full),
		service:  full.Labels[discoveryv1.LabelServiceName],
		ready: slices.ContainsFunc(full.Endpoints, func(e discoveryv1.Endpoint) bool {
			return e.Conditions.Ready == nil || *e.Conditions.Ready
		}),
	}, nil
})

// recordEvent records an event. The recorder counts one that differs from an earlier one only in its note as the same
// again, and drops the note; so that none is lost, what is done is told apart by a hash of the note in the action.
func recordEvent(recorder events.EventRecorder, regarding runtime.Object, eventType, reason, note string) {
	if len(note) > maxEventNote {
		note = strings.ToValidUTF8(note[:maxEventNote-len("…")], "") + "…"
	}
	hash := fnv.New32a()
	hash.Write([]byte(note))
	recorder.Eventf(regarding, nil, eventType, reason, fmt.Sprintf("%s-%08x", reason, hash.Sum32()), "%s", note)
}

func keyOf(object klog.KMetadata) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// deleted is the object of a delete event, also of one that was missed and found out later.
func deleted[T any](obj any) T {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	return obj.(T)
}
