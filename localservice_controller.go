package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/localservice-dev/local-service-controller/internal/app"
	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/internal/writer"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// batchPeriod is how long events of nodes, Services and EndpointSlices are collected, in this controller and in
	// that of mode Hostnames, before a sync looks at them. Those of pods that become ready or not change only numbers
	// in the status, and wait for writer.NumbersInterval.
	batchPeriod = 100 * time.Millisecond

	eventServicesWritten = "ServicesWritten"
)

var errNotObserved = errors.New("the caches have not observed what was written last")

// localServiceController gives every node a Service of its own in every LocalService. It watches LocalServices, Nodes
// (their metadata), Services, and the EndpointSlices of those, to count which have ready endpoints; it owns the
// Services whose controller reference is a LocalService; it writes those Services and the status of LocalServices.
//
// A sync decides by the caches alone. It waits until they have observed what the last sync wrote, so that nothing has
// to be remembered about it. It writes for half a second, longer where the API server is slow; the rest is planned
// again, at the end of the queue.
type localServiceController struct {
	recorder     app.Recorder
	clock        clock.PassiveClock
	nodeLabelKey string
	caches       *cache.Caches
	observed     *cache.Observed
	services     *writer.Services
	slices       *writer.Slices // which copies were refused, or are changed by others
	statuses     *writer.Statuses
	loop         *reconcile.Loop[types.NamespacedName]
	// nodeWaits measures how long LocalServices wait that select a node that they did not before.
	nodeWaits *metrics.Waits
}

func newLocalServiceController(deps app.Dependencies, names *writer.Slices) (*localServiceController, error) {
	// The status reports what was refused to either controller. What each wrote last it waits for alone: the key of an
	// EndpointSlice may be that of a LocalService, too.
	writers := names.Dependencies
	writers.Observed = cache.NewObserved()
	c := &localServiceController{
		recorder:     deps.Recorder,
		clock:        deps.Clock,
		nodeLabelKey: deps.Options.NodeLabelKey,
		caches:       deps.Caches,
		observed:     writers.Observed,
		services:     writer.NewServices(writers, deps.Options.WriteConcurrency, deps.Recorder.Record),
		slices:       names,
		statuses:     writer.NewStatuses(writers, deps.Client, deps.Recorder.Record),
		nodeWaits:    metrics.NewWaits(metrics.NodeFanout, deps.Clock),
	}
	c.loop = reconcile.New("localservice", deps.Clock, namespaceOf, c.sync)
	return c, errors.Join(c.caches.LocalServices.OnChange(c.localServiceChanged),
		c.caches.Nodes.OnChange(c.nodeChanged),
		c.caches.Services.OnChange(c.serviceChanged),
		c.caches.EndpointSlices.OnChange(c.endpointsChanged),
		c.caches.HostnameSlices.OnChange(c.hostnameSliceChanged))
}

// localServiceChanged enqueues every change: a sync that finds everything in place costs less than remembering what
// this controller wrote itself.
func (c *localServiceController) localServiceChanged(before, after *v1alpha1.LocalService) {
	if before != nil && (after == nil || after.UID != before.UID) {
		c.services.Refusals.Forget(before.UID)
	}
	if after == nil {
		after = before // The garbage collector deletes its Services, but a metric may be about it.
	}
	c.loop.Add(cache.KeyOf(after))
}

func (c *localServiceController) nodeChanged(before, after *cache.Node) {
	for ls := range c.caches.LocalServices.All() {
		was := before != nil && plan.Selects(ls, before.Labels)
		is := after != nil && plan.Selects(ls, after.Labels)
		isHostnames := ls.Spec.Mode == v1alpha1.ModeHostnames
		if is && !was && c.loop.Running() && !isHostnames {
			c.nodeWaits.Begin(cache.KeyOf(ls))
		}
		// Hostnames may follow a node's labels. A LocalService that selects nothing keeps the Service of a node that
		// exists.
		if was != is || isHostnames || after == nil && c.hasService(ls, before.GetName()) {
			c.loop.AddAfter(cache.KeyOf(ls), batchPeriod)
		}
	}
}

// hasService reports whether the cache has a Service with the name of that of a node.
func (c *localServiceController) hasService(ls *v1alpha1.LocalService, node string) bool {
	return c.caches.Services.Lookup(ls.Namespace, plan.ServiceName(ls.Name, plan.ForNode, node)) != nil
}

// serviceChanged finds the LocalServices that control the Service, or want its name.
func (c *localServiceController) serviceChanged(before, after *cache.Service) {
	for _, service := range []*cache.Service{before, after} {
		for key := range c.caches.LocalServicesOf(service) {
			c.loop.AddAfter(key, batchPeriod)
		}
	}
}

// endpointsChanged finds the LocalServices of an EndpointSlice that has, or had, a ready endpoint.
func (c *localServiceController) endpointsChanged(before, after *cache.EndpointSlice) {
	for _, slice := range []*cache.EndpointSlice{before, after} {
		if slice == nil || !slice.Ready {
			continue
		}
		key := types.NamespacedName{Namespace: slice.GetNamespace(), Name: slice.LocalService.Value()}
		if c.caches.LocalServices.Get(key.Namespace, key.Name) != nil {
			c.loop.AddAfter(key, writer.NumbersInterval)
		}
	}
}

// hostnameSliceChanged finds the LocalService of an EndpointSlice of mode Hostnames, for its status.
func (c *localServiceController) hostnameSliceChanged(before, after *cache.HostnameSlice) {
	for _, slice := range []*cache.HostnameSlice{before, after} {
		if slice != nil && c.caches.LocalServices.Get(slice.GetNamespace(), slice.LocalService().Name) != nil {
			c.loop.AddAfter(slice.LocalService(), batchPeriod)
		}
	}
}

// Run works until ctx is done, and returns when no worker is running any more. The caches must be filled.
func (c *localServiceController) Run(ctx context.Context, workers int) {
	c.loop.Run(ctx, workers, c.caches.LocalServices.Keys)
}

// sync looks at everything that a LocalService depends on, decides what to do about its Services, does it, and reports
// in the status.
func (c *localServiceController) sync(ctx context.Context, key types.NamespacedName) error {
	if !c.observed.IsObserved(key) {
		return reconcile.Stale(errNotObserved)
	}
	ls := c.caches.LocalServices.Get(key.Namespace, key.Name)
	if ls == nil || ls.DeletionTimestamp != nil {
		c.nodeWaits.Forget(key)
		c.observed.Forget(key)
		return nil // The garbage collector, or the namespace controller, deletes the Services.
	}
	// Contested fields are those that an admission webhook or policy changes: they are left as they are for a while.
	templates, err := plan.NewTemplates(ls, c.nodeLabelKey, c.services.ContestedFields(ls)...)
	if err != nil {
		return c.reportInvalid(ctx, ls, err)
	}
	began := c.clock.Now()
	p := c.plan(ls, templates)
	outcome := c.services.Write(ctx, ls, &p)
	if outcome.Stopped == nil && outcome.IsComplete() {
		c.nodeWaits.Done(key, began)
	}
	return c.report(ctx, ls, &p, &outcome)
}

// plan computes the plan of a LocalService from the caches.
func (c *localServiceController) plan(ls *v1alpha1.LocalService, templates plan.Templates) plan.Plan {
	return plan.Compute(plan.Input{
		Templates:  templates,
		Nodes:      c.caches.Nodes.Selected(ls),
		Owned:      c.caches.Services.Owned(ls),
		Lookup:     func(name string) plan.Service { return c.caches.Services.Lookup(ls.Namespace, name) },
		NodeExists: func(node string) bool { return c.caches.Nodes.Get("", node) != nil },
		Ready:      c.caches.ReadyServices(ls),
		Names:      namesOf(c.caches, c.slices, ls, c.nodeLabelKey),
		Capacity:   func(more int) plan.Capacity { return c.caches.Services.Capacity(ls, more) },
		Now:        c.clock.Now(),
	})
}

// report reports what a sync found and did, in an event, the status and its error, and has the LocalService synced
// again if there is more to do.
func (c *localServiceController) report(ctx context.Context, ls *v1alpha1.LocalService, p *plan.Plan,
	outcome *writer.Outcome) error {
	key := cache.KeyOf(ls)
	if summary := status.Written(outcome.Made); summary != "" {
		c.recorder.Record(ls, corev1.EventTypeNormal, eventServicesWritten, summary)
		klog.FromContext(ctx).Info("Services written", "localService", klog.KObj(ls), "summary", summary,
			"nodes", p.Nodes)
	}
	if errors.Is(outcome.Stopped, writer.ErrNamespaceTerminating) {
		return nil // The LocalService will be gone, too.
	}
	if outcome.Stopped != nil {
		return outcome.Stopped // Nothing is known for sure. The next sync, or the next leader, begins with the caches.
	}
	report := status.Report{Plan: *p, Written: outcome.InPlace(), Unfinished: !outcome.IsComplete(),
		Refused: slices.Concat(outcome.Refused, outcome.Failed)}
	if p.IsHostnames {
		report.Refused = append(report.Refused, c.slices.Refused(ls, p.Copies.Changes)...)
	}
	later, statusErr := c.statuses.Write(ctx, ls, report)
	// What no event reports: a status that would be written too often, a refused write that may be tried again, names
	// of the previous mode that may go.
	for _, again := range []time.Duration{later, outcome.RetryAfter, p.Retirement.Again} {
		if again > 0 {
			c.loop.AddAfter(key, again)
		}
	}
	if len(outcome.Made) > 0 {
		c.loop.AddAfter(key, writer.ObserveAfter) // Of an object that is deleted at once the watch may show nothing.
	}
	if outcome.More {
		c.loop.Add(key)
	}
	return errors.Join(statusErr, outcome.Err(key))
}

// reportInvalid reports that a spec cannot be turned into Services: in the status, and in the log when that is written.
func (c *localServiceController) reportInvalid(ctx context.Context, ls *v1alpha1.LocalService, invalid error) error {
	if status.ReportsInvalid(ls, invalid) {
		return nil
	}
	if _, err := c.statuses.Write(ctx, ls, status.Report{Invalid: invalid}); err != nil {
		return err
	}
	return reconcile.Terminal(fmt.Errorf("LocalService %s cannot be fanned out: %w", cache.KeyOf(ls), invalid))
}
