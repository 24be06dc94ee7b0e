package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
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
	// batchPeriod is how long events of nodes and Services are collected before their LocalServices are looked at, and
	// readinessPeriod how long those of pods that become ready or not, which change numbers in the status only.
	batchPeriod     = 100 * time.Millisecond
	readinessPeriod = time.Second
	// pendingInterval is when it is looked again whether the caches show what was written.
	pendingInterval = 5 * time.Second

	// Reasons of events.
	eventServicesWritten  = "ServicesWritten"
	eventDeletingServices = "DeletingServices"
)

// What stops the writes of a plan that is not right any more.
var (
	errOutdated     = errors.New("the LocalService has changed")
	errNodesChanged = errors.New("the nodes have changed")
	errPodsChanged  = errors.New("the pods of the names have changed")
)

// localServiceController gives every node a Service of its own in every LocalService. It watches LocalServices, Nodes
// (their metadata), Services, and the EndpointSlices of those, to tell which have ready endpoints; it owns the Services
// whose controller reference is a LocalService; it writes those Services and the status of LocalServices.
type localServiceController struct {
	metadata     metadata.Interface
	recorder     app.Recorder
	clock        clock.WithTicker
	nodeLabelKey string
	caches       *cache.Caches
	services     *writer.Services
	hostnames    *hostnames
	statuses     *writer.Statuses
	loop         *reconcile.Loop[types.NamespacedName]
	// nodeChanges counts the changes of nodes that a plan depends on.
	nodeChanges atomic.Int64
	// nodeWaits are of LocalServices that select a node that they did not before.
	nodeWaits *metrics.Waits
	// vanished has the keys of LocalServices of which a Service has gone: maybe with them, which the cache of
	// LocalServices may be late to know.
	vanished sync.Map
}

func newLocalServiceController(deps app.Dependencies) (*localServiceController, error) {
	c := &localServiceController{
		metadata:     deps.Metadata,
		recorder:     deps.Recorder,
		clock:        deps.Clock,
		nodeLabelKey: deps.Options.NodeLabelKey,
		nodeWaits:    metrics.NewWaits(metrics.NodeFanout),
		caches:       deps.Caches,
		services: writer.NewServices(deps.Kube, deps.Metadata, deps.Options.WriteConcurrency, deps.Shuffle,
			deps.Caches.Services.Wrote),
		statuses: writer.NewStatuses(deps.Client, deps.Caches.LocalServices, deps.Recorder.Record),
	}
	c.loop = reconcile.New("localservice", deps.Clock, namespaceOf, c.sync)
	c.hostnames = newHostnames(deps, c.services, c.loop)
	c.caches.Nodes.OnChange(c.nodeChanged)
	c.caches.Services.OnChange(c.serviceChanged)
	return c, errors.Join(c.caches.LocalServices.OnChange(c.localServiceChanged),
		c.caches.EndpointSlices.OnChange(c.endpointsChanged), c.caches.HostnameSlices.OnChange(c.hostnameSliceChanged))
}

// Run works until ctx is done, and returns when no worker is running any more. The caches must be filled.
func (c *localServiceController) Run(ctx context.Context, workers int) {
	c.loop.Run(ctx, workers, c.caches.LocalServices.Keys)
}

// sync looks at everything that a LocalService depends on, decides what to do about its Services, does it, and tells so
// in the status.
func (c *localServiceController) sync(ctx context.Context, key types.NamespacedName) error {
	ls := c.caches.LocalServices.Get(key.Namespace, key.Name)
	if ls == nil || ls.DeletionTimestamp != nil {
		metrics.Forget(key)
		c.nodeWaits.Take(key)
		c.vanished.Delete(key)
		c.hostnames.forget(key)
		return nil // The garbage collector, or the namespace controller, deletes the Services.
	}
	templates, err := plan.NewTemplates(ls, c.nodeLabelKey)
	wasInvalid := metrics.SetInvalid(key, err != nil)
	if err != nil {
		isTold := wasInvalid && status.TellsInvalid(ls, err)
		if statusErr := c.writeStatus(ctx, ls, status.Report{Invalid: err}); statusErr != nil || isTold {
			return statusErr // An error is to be tried again.
		}
		return reconcile.Terminal(fmt.Errorf("LocalService %s cannot be fanned out: %w", key, err))
	}

	templates.Leave(c.services.Contested.Fields(ls))
	wait := c.nodeWaits.Take(key)
	defer wait.Return()
	nodeChanges := c.nodeChanges.Load()
	p, nodes, owned := c.plan(ls, templates)
	// What the caches are late to show is not to be written again.
	pending := p.LeavePending(func(change *plan.Change) (bool, bool) { return c.caches.Services.IsPending(ls, change) })
	if pending > 0 {
		c.loop.AddAfterBackoff(key, pendingInterval)
	}
	report := status.NewReport(&p, len(nodes))
	metrics.SetFindings(key, metrics.Findings{Conflicted: len(report.Conflicts), Contested: p.Contested})
	report.Capacity = c.caches.Capacity(ls, p.Wanted-len(report.Conflicts))
	names := c.hostnames.plan(ls, &p, &report, nodes)
	// Names come first: pods change also while many Services are written.
	outcome := c.hostnames.write(ctx, ls, names, &p, &report, func() error { return c.isOutdated(ls) })
	if c.loop.IsBackingOff(key) {
		return outcome.WhileBackingOff()
	}
	if err := c.isCurrent(ctx, ls, &p); err != nil {
		return err
	}
	c.announce(ctx, ls, &p, report, owned)
	next := c.beforeEachWrite(ctx, ls, report, nodes, nodeChanges)
	outcome.Add(func() writer.Outcome {
		return c.services.Write(ctx, ls.Namespace, p.With(plan.Action.IsWrite), next,
			func() error { return c.isOutdated(ls) })
	})
	written := c.clock.Now()
	err = c.conclude(ctx, ls, report, outcome)
	if err == nil && outcome.Stopped == nil {
		wait.Done(written)
	}
	return err
}

// plan computes the plan of a LocalService from the caches. It also returns the names of the selected nodes, and how
// many Services the LocalService has.
func (c *localServiceController) plan(ls *v1alpha1.LocalService, templates plan.Templates) (p plan.Plan, nodes []string,
	owned int) {
	nodes = c.caches.Nodes.Selected(ls).Names
	ready := c.caches.ReadyServices(ls)
	c.caches.Services.Owned(ls, func(byName map[string]plan.Service) {
		owned = len(byName)
		p = plan.Compute(plan.Input{Templates: templates, Nodes: nodes, Owned: byName, Ready: ready,
			NodeExists: func(node string) bool { return c.caches.Nodes.Get("", node) != nil },
			Lookup:     func(name string) plan.Service { return c.caches.Services.Lookup(ls.Namespace, name) }})
	})
	return p, nodes, owned
}

// isCurrent makes sure, before Services are changed or deleted, or made in the place of such as have gone, that the
// LocalService still asks for that. The cache may not know yet that it was changed; or that it is deleted, when it
// knows already that its Services were orphaned by the same command: adopted then, they would be deleted with it.
func (c *localServiceController) isCurrent(ctx context.Context, ls *v1alpha1.LocalService, p *plan.Plan) error {
	_, vanished := c.vanished.Load(keyOf(ls))
	if p.Count(plan.Create, plan.Wait, plan.Conflict) == len(p.Changes) && !(vanished && p.Count(plan.Create) > 0) {
		return nil
	}
	if err := writer.IsCurrent(ctx, c.metadata, ls); err != nil {
		return fmt.Errorf("fan out LocalService %s: is it as the cache has it? %w", keyOf(ls), err)
	}
	c.vanished.Delete(keyOf(ls))
	return nil
}

// isOutdated returns an error if a LocalService has changed or gone, other than in its status or in metadata that do not
// matter.
func (c *localServiceController) isOutdated(ls *v1alpha1.LocalService) error {
	current := c.caches.LocalServices.Get(ls.Namespace, ls.Name)
	isGone := current == nil || current.UID != ls.UID || current.DeletionTimestamp != nil
	if isGone || current.Generation != ls.Generation {
		return errOutdated
	}
	return nil
}

// conclude tells what became of a sync: in an event, the status, and its error.
func (c *localServiceController) conclude(ctx context.Context, ls *v1alpha1.LocalService, report status.Report,
	outcome writer.Outcome) error {
	key, counts := keyOf(ls), outcome.Counts()
	if summary := status.Written(counts); summary != "" {
		c.recorder.Record(ls, corev1.EventTypeNormal, eventServicesWritten,
			fmt.Sprintf("%s (%d nodes selected)", summary, report.Nodes))
		klog.FromContext(ctx).V(2).Info("Services written", "localService", klog.KObj(ls), "summary", summary,
			"nodes", report.Nodes)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err() // Whoever goes on after us begins by looking at everything.
	case errors.Is(outcome.Stopped, writer.ErrNamespaceTerminating):
		return nil
	}
	isShown := outcome.Await(ctx, func(w *writer.Written) bool {
		return c.caches.Services.Shows(ls, w.Change, w.ResourceVersion)
	})
	if !isShown && len(outcome.Contested) == 0 {
		c.loop.AddAfterBackoff(key, pendingInterval)
	}
	if len(outcome.Contested) > 0 {
		c.services.Contested.Add(ls, outcome.Contested)
	}
	if len(outcome.Contested) > 0 || errors.Is(outcome.Stopped, errOutdated) {
		c.loop.Add(key)
		return nil
	}
	if len(report.ContestedFields) > 0 {
		c.loop.AddAfter(key, writer.ContestedFor)
	} else if len(outcome.Written) > 0 && len(c.services.Contested.Fields(ls)) > 0 {
		c.loop.AddAfterBackoff(key, batchPeriod) // What was written may have come back changed, too.
	}
	report.InPlace += len(outcome.Written) - counts[plan.Delete] - counts[plan.Retire]
	report.Refused = outcome.Refused
	report.Writing = len(outcome.Refused) == 0 &&
		(len(outcome.Stale) > 0 || outcome.Stopped != nil || report.Outdated > 0)
	statusErr := c.writeStatus(ctx, ls, report)
	switch {
	case len(outcome.Refused) > 0:
		if reconcile.IsStale(statusErr) {
			statusErr = nil // It is told with the next try, which is not to come sooner for that.
		}
		err := errors.Join(fmt.Errorf("fan out LocalService %s: %s", key, status.Summarize(outcome.Refused)), statusErr)
		if outcome.MayPass() {
			return err
		}
		return reconcile.Refused(err)
	case statusErr != nil:
		return statusErr
	case len(outcome.Stale) > 0:
		return reconcile.Stale(fmt.Errorf("fan out LocalService %s: %s", key, status.Summarize(outcome.Stale)))
	case outcome.Stopped != nil: // by errNodesChanged, or errPodsChanged
		c.loop.Add(key)
	}
	return nil
}

// writeStatus writes the status that tells a report, or has it written later.
func (c *localServiceController) writeStatus(ctx context.Context, ls *v1alpha1.LocalService,
	report status.Report) error {
	later, err := c.statuses.Write(ctx, ls, report)
	if later > 0 {
		c.loop.AddAfterBackoff(keyOf(ls), later)
	}
	return err
}
