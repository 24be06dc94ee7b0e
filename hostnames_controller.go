package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/app"
	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/writer"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// hostnamesController publishes the names of LocalServices with mode Hostnames. It watches the EndpointSlices in
// which Kubernetes publishes the pods that the Source Service selects. It owns and writes their copies, with a
// hostname for each endpoint, which belong to the Published Service. Its keys are the EndpointSlices of the Source,
// so that each change of one leads to one comparison and one write. A copy whose source is gone has a key of its own.
type hostnamesController struct {
	caches  *cache.Caches
	writer  *writer.Writer
	options *app.Options
	loop    *reconcile.Loop
	// syncStatus enqueues a LocalService to update its status, after a copy was refused or is no longer refused.
	syncStatus func(localService types.NamespacedName)
}

func newHostnamesController(deps *app.Dependencies, refusals *writer.Refusals,
	syncStatus func(localService types.NamespacedName)) *hostnamesController {
	c := &hostnamesController{caches: deps.Caches, writer: writer.New(&deps.Shared, refusals), options: deps.Options,
		syncStatus: syncStatus}
	c.loop = reconcile.New("hostnames", deps.Clock, c.sync)
	c.caches.HostnameSlices.OnChange(c.sliceChanged)
	c.caches.Services.OnChange(c.serviceChanged)
	c.caches.LocalServices.OnChange(c.localServiceChanged)
	c.caches.Nodes.OnChange(c.nodeChanged)
	return c
}

// sliceChanged enqueues an EndpointSlice, or the source of a copy.
func (c *hostnamesController) sliceChanged(before, after *discoveryv1.EndpointSlice) {
	switch {
	case after == nil:
		c.add(before.GetNamespace(), plan.CopyName(plan.SourceName(before.GetName())), reconcile.BatchPeriod)
	case plan.ManagerOf(after) == plan.KubernetesSliceManager:
		c.add(after.GetNamespace(), after.GetName(), 0)
	default:
		c.add(after.GetNamespace(), after.GetName(), reconcile.BatchPeriod) // Something may keep changing it.
	}
}

// add enqueues an EndpointSlice after a delay. For a copy, it enqueues the source. If that is gone, it enqueues the
// copy, to be deleted later, because the source may come back.
func (c *hostnamesController) add(namespace, name string, delay time.Duration) {
	key := writer.SliceKey(namespace, name)
	if key.Name != name && c.caches.HostnameSlices.Get(namespace, key.Name) == nil {
		key.Name, delay = name, plan.CopyStays
	}
	c.loop.AddAfter(key, delay)
}

// serviceChanged enqueues the EndpointSlices in the namespace of a Service that a LocalService with mode Hostnames
// controls.
func (c *hostnamesController) serviceChanged(before, after *corev1.Service) {
	for _, service := range []*corev1.Service{before, after} {
		if service == nil {
			continue
		}
		controller := plan.ControllerOf(service)
		if ls := c.caches.LocalServices.Get(service.Namespace, controller.Name); isPublished(ls) && ls.UID == controller.UID {
			c.loop.AddAfter(reconcile.AllIn(service.Namespace), reconcile.BatchPeriod)
		}
	}
}

// localServiceChanged enqueues the EndpointSlices in the namespace of a LocalService whose spec changed.
func (c *hostnamesController) localServiceChanged(before, after *v1alpha1.LocalService) {
	if after != nil && (before == nil || before.Generation != after.Generation || before.UID != after.UID) {
		c.loop.AddAfter(reconcile.AllIn(after.Namespace), reconcile.BatchPeriod)
	}
}

// nodeChanged enqueues the EndpointSlices of all LocalServices: their names may depend on the labels of any node.
func (c *hostnamesController) nodeChanged(*cache.Node, *cache.Node) {
	c.loop.AddAfter(reconcile.AllIn(metav1.NamespaceAll), reconcile.BatchPeriod)
}

// addAll enqueues the EndpointSlices of a namespace that need a change; for all namespaces, it enqueues each of them.
// It computes the names of a LocalService once: a sync of each of a thousand EndpointSlices would walk all nodes.
func (c *hostnamesController) addAll(namespace string) {
	for ls := range c.caches.LocalServices.All() {
		switch {
		case !isPublished(ls):
		case namespace == metav1.NamespaceAll:
			c.loop.Add(reconcile.AllIn(ls.Namespace))
		case namespace == ls.Namespace:
			names := c.namesOf(ls)
			names.Slices = c.caches.HostnameSlicesOf(cache.KeyOf(ls))
			for name := range names.Slices {
				if names.Change(name).Action != "" {
					c.add(namespace, name, 0)
				}
			}
		}
	}
}

func isPublished(ls *v1alpha1.LocalService) bool {
	return ls != nil && ls.DeletionTimestamp == nil && ls.Spec.Mode == v1alpha1.ModeHostnames
}

func (c *hostnamesController) namesOf(ls *v1alpha1.LocalService) *plan.Names {
	return c.caches.Names(ls, c.caches.Nodes.Selected(ls), c.options.NodeLabelKey)
}

// sync updates the copy of an EndpointSlice, or deletes a copy whose source is gone. For a key that stands for all
// EndpointSlices of a namespace, it enqueues those that need a change.
func (c *hostnamesController) sync(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	if reconcile.IsAll(key) {
		c.addAll(key.Namespace)
		return 0, nil
	}
	if wait := c.writer.Observed.Wait(key, c.caches.HostnameSlices, cache.ObservedTimeout); wait > 0 {
		return wait, nil
	}
	ls := c.localServiceOf(key)
	if ls == nil {
		c.writer.Observed.Forget(key)
		return 0, nil // The garbage collector deletes the copies with their Service.
	}
	names := c.namesOf(ls)
	// Do not list all of them: there may be a thousand, and each has a sync of its own.
	names.Slices = c.caches.HostnameSlicesNamed(cache.KeyOf(ls), key.Name, plan.CopyName(key.Name),
		plan.SourceName(key.Name))
	change := names.Change(key.Name)
	if change.Action == "" || change.Action == plan.Wait {
		return 0, nil
	}
	if change.Action == plan.Delete {
		names.Slices = c.caches.HostnameSlicesOf(cache.KeyOf(ls)) // The deletion may depend on the others.
		if !names.IsReplaced(change.Current) {
			return plan.CopyStays, nil
		}
	}
	again, report, err := c.writer.WriteCopy(ctx, ls, &change, names)
	if report {
		c.syncStatus(cache.KeyOf(ls))
	}
	if err != nil {
		return 0, fmt.Errorf("publish the names of LocalService %s: %w", cache.KeyOf(ls), err)
	}
	if again == 0 && change.Action != plan.Delete {
		again = reconcile.BatchPeriod // The watch may never show a copy that is deleted at once, as with Services.
	}
	return again, nil
}

// localServiceOf returns the LocalService with mode Hostnames that an EndpointSlice or its copy belongs to; nil if
// there is none.
func (c *hostnamesController) localServiceOf(key types.NamespacedName) *v1alpha1.LocalService {
	for _, name := range []string{key.Name, plan.CopyName(key.Name)} {
		if slice := c.caches.HostnameSlices.Get(key.Namespace, name); slice != nil {
			if ls := c.caches.LocalServices.Get(key.Namespace, plan.LocalServiceOf(slice).Name); isPublished(ls) {
				return ls
			}
		}
	}
	return nil
}
