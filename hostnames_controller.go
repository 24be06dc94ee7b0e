package main

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/localservice-dev/local-service-controller/internal/app"
	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/writer"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// hostnamesController publishes the names of LocalServices with mode Hostnames. It watches the EndpointSlices in which
// Kubernetes publishes the pods of the Source, which selects them; it owns their copies, with a hostname for each
// endpoint, which make up the Published Service; it writes those. Its keys are the EndpointSlices of the Source: one
// that changes leads to one comparison and one write.
//
// It publishes them, too, for a LocalService whose mode was changed, as long as that has both Services.
type hostnamesController struct {
	clock        clock.PassiveClock
	nodeLabelKey string
	caches       *cache.Caches
	observed     *cache.Observed
	slices       *writer.Slices
	loop         *reconcile.Loop[types.NamespacedName]
	// report has the status of a LocalService report what could not be written, or can be again.
	report func(localService types.NamespacedName)
}

func newHostnamesController(deps app.Dependencies) (*hostnamesController, error) {
	writers := writer.NewDependencies(deps.Kube, deps.Metadata, deps.Clock, deps.Caches, deps.Shuffle)
	c := &hostnamesController{
		clock:        deps.Clock,
		nodeLabelKey: deps.Options.NodeLabelKey,
		caches:       deps.Caches,
		observed:     writers.Observed,
		slices:       &writer.Slices{Dependencies: writers},
	}
	c.loop = reconcile.New("hostnames", deps.Clock, namespaceOf, c.sync)
	return c, errors.Join(c.caches.HostnameSlices.OnChange(c.sliceChanged),
		c.caches.Services.OnChange(c.serviceChanged),
		c.caches.LocalServices.OnChange(c.localServiceChanged), c.caches.Nodes.OnChange(c.nodeChanged))
}

func (c *hostnamesController) sliceChanged(before, after *cache.HostnameSlice) {
	slice, isGone := after, after == nil
	if isGone {
		slice = before
	}
	wait := batchPeriod // Somebody changes what is ours, and may do so as often as it is put right.
	if slice.Manager() == plan.KubernetesSliceManager {
		if wait = 0; isGone {
			wait = plan.CopyStays
		}
	}
	c.loop.AddAfter(writer.SliceKey(slice.GetNamespace(), slice.GetName()), wait)
}

// serviceChanged finds the EndpointSlices of a Service of mode Hostnames, which is of no node.
func (c *hostnamesController) serviceChanged(before, after *cache.Service) {
	for _, service := range []*cache.Service{before, after} {
		if service != nil && service.Controller().Kind == v1alpha1.Kind && service.Node() == "" {
			c.addAll(types.NamespacedName{Namespace: service.GetNamespace(), Name: service.Controller().Name})
		}
	}
}

// localServiceChanged finds the EndpointSlices of a LocalService whose spec changed.
func (c *hostnamesController) localServiceChanged(before, after *v1alpha1.LocalService) {
	if after != nil && (before == nil || before.Generation != after.Generation || before.UID != after.UID) {
		c.addAll(cache.KeyOf(after))
	}
}

// nodeChanged finds the EndpointSlices of all LocalServices: their names may depend on the labels of any node.
func (c *hostnamesController) nodeChanged(*cache.Node, *cache.Node) {
	for ls := range c.caches.LocalServices.All() {
		c.addAll(cache.KeyOf(ls))
	}
}

func (c *hostnamesController) addAll(localService types.NamespacedName) {
	for name := range c.caches.Hostnames(localService) {
		c.loop.AddAfter(writer.SliceKey(localService.Namespace, name), batchPeriod)
	}
}

// Run works until ctx is done, and returns when no worker is running any more. The caches must be filled.
func (c *hostnamesController) Run(ctx context.Context, workers int) {
	c.loop.Run(ctx, workers, func() iter.Seq[types.NamespacedName] {
		return func(yield func(types.NamespacedName) bool) {
			for key := range c.caches.HostnameSlices.Keys() {
				if !yield(writer.SliceKey(key.Namespace, key.Name)) {
					return
				}
			}
		}
	})
}

// sync brings the copy of an EndpointSlice to what it should be.
func (c *hostnamesController) sync(ctx context.Context, key types.NamespacedName) error {
	if !c.observed.IsObserved(key) {
		return reconcile.Stale(errNotObserved)
	}
	ls := c.localServiceOf(key)
	if ls == nil {
		c.observed.Forget(key)
		return nil // The garbage collector deletes the copies with their Service.
	}
	names := namesOf(c.caches, c.slices, ls, c.nodeLabelKey)
	change, isContested := names.Change(key.Name)
	if isContested {
		c.loop.AddAfter(key, reconcile.MaxBackoff)
	}
	if change.Action == "" || change.Action == plan.Wait {
		return nil
	}
	if change.Action == plan.Delete {
		if wait := names.DeletesAfter(c.clock.Now()); wait > 0 {
			c.loop.AddAfter(key, wait)
			return nil
		}
	}
	again, report, err := c.slices.Write(ctx, ls, &change, names)
	if report {
		c.report(cache.KeyOf(ls))
	}
	if err != nil {
		return fmt.Errorf("publish the names of LocalService %s: %w", cache.KeyOf(ls), err)
	}
	c.loop.AddAfter(key, again)
	return nil
}

// localServiceOf returns the LocalService of an EndpointSlice of the Source, of its copy, or of another one, nil if
// there is none.
func (c *hostnamesController) localServiceOf(key types.NamespacedName) *v1alpha1.LocalService {
	for _, name := range []string{key.Name, plan.CopyName(key.Name)} {
		if slice := c.caches.HostnameSlices.Get(key.Namespace, name); slice != nil {
			ls := c.caches.LocalServices.Get(key.Namespace, slice.LocalService().Name)
			if ls != nil && ls.DeletionTimestamp == nil {
				return ls
			}
		}
	}
	return nil
}

// namesOf returns what is published of the names of a LocalService.
func namesOf(caches *cache.Caches, slices *writer.Slices, ls *v1alpha1.LocalService, nodeLabelKey string) *plan.Names {
	names := plan.NamesOf(ls, nodeLabelKey, caches.Nodes.Named(ls),
		func(name string) plan.Service { return caches.Services.Lookup(ls.Namespace, name) })
	names.Slices = caches.Hostnames(cache.KeyOf(ls))
	names.IsContested = func(current plan.EndpointSlice, want plan.SliceSum) bool {
		return slices.IsContested(ls, current, want)
	}
	return names
}
