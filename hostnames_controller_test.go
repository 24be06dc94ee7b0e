package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	goruntime "runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/internal/testing/simulation"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

var sourceName = plan.ServiceName("demo", plan.Source, "")

// sourceSlice returns an EndpointSlice of the Source with a pod on each node, ready unless its name ends in !.
func sourceSlice(source *corev1.Service, suffix string, nodes ...string) *discoveryv1.EndpointSlice {
	slice := objects.SourceSlice(source.Name, source.UID, sourceName+"-"+suffix, nodes...)
	maps.Copy(slice.Labels, source.Labels)
	return slice
}

// publish does what Kubernetes does for the pods of the Source: one on each node, ready unless its name ends in !.
func (c *cluster) publish(suffix string, nodes ...string) {
	c.t.Helper()
	slice := sourceSlice(get[*corev1.Service](c, sourceName), suffix, nodes...)
	if get[*discoveryv1.EndpointSlice](c, slice.Name) == nil {
		c.create(slice)
	} else {
		edit(c, slice.Name, func(s *discoveryv1.EndpointSlice) { s.Endpoints = slice.Endpoints })
	}
	settle()
}

// unpublish deletes an EndpointSlice of the Source.
func (c *cluster) unpublish(suffix string) {
	c.t.Helper()
	c.remove(get[*discoveryv1.EndpointSlice](c, sourceName+"-"+suffix))
}

// want checks the published names, with their addresses.
func (c *cluster) want(what string, want ...string) {
	c.t.Helper()
	if got := c.names(); !slices.Equal(got, want) {
		c.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func (c *cluster) names() (names []string) {
	for _, slice := range simulation.List[*discoveryv1.EndpointSlice](c.server) {
		if slice.Labels[discoveryv1.LabelServiceName] != "demo" {
			continue
		}
		for _, e := range slice.Endpoints {
			name := *e.Hostname + "=" + e.Addresses[0]
			if !*e.Conditions.Ready {
				name += "!"
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// TestHostnames: there are two Services, a copy of each EndpointSlice, one write for each change, and none at rest.
func TestHostnames(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.start()
		expect(t, "writes", []string{"create services demo", "create services " + sourceName,
			"update localservices/status demo 2/2 not Ready: NoEndpointSlices, Progressing"}, c.writes())
		c.publish("1", "a", "b.example.com!", "gone")
		expect(t, "writes", []string{"create endpointslices " + sourceName + "-1-named",
			"update localservices/status demo 2/2 Ready"}, c.writes())
		first := []string{"a=10.0.0.1", "b-example-com=10.0.0.2!"}
		c.want("first", first...)
		edit(c, sourceName+"-1-named", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Hostname = new("other") })
		time.Sleep(time.Second)
		c.want("somebody has edited the copy", first...)
		c.writes()
		c.publish("1", "a")
		c.publish("2", "b.example.com")
		expect(t, "writes", []string{"create endpointslices " + sourceName + "-2-named",
			"update endpointslices " + sourceName + "-1-named", "update localservices/status demo 2/2 Ready"},
			slices.Compact(c.writes()))
		c.unpublish("1")
		time.Sleep(time.Minute) // A copy outlives its source for a moment.
		c.want("one is gone", "b-example-com=10.0.0.2")
		c.requests()
		time.Sleep(time.Hour)
		expect(t, "requests at rest", nil, c.requests())
		expect(t, "events", []string{"Normal ServicesWritten created 2: demo, " + sourceName}, c.recorded())
		c.editSpec(func(ls *v1alpha1.LocalService) { ls.Spec.GroupBy = "zone" })
		expect(t, "events", []string{
			`Normal ServicesWritten updated 1: demo; the names change: groupBy was "", and is "zone"`,
			"Warning NoNodesSelected no node has a value of the label zone (spec.groupBy), so there is no name to publish",
		}, c.recorded())
		c.label("a", "zone=")
		settle()
		c.wantMessage("no node has a value of the label zone (spec.groupBy)")
	}, testLocalService(hostnamesMode), testNode("a"), testNode("b.example.com"))
}

// TestHostnamesAllocations: what a sync of an EndpointSlice allocates does not grow with the number of EndpointSlices.
func TestHostnamesAllocations(t *testing.T) {
	key := types.NamespacedName{Namespace: "default", Name: sourceName + "-1"}
	allocated := func(slices int) (bytes uint64) {
		inCluster(t, func(t *testing.T, c *cluster) {
			c.start()
			for i := range slices {
				c.publish(fmt.Sprint(i), "a")
			}
			bytes = math.MaxUint64
			for range 100 { // Other goroutines allocate, too: the least is that of the sync.
				var before, after goruntime.MemStats
				goruntime.ReadMemStats(&before)
				if _, err := c.running.hostnames.sync(c.t.Context(), key); err != nil {
					c.t.Error(err)
				}
				goruntime.ReadMemStats(&after)
				bytes = min(bytes, after.TotalAlloc-before.TotalAlloc)
			}
		}, testLocalService(hostnamesMode), testNode("a"))
		return bytes
	}
	if few, many := allocated(2), allocated(200); many > few+few/2 {
		t.Errorf("%d bytes among 200 EndpointSlices, %d among 2", many, few)
	}
}

// TestHostnamesSourceRecreated: the names of a deleted Source stay until Kubernetes has published the pods of the next
// one, however late.
func TestHostnamesSourceRecreated(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.start()
		c.publish("1", "a")
		c.publish("2", "b")
		c.want("first", "a=10.0.0.1", "b=10.0.0.2")
		c.remove(get[*corev1.Service](c, sourceName))
		c.unpublish("1")
		c.unpublish("2")
		settle()
		c.want("the source is gone", "a=10.0.0.1", "b=10.0.0.2")
		time.Sleep(time.Minute)
		c.publish("3", "a")
		c.publish("4", "b")
		c.want("it was recreated", "a=10.0.0.1", "b=10.0.0.2")
	}, testLocalService(hostnamesMode), testNode("a"), testNode("b"))
}

// TestHostnamesSliceDeleted: Kubernetes publishes again what somebody has deleted of a Source. Until then the names
// stay, whatever else happens at that moment.
func TestHostnamesSliceDeleted(t *testing.T) {
	slice := func(c *cluster, name string, change func(*discoveryv1.EndpointSlice)) { edit(c, name, change) }
	joins := func(c *cluster) { c.create(testNode("c")) }
	for name, test := range map[string]struct{ before, after func(*cluster) }{
		"alone":               {},
		"a node joins before": {before: joins},
		"a node joins after":  {after: joins},
		"a pod changes before": {before: func(c *cluster) {
			slice(c, sourceName+"-2", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = new(int32(9090)) })
		}},
		"somebody edits the source before": {before: func(c *cluster) {
			slice(c, sourceName+"-2",
				func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelManagedBy] = "somebody" })
		}},
		"somebody edits the copy after": {after: func(c *cluster) {
			slice(c, plan.CopyName(sourceName+"-2"),
				func(s *discoveryv1.EndpointSlice) { delete(s.Labels, corev1.IsHeadlessService) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *cluster) {
				c.start()
				c.publish("1", "a")
				c.publish("2", "b")
				time.Sleep(time.Minute) // The Source itself is not new.
				if test.before != nil {
					test.before(c)
					time.Sleep(20 * time.Millisecond) // The cache observes it.
				}
				c.unpublish("2")
				time.Sleep(20 * time.Millisecond)
				if test.after != nil {
					test.after(c)
				}
				settle()
				c.want("soon after", "a=10.0.0.1", "b=10.0.0.2")
				time.Sleep(plan.CopyStays)
				c.want("in the end", "a=10.0.0.1")
			}, testLocalService(hostnamesMode), testNode("a"), testNode("b"))
		})
	}
}

// TestHostnamesNotPermitted: without the permission to write EndpointSlices, little is asked of the API server, and
// what is missing is reported after some seconds. The names are published within two minutes after it is granted.
func TestHostnamesNotPermitted(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.start()
		permit := c.answerUntil("create", "endpointslices", func(name string) error {
			return apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), name, errors.New(`User "u" cannot `+
				`create resource "endpointslices" in API group "discovery.k8s.io" in the namespace "default"`))
		})
		c.publish("1", "a")
		c.wantReady("False WritingServices 0/1, 2 Services")
		time.Sleep(16 * time.Second)
		c.wantReady("False HostnamesNotPermitted 0/1, 2 Services")
		time.Sleep(5 * time.Minute) // The backoff of the refused write grows.
		c.requests()
		time.Sleep(10 * time.Minute)
		if requests := c.requests(); len(requests) > 20 { // four for each attempt
			t.Errorf("%d requests in ten minutes without the permission", len(requests))
		}
		permit()
		time.Sleep(reconcile.MaxBackoff)
		c.want("once it is permitted", "a=10.0.0.1")
		c.wantReady("True HostnamesInPlace 1/1, 2 Services")
	}, testLocalService(hostnamesMode), testNode("a"))
}

// TestServerWithoutRoles: an API server that has just started denies everything for a moment, because it knows no
// roles. Nothing is reported, and everything is right soon after.
func TestServerWithoutRoles(t *testing.T) {
	deny := func(resource string) func(string) error {
		return func(name string) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, name,
				fmt.Errorf(`User "u" cannot write resource %q in API group "" in the namespace "default"`, resource))
		}
	}
	inCluster(t, func(t *testing.T, c *cluster) {
		permits := []func(){c.answerUntil("create", "services", deny("services")),
			c.answerUntil("create", "endpointslices", deny("endpointslices")),
			c.answerUntil("update", "localservices/status", deny("localservices"))}
		c.start()
		time.Sleep(2 * time.Second)
		for _, permit := range permits {
			permit()
		}
		time.Sleep(4 * time.Second)
		c.publish("1", "a")
		c.wantReady("True HostnamesInPlace 1/1, 2 Services")
		expect(t, "events", []string{"Normal ServicesWritten created 2: demo, " + sourceName}, c.recorded())
	}, testLocalService(hostnamesMode), testNode("a"))
}

// TestCopyDeletedUnobserved: a copy that somebody deletes before the cache has observed it is recreated, although the
// watch sends neither event.
func TestCopyDeletedUnobserved(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.start()
		c.create(sourceSlice(get[*corev1.Service](c, sourceName), "1", "a"))
		c.waitUntil(func() bool { return len(c.names()) > 0 })
		c.endpoint.Stall("endpointslices", time.Second)
		c.unpublish("1-named")
		c.endpoint.Break("endpointslices", true)
		time.Sleep(20 * time.Second)
		c.want("after the copy was deleted", "a=10.0.0.1")
	}, testLocalService(hostnamesMode), testNode("a"))
}

// TestWaitsForItsOwnCopies: until the cache has observed a copy, nothing else is written for its source.
func TestWaitsForItsOwnCopies(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.start()
		c.requests()
		c.create(sourceSlice(get[*corev1.Service](c, sourceName), "1", "a"))
		c.waitUntil(func() bool { return len(c.requests()) > 0 }) // It reads before it writes.
		c.endpoint.Stall("endpointslices", 35*time.Second)
		c.waitUntil(func() bool { return len(c.names()) > 0 })
		settle()
		c.requests()
		c.label("a", "disk=ssd")
		time.Sleep(25 * time.Second)
		expect(t, "requests before it is observed", nil, c.requests())
	}, testLocalService(hostnamesMode), testNode("a"))
}

// TestSliceNamedLikeLocalService: an EndpointSlice with the name of a LocalService does not erase what that has written,
// so that its next sync waits for the cache.
func TestSliceNamedLikeLocalService(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		slice := objects.SourceSlice("other", "other", "demo", "a")
		slice.Labels[v1alpha1.HostnamesLabelKey] = v1alpha1.HostnamesSource
		c.create(slice)
		c.start()
		c.endpoint.Stall("services", 35*time.Second)
		c.editSpec(func(ls *v1alpha1.LocalService) { ls.Spec.PublishNotReadyAddresses = true })
		time.Sleep(time.Second)
		c.writes()
		edit(c, "demo", func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil })
		time.Sleep(time.Second)
		c.editSpec(func(ls *v1alpha1.LocalService) { ls.Spec.PublishNotReadyAddresses = false })
		time.Sleep(10 * time.Second)
		expect(t, "writes before the cache has observed the first", nil, c.writes())
	}, testLocalService(), testNode("a"))
}
