package main

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// localServiceChanged leaves out what this controller itself has written, which is the status.
func (c *localServiceController) localServiceChanged(before, after *v1alpha1.LocalService) {
	switch {
	case after == nil:
		c.loop.Add(keyOf(before)) // The garbage collector deletes its Services, but a metric may tell of it.
	case c.caches.LocalServices.IsEcho(before, after):
	case cache.SameSpec(before, after): // Our own echo may come before the answer.
		c.loop.AddAfterBackoff(keyOf(after), 0)
	default:
		c.loop.Add(keyOf(after))
	}
}

func (c *localServiceController) nodeChanged(before, after *cache.Node) {
	c.nodeChanges.Add(1)
	for ls := range c.caches.LocalServices.All() {
		was := before != nil && plan.Selects(ls, before.Labels)
		is := after != nil && plan.Selects(ls, after.Labels)
		if is && !was && c.loop.Running() && ls.Spec.Mode != v1alpha1.ModeHostnames {
			c.nodeWaits.Begin(keyOf(ls), c.clock.Now())
		}
		if was != is {
			c.loop.AddAfter(keyOf(ls), batchPeriod)
		} else if is { // Hostnames may follow its labels. Labels that change all the time mend nothing that was refused.
			c.loop.AddAside(keyOf(ls), batchPeriod)
		} else if len(ls.Spec.NodeSelector) > 0 && (after == nil || ls.Spec.Mode == v1alpha1.ModeHostnames) {
			// A LocalService that selects nothing keeps the Services of all nodes that exist, and names all nodes.
			c.loop.AddAside(keyOf(ls), batchPeriod)
		}
	}
}

// serviceChanged has those LocalServices looked at that control the Service, or want its name.
func (c *localServiceController) serviceChanged(before, after *cache.Service) {
	isSame := before != nil && after != nil && before.Same(after)
	isEcho := after != nil && c.caches.Services.IsEcho(after)
	// After a watch was broken, it may tell only now, with our own write, that somebody else's Service has gone before.
	// One without a node is of mode Hostnames: what Kubernetes publishes for it may have been told before.
	isOnlyOurs := isEcho && after.Node() != "" && (before == nil || before.Controller() == after.Controller())
	if isSame || isOnlyOurs {
		return
	}
	for _, service := range []*cache.Service{before, after} {
		for key := range c.caches.LocalServicesOf(service) {
			if after == nil && c.loop.Running() {
				c.vanished.Store(key, nil)
			}
			c.loop.AddAfterBackoff(key, batchPeriod)
		}
	}
}

// endpointsChanged finds the LocalServices of an EndpointSlice that has, or had, a ready endpoint.
func (c *localServiceController) endpointsChanged(before, after *cache.EndpointSlice) {
	if before != nil && after != nil && before.Same(after) {
		return
	}
	for _, slice := range []*cache.EndpointSlice{before, after} {
		if slice == nil || !slice.Ready {
			continue
		}
		key := types.NamespacedName{Namespace: slice.GetNamespace(), Name: slice.LocalService.Value()}
		if c.caches.LocalServices.Store.Get(key.Namespace, key.Name) != nil {
			c.loop.AddAfterBackoff(key, readinessPeriod)
		}
	}
}

// hostnameSliceChanged finds the LocalService of an EndpointSlice.
func (c *localServiceController) hostnameSliceChanged(before, after *cache.HostnameSlice) {
	isSame := before != nil && after != nil && before.Same(after)
	if after != nil && c.caches.HostnameSlices.IsEcho(after) || isSame {
		return
	}
	for _, slice := range []*cache.HostnameSlice{before, after} {
		if slice == nil {
			continue
		}
		key := slice.LocalService()
		switch {
		case c.caches.LocalServices.Store.Get(key.Namespace, key.Name) == nil:
		case slice.Manager() == plan.KubernetesSliceManager:
			c.loop.AddAside(key, 0) // Pods change whatever is refused.
		case after == nil && c.loop.Running():
			c.hostnames.vanished.Store(key, nil)
			c.loop.AddAfterBackoff(key, batchPeriod)
		default: // Somebody changes what is ours, and may do so as often as we put it right.
			c.loop.AddAfterBackoff(key, batchPeriod)
		}
	}
}
