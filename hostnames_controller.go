package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/localservice-dev/local-service-controller/internal/app"
	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/internal/writer"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// hostnames publishes the names of LocalServices with mode Hostnames, as a part of their sync. It watches the
// EndpointSlices in which Kubernetes publishes the pods of the Source, which selects them; it owns their copies, with a
// hostname for each endpoint, which make up the Published Service; it writes those.
type hostnames struct {
	clock        clock.PassiveClock
	nodeLabelKey string
	caches       *cache.Caches
	slices       *writer.Slices
	loop         *reconcile.Loop[types.NamespacedName]
	// doomed has a map[types.UID]time.Time, since when copies are to go, by the keys of LocalServices that have such.
	doomed sync.Map
	// vanished has the keys of LocalServices of which a copy has gone: maybe with its Service, which the cache may be late
	// to know.
	vanished sync.Map
}

// doomedFor is how long a copy stays whose source is gone: if somebody has deleted the Service of that, Kubernetes
// publishes the pods anew, but not all in one moment.
const doomedFor = 5 * time.Second

func newHostnames(deps app.Dependencies, services *writer.Services,
	loop *reconcile.Loop[types.NamespacedName]) *hostnames {
	return &hostnames{loop: loop, clock: deps.Clock, nodeLabelKey: deps.Options.NodeLabelKey,
		caches: deps.Caches,
		slices: writer.NewSlices(deps.Kube, services, deps.Caches.HostnameSlices.Wrote)}
}

// published is what a sync knows of the names of a LocalService.
type published struct {
	plan.Copies
	*plan.Hostnames
	service plan.Service // nil unless the LocalService has it
}

// plan decides about the copies, and completes a plan of Services and the report about it: see tell and holdRetired. It
// does so, too, for a LocalService whose mode has been changed, as long as it has the Services: until then its names
// are kept up to date.
func (h *hostnames) plan(ls *v1alpha1.LocalService, p *plan.Plan, report *status.Report, nodes []string) *published {
	names := h.look(ls)
	if ls.Spec.Mode == v1alpha1.ModeHostnames {
		names.tell(report, nodes)
	}
	if again := h.holdRetired(ls, p, names, report, nodes); again > 0 {
		h.loop.AddAfterBackoff(keyOf(ls), again)
	}
	return names
}

// look decides about the copies, and remembers which are to go.
func (h *hostnames) look(ls *v1alpha1.LocalService) *published {
	nodes, names := h.caches.Nodes.Named(ls), &published{service: h.ours(ls, plan.Published)}
	names.Hostnames = plan.NewHostnames(ls, names.service, nodes.Label)
	names.Copies = plan.ComputeCopies(plan.CopyInput{Hostnames: names.Hostnames, Source: h.ours(ls, plan.Source),
		Published: names.service, Slices: h.caches.Hostnames(ls), Nodes: len(nodes.Names),
		IsContested: func(current plan.EndpointSlice, want plan.SliceSum) bool {
			return h.slices.IsContested(ls, current, want)
		}})
	if names.Sources > 0 { // Otherwise nothing goes, and what is known of the copies stays as it is.
		names.Changes = h.holdDoomed(keyOf(ls), names.Changes)
	}
	return names
}

// holdDoomed leaves out the deletions of copies that have not been doomed for long enough.
func (h *hostnames) holdDoomed(key types.NamespacedName, changes []plan.CopyChange) []plan.CopyChange {
	known, _ := h.doomed.Load(key)
	before, _ := known.(map[types.UID]time.Time)
	now, doomed := h.clock.Now(), map[types.UID]time.Time{}
	kept := slices.DeleteFunc(slices.Clone(changes), func(change plan.CopyChange) bool {
		if change.Action != plan.Delete {
			return false
		}
		uid := change.Current.GetUID()
		since, isKnown := before[uid]
		if !isKnown {
			since = now
		}
		doomed[uid] = since
		return now.Sub(since) < doomedFor
	})
	if len(kept) < len(changes) {
		h.loop.AddAside(key, doomedFor)
	}
	if len(doomed) > 0 {
		h.doomed.Store(key, doomed)
	} else {
		h.doomed.Delete(key)
	}
	return kept
}

// forget forgets what is remembered of a LocalService that is gone.
func (h *hostnames) forget(key types.NamespacedName) {
	h.doomed.Delete(key)
	h.vanished.Delete(key)
}

// isBehind reports whether there are writes to make of the names, and not only such as are refused.
func (h *hostnames) isBehind(ls *v1alpha1.LocalService, names *published) bool {
	return h.slices.HasWrites(ls, names.Changes)
}

// ours is the Service that a LocalService has for a purpose, nil if there is none, or it is somebody else's.
func (h *hostnames) ours(ls *v1alpha1.LocalService, purpose plan.Purpose) plan.Service {
	service := h.caches.Services.Lookup(ls.Namespace, plan.ServiceName(ls.Name, purpose, ""))
	if plan.HolderOf(ls, purpose, "", h.nodeLabelKey, service) != plan.Ours {
		return nil
	}
	return service // Also one that is being deleted: until it is gone, Kubernetes keeps its EndpointSlices up to date.
}

// tell completes a report about a LocalService with mode Hostnames.
func (p *published) tell(report *status.Report, nodes []string) {
	report.Nodes = p.Count(nodes)
	report.ReadyNodes = min(len(p.Ready), report.Nodes) // Pods may be known before their nodes.
	report.Hostnames = &status.Hostnames{Unpublished: p.Sources == 0 && len(report.Conflicts) == 0}
	for i := range p.Changes {
		if p.Changes[i].Action == plan.Wait {
			report.Hostnames.Waiting++
		}
	}
	if p.Contested > 0 {
		report.ContestedFields = append(report.ContestedFields, writer.EndpointsField)
	}
}

// holdRetired takes the deletion of the Services of the mode before out of a plan until nobody needs them any more: all
// that is reached by their names is reached by the new ones, and has been for a while. It returns when to look again, 0
// for not before something changes.
func (h *hostnames) holdRetired(ls *v1alpha1.LocalService, p *plan.Plan, names *published, report *status.Report,
	nodes []string) (again time.Duration) {
	if p.Unselected != nil {
		return 0 // The Services of the previous mode stay, and the report has their number.
	}
	if report.Retiring = p.Count(plan.Retire); report.Retiring == 0 {
		return 0
	}
	report.Unanswered = -1
	isHostnames := ls.Spec.Mode == v1alpha1.ModeHostnames
	if len(p.Changes) == report.Retiring && (!isHostnames || names.IsComplete()) {
		report.Unanswered = h.unanswered(ls, names, nodes)
	}
	left, known := status.LeftToRetire(ls, h.clock.Now())
	switch {
	case report.Unanswered < 0 && (len(p.With(plan.Action.IsWrite)) > report.Retiring || len(names.Changes) > 0):
		again = progressInterval // What is written now may be all that is missing.
	case report.Unanswered != 0: // An event will tell.
	case !known:
		again = status.RetireAfter
	case left > 0:
		again = left
	default:
		if names.service != nil { // As long as the names are there, the Source keeps them up to date.
			source := plan.ServiceName(ls.Name, plan.Source, "")
			p.Changes = slices.DeleteFunc(p.Changes, func(change plan.Change) bool {
				return change.Action == plan.Retire && change.Name == source
			})
		}
		return 0
	}
	keepRetired(p)
	return again
}

func keepRetired(p *plan.Plan) {
	p.Changes = p.With(func(action plan.Action) bool { return action != plan.Retire })
}

// unanswered counts the nodes that are reached by a name of the mode before, and by none of the new one.
func (h *hostnames) unanswered(ls *v1alpha1.LocalService, names *published, nodes []string) (n int) {
	ready, named := h.caches.ReadyServices(ls), names.ReadyNodes(names.Hostnames)
	isHostnames := ls.Spec.Mode == v1alpha1.ModeHostnames
	for _, node := range nodes {
		byService, byHostname := ready[plan.ServiceName(ls.Name, plan.ForNode, node)], named[node]
		if isHostnames && byService && !byHostname && names.Of(node) != "" || !isHostnames && byHostname && !byService {
			n++
		}
	}
	return n
}

// isPublished makes sure, before a copy is made in the place of one that has gone, that the Service of the names is
// there: the garbage collector would delete the copy as often as it is made.
func (h *hostnames) isPublished(ctx context.Context, ls *v1alpha1.LocalService, names *published) error {
	_, vanished := h.vanished.Load(keyOf(ls))
	if !vanished || !slices.ContainsFunc(names.Changes,
		func(change plan.CopyChange) bool { return change.Action == plan.Create }) {
		return nil
	}
	if err := h.slices.IsThere(ctx, names.service); err != nil {
		return fmt.Errorf("publish the names of LocalService %s: %w", keyOf(ls), err)
	}
	h.vanished.Delete(keyOf(ls))
	return nil
}

// write makes the changes of the copies, and completes the plan of Services and the report about it: if not all is
// written, the names of the mode before are needed.
func (h *hostnames) write(ctx context.Context, ls *v1alpha1.LocalService, names *published, p *plan.Plan,
	report *status.Report, next func() error) writer.Outcome {
	if len(names.Changes) == 0 {
		return writer.Outcome{}
	}
	var out writer.Outcome
	if err := h.isPublished(ctx, ls, names); err != nil {
		out.Stale = []error{err}
	} else {
		out = h.slices.Write(ctx, ls, names.Changes, func(change *plan.CopyChange) *discoveryv1.EndpointSlice {
			return plan.Copy(change, names.service, names.Hostnames)
		}, next)
	}
	isAllWritten := len(out.Refused)+len(out.Stale) == 0 && out.Stopped == nil
	if !isAllWritten && report.Hostnames != nil {
		report.ReadyNodes = min(names.ReadyInPlace(names.Hostnames), report.Nodes)
		report.Unanswered = -1
		keepRetired(p)
	}
	isShown := out.AwaitSlices(ctx, func(name, resourceVersion string) bool {
		return h.caches.HostnameSlices.HasReached(ls.Namespace, name, resourceVersion)
	})
	if !isShown {
		h.loop.AddAside(keyOf(ls), pendingInterval)
	}
	return out
}
