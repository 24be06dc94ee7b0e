package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/app"
	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/internal/writer"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const eventServicesWritten = "ServicesWritten"

// localServiceController gives every node its own Service in every LocalService. It watches LocalServices, Nodes
// (metadata only), Services, and their EndpointSlices, to count the Services with ready endpoints. It owns the
// Services whose controller reference is a LocalService, and writes them and the status of LocalServices.
//
// docs/design.md explains the words of a sync, where each is decided, and why.
type localServiceController struct {
	caches  *cache.Caches
	writer  *writer.Writer
	options *app.Options
	// lackingFields returns the fields of a spec that the API server did not know when the work began.
	lackingFields func() []string
	lookSoon      func()          // whether it knows others by now
	loop          *reconcile.Loop // The hostnames controller also adds LocalServices to it: see syncStatus.
}

func newLocalServiceController(deps *app.Dependencies, refusals *writer.Refusals) *localServiceController {
	c := &localServiceController{caches: deps.Caches, writer: writer.New(&deps.Shared, refusals), options: deps.Options,
		lackingFields: deps.LackingFields, lookSoon: deps.LookSoon}
	c.loop = reconcile.New("localservice", deps.Clock, c.sync)
	c.caches.LocalServices.OnChange(c.localServiceChanged)
	c.caches.Nodes.OnChange(c.nodeChanged)
	c.caches.Services.OnChange(c.serviceChanged)
	c.caches.EndpointSlices.OnChange(c.endpointsChanged)
	c.caches.HostnameSlices.OnChange(c.hostnameSliceChanged)
	return c
}

// localServiceChanged enqueues a LocalService whose spec has changed, or at a resync. If the spec is the same, most
// likely this controller has written the status. Then the LocalService is enqueued much later, to repair external
// changes. If it were enqueued at once, an error whose text changes each time would cause a status write, a sync, and
// so on without end.
func (c *localServiceController) localServiceChanged(before, after *v1alpha1.LocalService) {
	isSame := before != nil && after != nil && after.UID == before.UID && after.Generation == before.Generation
	isPruned := isSame && !apiequality.Semantic.DeepEqual(&before.Spec, &after.Spec)
	if isPruned {
		c.lookSoon() // Only another CustomResourceDefinition changes a spec without a new generation, and writes nothing.
	}
	if isPruned || isSame && before.ResourceVersion != after.ResourceVersion {
		c.loop.AddAfter(cache.KeyOf(after), reconcile.MaxBackoff)
		return
	}
	// A deleted LocalService is enqueued, too, so that its sync forgets what it has observed.
	c.loop.Add(cache.KeyOf(cmp.Or(after, before)))
}

// nodeChanged enqueues the LocalServices whose Services or names may depend on what changed in a node.
func (c *localServiceController) nodeChanged(before, after *cache.Node) {
	var had, has labels.Set // Thousands of LocalServices may look up dozens of labels each.
	if before != nil {
		had = before.Labels.Set()
	}
	if after != nil {
		has = after.Labels.Set()
	}
	for ls := range c.caches.LocalServices.All() {
		was := before != nil && plan.Selects(ls, before.GetName(), had)
		is := after != nil && plan.Selects(ls, after.GetName(), has)
		switch {
		case ls.Spec.Mode == v1alpha1.ModeHostnames: // The names may depend on any label of a node.
		case was != is, is && plan.DiffersFor(ls, had, has):
		case after == nil && c.caches.Services.Get(ls.Namespace,
			plan.ServiceName(ls.Name, plan.ForNode, before.GetName())) != nil:
			// A LocalService that selects no node keeps each Service until its node is deleted.
		default:
			continue
		}
		c.loop.AddAfter(cache.KeyOf(ls), reconcile.BatchPeriod)
	}
}

// serviceChanged enqueues the LocalServices that control the Service or want its name. If a LocalService controls a
// new Service, most likely a sync has created it, so only numbers change.
func (c *localServiceController) serviceChanged(before, after *corev1.Service) {
	delay := reconcile.BatchPeriod
	if before == nil && plan.ControllerOf(after).IsLocalService() {
		delay = writer.NumbersInterval
	}
	for _, service := range []*corev1.Service{before, after} {
		for _, key := range c.caches.LocalServicesOf(service) {
			c.loop.AddAfter(key, delay)
		}
	}
}

// endpointsChanged enqueues the LocalService of an EndpointSlice that has, or had, a ready endpoint, because numbers
// change.
func (c *localServiceController) endpointsChanged(before, after *discoveryv1.EndpointSlice) {
	for _, slice := range []*discoveryv1.EndpointSlice{before, after} {
		if slice != nil && cache.IsReady(slice) {
			c.addExisting(plan.LocalServiceOf(slice), writer.NumbersInterval)
		}
	}
}

// hostnameSliceChanged enqueues the LocalService of an EndpointSlice of mode Hostnames, to update its status.
func (c *localServiceController) hostnameSliceChanged(before, after *discoveryv1.EndpointSlice) {
	for _, slice := range []*discoveryv1.EndpointSlice{before, after} {
		if slice != nil {
			c.addExisting(plan.LocalServiceOf(slice), reconcile.BatchPeriod)
		}
	}
}

// addExisting enqueues a LocalService that the label of an EndpointSlice names, if it exists: anybody can write
// labels.
func (c *localServiceController) addExisting(key types.NamespacedName, delay time.Duration) {
	if c.caches.LocalServices.Get(key.Namespace, key.Name) != nil {
		c.loop.AddAfter(key, delay)
	}
}

// sync plans the Services of a LocalService from the caches, writes the differences, and reports the result in the
// status.
func (c *localServiceController) sync(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	if wait := c.writer.Observed.Wait(key, c.caches.Services, cache.ObservedTimeout); wait > 0 {
		return wait, nil
	}
	ls := c.caches.LocalServices.Get(key.Namespace, key.Name)
	if ls == nil || ls.DeletionTimestamp != nil {
		c.writer.Observed.Forget(key)
		return 0, nil // The garbage collector, or the namespace controller, deletes the Services.
	}
	owned := c.caches.Owned(ls)
	templates, err := plan.NewTemplates(ls, c.options.NodeLabelKey, c.caches.Nodes.Labels())
	if err = cmp.Or(err, plan.CheckMode(ls, owned)); err != nil {
		return c.writer.WriteStatus(ctx, ls, status.OfInvalid(ls, err, c.lackingFields()...), false)
	}
	p := c.plan(ls, templates, owned)
	outcome := c.writer.WriteServices(ctx, ls, &p, func() bool { return c.loop.IsAwaited(key) })
	return c.report(ctx, ls, &p, &outcome)
}

// plan computes the plan of a LocalService from the caches.
func (c *localServiceController) plan(ls *v1alpha1.LocalService, templates plan.Templates,
	owned map[string]*corev1.Service) plan.Plan {
	nodes := c.caches.Nodes.Selected(ls)
	names := c.caches.Names(ls, nodes, c.options.NodeLabelKey)
	names.Slices = c.caches.HostnameSlicesOf(cache.KeyOf(ls))
	published := c.caches.EndpointSlicesOf(cache.KeyOf(ls))
	return plan.Compute(plan.Input{
		Templates:   templates,
		Nodes:       nodes,
		Owned:       owned,
		Lookup:      func(name string) *corev1.Service { return c.caches.Services.Get(ls.Namespace, name) },
		NodeExists:  c.nodeExists,
		Ready:       plan.ReadyServices(ls, published),
		Names:       names,
		PortNumbers: plan.PortNumbersOf(ls, slices.AppendSeq(published, maps.Values(names.Slices))),
	})
}

func (c *localServiceController) nodeExists(node string) bool {
	return c.caches.Nodes.Get("", node) != nil
}

// report reports what a sync found and did: in an event, in the status, and in what the sync returns.
func (c *localServiceController) report(ctx context.Context, ls *v1alpha1.LocalService, p *plan.Plan,
	outcome *status.Outcome) (again time.Duration, err error) {
	if errors.Is(outcome.Stopped, writer.ErrNamespaceTerminating) {
		return 0, nil // The LocalService will be deleted, too, and no event can be recorded.
	}
	ls, key := c.withStatus(ls), cache.KeyOf(ls)
	if summary := status.SummarizeMade(outcome.Made); summary != "" {
		if slices.Contains(outcome.Made[plan.Update], ls.Name) {
			summary += status.Renamed(ls, p)
		}
		if len(outcome.Made[plan.Delete]) > 0 {
			summary += status.Gone(p, c.nodeExists)
		}
		if outcome.More {
			summary += "; more follow"
		}
		// Turns in the middle record no event, nor do updates while others are undone, of which Contested reports. A turn
		// that gives up does, because the next turn may write nothing.
		// Until the cache has observed the last status, it cannot show that this turn is not the first.
		isMiddle := status.IsMiddle(ls, p, outcome) || outcome.More &&
			c.writer.Observed.Wait(key, c.caches.LocalServices, cache.StatusTimeout) > 0
		if outcome.GaveUp || !isMiddle && !status.IsFight(outcome) {
			c.writer.Record(ls, corev1.EventTypeNormal, eventServicesWritten, summary)
		}
		klog.FromContext(ctx).Info("Services written", "localService", klog.KObj(ls), "summary", summary,
			"nodes", p.Nodes)
	}
	if outcome.Stopped != nil {
		return 0, outcome.Stopped // A later sync will report.
	}
	later, statusErr := c.writer.WriteStatus(ctx, ls, status.Of(ls, p, outcome, c.lackingFields()...), outcome.More)
	return againAfter(outcome, later), errors.Join(statusErr, outcome.Err(key))
}

// withStatus returns a LocalService with the latest status in the cache, unless its spec has changed: the last status
// may have arrived while the writes were made.
func (c *localServiceController) withStatus(ls *v1alpha1.LocalService) *v1alpha1.LocalService {
	current := c.caches.LocalServices.Get(ls.Namespace, ls.Name)
	if current != nil && current.UID == ls.UID && current.Generation == ls.Generation {
		return current
	}
	return ls
}

// againAfter returns how long after a sync there is work that no event will trigger; 0 if there is none. statusLater is
// what WriteStatus returned. An extra sync is harmless.
func againAfter(outcome *status.Outcome, statusLater time.Duration) (again time.Duration) {
	if outcome.More {
		return reconcile.AtOnce
	}
	if outcome.Stored() > 0 {
		// If somebody deletes a Service right after it was written, the watch may show neither event. The next sync
		// waits until the cache is newer than the write, and then observes that the Service is missing.
		again = writer.NumbersInterval
	}
	for _, delay := range []time.Duration{statusLater, outcome.RetryAfter} { // A write was too early, or refused.
		if delay > 0 && (again == 0 || delay < again) {
			again = delay
		}
	}
	return again
}
