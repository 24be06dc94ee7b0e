package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes"
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
)

const (
	// fieldManager is who we are in managedFields.
	fieldManager = "local-service-controller"
	// progressInterval is how often the status tells how far a large fan-out has come.
	progressInterval = time.Second
	// writeTimeout bounds one write. A write that has begun is finished also during a shutdown.
	writeTimeout = 30 * time.Second
	// servicesByController is the index of Services by the UID of the LocalService that controls them.
	servicesByController = "controller"

	// Reasons and actions of events.
	eventServicesWritten = "ServicesWritten"
	eventActionFanOut    = "FanOut"
)

// localServiceController gives every node a Service of its own in every LocalService. It watches LocalServices, Nodes
// (their metadata) and Services; it owns the Services whose controller reference is a LocalService; it writes those
// Services and the status of LocalServices.
type localServiceController struct {
	kube         kubernetes.Interface
	client       clientset.Interface
	recorder     events.EventRecorder
	clock        clock.WithTicker
	nodeLabelKey string

	localServices listers.LocalServiceLister
	nodes         cache.GenericLister
	services      cache.Indexer

	loop   *reconcile.Loop[types.NamespacedName]
	ledger *fanout.Ledger
	// slots bounds the writes that are under way, over all LocalServices.
	slots chan struct{}
}

func newLocalServiceController(deps dependencies) (*localServiceController, error) {
	c := &localServiceController{
		kube:          deps.kube,
		client:        deps.client,
		recorder:      deps.recorder,
		clock:         deps.clock,
		nodeLabelKey:  deps.nodeLabelKey,
		localServices: listers.NewLocalServiceLister(deps.localServices.GetIndexer()),
		nodes:         cache.NewGenericLister(deps.nodes.GetIndexer(), corev1.Resource("nodes")),
		services:      deps.services.GetIndexer(),
		ledger:        fanout.NewLedger(),
		slots:         make(chan struct{}, deps.writeConcurrency),
	}
	c.loop = reconcile.New("localservice", deps.clock, c.sync)
	if err := deps.services.AddIndexers(cache.Indexers{servicesByController: indexByController}); err != nil {
		return nil, fmt.Errorf("index Services by controller: %w", err)
	}
	_, err1 := deps.localServices.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.localServiceChanged(nil, obj.(*v1alpha1.LocalService)) },
		UpdateFunc: func(old, obj any) { c.localServiceChanged(old.(*v1alpha1.LocalService), obj.(*v1alpha1.LocalService)) },
		DeleteFunc: func(obj any) { c.loop.Add(keyOf(deleted[*v1alpha1.LocalService](obj))) },
	})
	_, err2 := deps.nodes.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial { // Each LocalService begins with a sync of all nodes, when all caches are filled.
				c.nodeChanged(nil, obj.(*metav1.PartialObjectMetadata))
			}
		},
		UpdateFunc: func(old, obj any) {
			c.nodeChanged(old.(*metav1.PartialObjectMetadata), obj.(*metav1.PartialObjectMetadata))
		},
		DeleteFunc: func(obj any) { c.nodeChanged(deleted[*metav1.PartialObjectMetadata](obj), nil) },
	})
	_, err3 := deps.services.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				c.serviceChanged(obj.(*corev1.Service))
			}
		},
		UpdateFunc: func(old, obj any) {
			if old.(*corev1.Service).ResourceVersion == obj.(*corev1.Service).ResourceVersion {
				return // A resync: the LocalServices have their own.
			}
			c.serviceChanged(old.(*corev1.Service))
			c.serviceChanged(obj.(*corev1.Service))
		},
		DeleteFunc: func(obj any) { c.serviceChanged(deleted[*corev1.Service](obj)) },
	})
	return c, errors.Join(err1, err2, err3)
}

func (c *localServiceController) localServiceChanged(old, ls *v1alpha1.LocalService) {
	key := keyOf(ls)
	if old == nil || old.Generation != ls.Generation || old.UID != ls.UID || old.ResourceVersion == ls.ResourceVersion {
		c.ledger.MarkAll(key) // Otherwise it is a status write, most likely our own.
	}
	c.loop.Add(key)
}

// nodeChanged looks at labels only: heartbeats must not cause work.
func (c *localServiceController) nodeChanged(old, node *metav1.PartialObjectMetadata) {
	if old != nil && node != nil && old.UID == node.UID && apiequality.Semantic.DeepEqual(old.Labels, node.Labels) {
		return
	}
	name := ""
	selected := func(ls *v1alpha1.LocalService) bool {
		return old != nil && fanout.Selects(ls, old.Labels) || node != nil && fanout.Selects(ls, node.Labels)
	}
	if node != nil {
		name = node.Name
	} else {
		name = old.Name
	}
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
func (c *localServiceController) serviceChanged(service *corev1.Service) {
	if owner := fanout.OwnedBy(service); owner != nil {
		key := types.NamespacedName{Namespace: service.Namespace, Name: owner.Name}
		if node := service.Annotations[v1alpha1.NodeAnnotationKey]; naming.ServiceName(owner.Name, node) == service.Name {
			c.ledger.MarkNode(key, node)
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

// Run works until ctx is done, and returns when no worker is running any more.
func (c *localServiceController) Run(ctx context.Context, workers int) {
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
	if ls.DeletionTimestamp != nil {
		return nil // The garbage collector deletes the Services.
	}
	template, err := fanout.NewTemplate(ls, c.nodeLabelKey)
	if err != nil {
		if statusErr := c.writeStatus(ctx, ls, fanout.Outcome{Invalid: err}); statusErr != nil {
			return statusErr
		}
		return reconcile.Terminal(fmt.Errorf("LocalService %s cannot be fanned out: %w", key, err))
	}

	scope := c.ledger.Take(key, ls)
	nodes, plan := c.plan(ls, template, scope)
	c.ledger.Record(key, ls, scope, nodes, plan.Changes)
	result := c.act(ctx, ls, template, plan)
	return c.conclude(ctx, ls, result)
}

// plan computes what to do for the nodes in scope, and returns those of them that are selected.
func (c *localServiceController) plan(ls *v1alpha1.LocalService, template *fanout.Template, scope fanout.Scope) ([]string, fanout.Plan) {
	in := fanout.Input{
		Template: template,
		Owned:    map[string]*corev1.Service{},
		Lookup:   func(name string) *corev1.Service { return c.service(ls.Namespace, name) },
	}
	if scope.All {
		in.Nodes = c.selectedNodes(ls)
		in.Owned = c.ownedServices(ls)
		return in.Nodes, fanout.Compute(in)
	}
	for _, name := range scope.Nodes {
		if node, err := c.nodes.Get(name); err == nil && fanout.Selects(ls, node.(*metav1.PartialObjectMetadata).Labels) {
			in.Nodes = append(in.Nodes, name)
		}
		if service := c.service(ls.Namespace, naming.ServiceName(ls.Name, name)); service != nil && metav1.IsControlledBy(service, ls) {
			in.Owned[service.Name] = service
		}
	}
	return in.Nodes, fanout.Compute(in)
}

func (c *localServiceController) selectedNodes(ls *v1alpha1.LocalService) []string {
	all, _ := c.nodes.List(labels.Everything())
	names := make([]string, 0, len(all))
	for _, obj := range all {
		if node := obj.(*metav1.PartialObjectMetadata); fanout.Selects(ls, node.Labels) {
			names = append(names, node.Name)
		}
	}
	return names
}

func (c *localServiceController) ownedServices(ls *v1alpha1.LocalService) map[string]*corev1.Service {
	// The index exists, so this cannot fail.
	objs, _ := c.services.ByIndex(servicesByController, string(ls.UID))
	owned := make(map[string]*corev1.Service, len(objs))
	for _, obj := range objs {
		service := obj.(*corev1.Service)
		owned[service.Name] = service
	}
	return owned
}

func (c *localServiceController) service(namespace, name string) *corev1.Service {
	obj, exists, _ := c.services.GetByKey(namespace + "/" + name)
	if !exists {
		return nil
	}
	return obj.(*corev1.Service)
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
	r := result{done: map[fanout.Action]int{}, skipped: len(writes)}
	if len(writes) == 0 {
		return r
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	progress := c.clock.NewTicker(progressInterval)
	defer progress.Stop()
	for attempts := c.writeAll(ctx, ls, template, writes); ; {
		select {
		case attempt, open := <-attempts:
			if !open {
				return r
			}
			c.account(ls, &r, attempt)
			if attempt.err != nil && isHopeless(attempt.err) {
				stop()
			}
		case <-progress.C():
			outcome := c.ledger.Outcome(keyOf(ls))
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

// writeAll tries writes until ctx is done, several at a time, and closes the channel after the last.
func (c *localServiceController) writeAll(ctx context.Context, ls *v1alpha1.LocalService, template *fanout.Template, writes []fanout.Change) <-chan attempt {
	todo, attempts := make(chan fanout.Change), make(chan attempt)
	var writers sync.WaitGroup
	for range min(len(writes), cap(c.slots)) {
		writers.Go(func() {
			for change := range todo {
				attempts <- attempt{change, c.write(ctx, ls, template, change)}
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
		err := client.Delete(ctx, change.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(change.Live.UID))})
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

// conclude tells what became of a sync: in an event, the status, and its error.
func (c *localServiceController) conclude(ctx context.Context, ls *v1alpha1.LocalService, r result) error {
	key := keyOf(ls)
	if r.incomplete() {
		c.ledger.MarkAll(key) // What is missing is found by looking at all.
	}
	outcome := c.ledger.Outcome(key)
	outcome.Errors = r.failed
	outcome.Writing = len(r.failed) == 0 && r.incomplete()
	if summary := summarize(r.done); summary != "" {
		c.recorder.Eventf(ls, nil, corev1.EventTypeNormal, eventServicesWritten, eventActionFanOut, "%s (%d nodes selected)", summary, outcome.Nodes)
		klog.FromContext(ctx).V(2).Info("Services written", "localService", klog.KObj(ls), "summary", summary, "nodes", outcome.Nodes)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err() // Whoever goes on after us begins by looking at everything.
	case slices.ContainsFunc(r.failed, isNamespaceTerminating), slices.ContainsFunc(r.stale, isDeletedMeanwhile):
		return nil // Nothing that is written here will last.
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
	c.ledger.RecordStatus(key, &status, written.ResourceVersion)
	return nil
}

// warn records an event when something begins to need attention, or changes while it does.
func (c *localServiceController) warn(ls *v1alpha1.LocalService, old, conditions []metav1.Condition) {
	for _, condition := range conditions {
		var reason string
		switch {
		case condition.Type == v1alpha1.ConditionConflicted && condition.Status == metav1.ConditionTrue:
			reason = condition.Reason
		case condition.Type == v1alpha1.ConditionReady && (condition.Reason == v1alpha1.ReasonWriteFailed || condition.Reason == v1alpha1.ReasonInvalidSpec):
			reason = condition.Reason
		default:
			continue
		}
		if before := meta.FindStatusCondition(old, condition.Type); before == nil || before.Reason != reason || before.Message != condition.Message {
			c.recorder.Eventf(ls, nil, corev1.EventTypeWarning, reason, eventActionFanOut, "%s", condition.Message)
		}
	}
}

func statusApplyConfiguration(status *v1alpha1.LocalServiceStatus) *v1alpha1apply.LocalServiceStatusApplyConfiguration {
	out := v1alpha1apply.LocalServiceStatus().
		WithObservedGeneration(status.ObservedGeneration).
		WithNodes(status.Nodes).
		WithServices(status.Services)
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
	if owner := fanout.OwnedBy(obj.(*corev1.Service)); owner != nil {
		return []string{string(owner.UID)}, nil
	}
	return nil, nil
}

func keyOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// deleted is the object of a delete event, also of one that was missed and found out later.
func deleted[T any](obj any) T {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	return obj.(T)
}
