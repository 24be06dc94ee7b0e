package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	componentmetrics "k8s.io/component-base/metrics"

	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/internal/testing/simulation"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestInvalidSpecIsReported: a spec that cannot work is reported once, also if the first write of the status fails.
func TestInvalidSpecIsReported(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.options.NodeLabelKey = "app"
		over := c.refuseUntil("update", "localservices/status")
		c.start()
		over()
		time.Sleep(reconcile.MaxBackoff)
		expect(t, "writes", []string{"update localservices/status demo 0/0 not Ready: InvalidSpec, Stalled"},
			c.writes())
		expect(t, "events", []string{"Warning InvalidSpec spec.selector names the node label app, which the " +
			"controller itself adds: remove it, and use nodeSelector to choose nodes"}, c.recorded())
	}, testNode("node1"), testLocalService())
}

type eventCase struct {
	event  func(c *cluster)
	writes []string
}

// testEvents checks what is written after events about a LocalService with Services on node1 and node2, and that
// nothing is written for an hour afterwards.
func testEvents(t *testing.T, cases map[string]eventCase) {
	for name, e := range cases {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *cluster) {
				c.start()
				c.writes()
				e.event(c)
				settle()
				expect(t, "writes", e.writes, c.writes())
				c.requests()
				time.Sleep(time.Hour)
				expect(t, "requests at rest", nil, c.requests())
			}, testLocalService(onSSD, func(ls *v1alpha1.LocalService) {
				ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{
					Labels: map[string]string{"zone": "in-$(NODE_LABEL['zone'])"}}
			}), testNode("node1", "disk=ssd"), testNode("node2", "disk=ssd"), testNode("node3"))
		})
	}
}

// TestNodeEvents: Services follow the selected nodes, and the labels for which variables stand. Heartbeats cause no
// writes.
func TestNodeEvents(t *testing.T) {
	recreate := func(c *cluster, after time.Duration) {
		c.remove(testNode("node1"))
		time.Sleep(after)
		c.create(testNode("node1", "disk=ssd"))
	}
	testEvents(t, map[string]eventCase{
		"added": {func(c *cluster) { c.create(testNode("node4", "disk=ssd")) },
			[]string{"create services demo-node4", "update localservices/status demo 3/3 Ready"}},
		"added, not selected": {func(c *cluster) { c.create(testNode("node4")) }, nil},
		"deleted": {func(c *cluster) { c.remove(testNode("node2")) },
			[]string{"delete services demo-node2", "update localservices/status demo 1/1 Ready"}},
		"labelled": {func(c *cluster) { c.label("node3", "disk=ssd") },
			[]string{"create services demo-node3", "update localservices/status demo 3/3 Ready"}},
		"label removed": {func(c *cluster) { c.label("node1") },
			[]string{"delete services demo-node1", "update localservices/status demo 1/1 Ready"}},
		"a label for which a variable stands": {func(c *cluster) { c.label("node1", "disk=ssd", "zone=a") },
			[]string{"update services demo-node1"}},
		"another label": {func(c *cluster) { c.label("node1", "disk=ssd", "other=1") }, nil},
		"heartbeat": {func(c *cluster) {
			edit(c, "node1", func(n *corev1.Node) { n.Annotations = map[string]string{"beat": "1"} })
		}, nil},
		"recreated, seen as an update": {func(c *cluster) {
			c.endpoint.Stall("nodes", time.Second)
			recreate(c, 0)
			c.endpoint.Break("nodes", true)
		}, nil},
		"recreated at once": {func(c *cluster) { recreate(c, time.Millisecond) }, nil},
		"recreated later": {func(c *cluster) { recreate(c, 2*reconcile.BatchPeriod) },
			[]string{"create services demo-node1", "delete services demo-node1",
				"update localservices/status demo 1/1 Ready", "update localservices/status demo 2/2 Ready"}},
	})
}

// TestServiceEvents: external changes of Services are repaired, and a name is used once it is free.
func TestServiceEvents(t *testing.T) {
	change := func(c *cluster, change func(*corev1.Service)) { edit(c, "demo-node1", change) }
	testEvents(t, map[string]eventCase{
		"deleted": {func(c *cluster) { c.remove(get[*corev1.Service](c, "demo-node1")) },
			[]string{"create services demo-node1"}},
		"given to another controller, then deleted": {func(c *cluster) {
			change(c, func(s *corev1.Service) { s.OwnerReferences[0].Kind, s.OwnerReferences[0].UID = "Node", "x" })
			settle()
			c.remove(get[*corev1.Service](c, "demo-node1"))
		}, []string{"create services demo-node1",
			"update localservices/status demo 1/2 not Ready: NameTaken, Conflicted, Stalled",
			"update localservices/status demo 2/2 Ready"}},
		"orphaned": {func(c *cluster) { change(c, func(s *corev1.Service) { s.OwnerReferences = nil }) },
			[]string{"update services demo-node1"}},
		"being deleted, kept by a finalizer": {func(c *cluster) {
			change(c, func(s *corev1.Service) { s.Finalizers = []string{"example.com/x"} })
			c.remove(get[*corev1.Service](c, "demo-node1"))
			settle()
			change(c, func(s *corev1.Service) { s.Finalizers = nil })
		}, []string{"create services demo-node1",
			"update localservices/status demo 1/2 not Ready: WaitingForDeletion, Progressing",
			"update localservices/status demo 2/2 Ready"}},
		"label removed": {func(c *cluster) { change(c, func(s *corev1.Service) { delete(s.Labels, "owner") }) },
			[]string{"update services demo-node1"}},
	})
}

// TestLocalServiceEvents: Services follow the spec, and the status is repaired.
func TestLocalServiceEvents(t *testing.T) {
	testEvents(t, map[string]eventCase{
		"spec changed": {func(c *cluster) {
			c.editSpec(func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = nil })
		}, []string{"create services demo-node3", "update localservices/status demo 3/3 Ready"}},
		"status changed by another client": {func(c *cluster) {
			edit(c, "demo", func(ls *v1alpha1.LocalService) { ls.Status.Services = 7 }, "status")
			time.Sleep(reconcile.MaxBackoff)
		}, []string{"update localservices/status demo 2/2 Ready"}},
		"deleted": {func(c *cluster) { c.remove(testLocalService()) }, nil},
		"being deleted, and a node joins": {func(c *cluster) {
			edit(c, "demo", func(ls *v1alpha1.LocalService) { ls.Finalizers = []string{"foregroundDeletion"} })
			c.remove(testLocalService())
			c.create(testNode("node4", "disk=ssd"))
		}, nil},
	})
}

// TestWaitsForItsOwnWrites: until the cache has observed what a sync wrote, nothing else is written for that
// LocalService. Then everything is written, once.
func TestWaitsForItsOwnWrites(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.start()
		c.writes()
		c.endpoint.Stall("services", 35*time.Second)
		c.create(testNode("node1"))
		settle()
		expect(t, "writes", []string{"create services demo-node1", "update localservices/status demo 1/1 Ready"},
			c.writes())
		c.create(testNode("node2"))
		c.editSpec(func(ls *v1alpha1.LocalService) { ls.Spec.PublishNotReadyAddresses = true })
		c.requests()
		time.Sleep(25 * time.Second)
		expect(t, "requests before they are observed", nil, c.requests())
		time.Sleep(10 * time.Second)
		expect(t, "writes when they are observed", []string{"create services demo-node2",
			"update localservices/status demo 2/2 Ready", "update services demo-node1"}, c.writes())
	}, testLocalService())
}

// TestUnobserved: a Service that somebody deletes before the cache has observed it is recreated, although the watch
// sends neither event, and nothing else leads to a sync.
func TestUnobserved(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.start()
		exists := func() bool { return get[*corev1.Service](c, "demo-node1") != nil }
		c.remove(get[*corev1.Service](c, "demo-node1"))
		c.waitUntil(exists) // The status stays as it is.
		c.endpoint.Stall("services", time.Second)
		c.remove(get[*corev1.Service](c, "demo-node1"))
		c.endpoint.Break("services", true)
		time.Sleep(5 * time.Minute)
		if !exists() {
			t.Error("the Service is not recreated")
		}
	}, testLocalService(), testNode("node1"))
}

// expectWrites checks how many times writes of Services were tried since the last call.
func (c *cluster) expectWrites(when string, want int) {
	c.t.Helper()
	if got := c.sent("services"); got != want {
		c.t.Errorf("%d writes of Services %s, want %d", got, when, want)
	}
}

// TestContestedParts: where admission changes a part of a field, few Services are written every two minutes, however
// many there are. When the spec changes, all get the rest of that field, and not only the first ones.
func TestContestedParts(t *testing.T) {
	const nodes, tried = 20, 10 // One more would be in vain.
	inCluster(t, func(t *testing.T, c *cluster) {
		c.server.Admit(func(object simulation.Object) {
			if service, ok := object.(*corev1.Service); ok {
				service.Spec.Ports[0].AppProtocol = new("example.com/theirs")
			}
		})
		c.start()
		c.expectWrites("until it is left", nodes+tried)
		for range 5 {
			time.Sleep(reconcile.MaxBackoff)
			c.expectWrites("without an effect", tried)
		}
		c.editSpec(func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].Port = 9090 })
		c.expectWrites("when the spec has changed", nodes)
		for name, service := range c.services() {
			if service.Spec.Ports[0].Port != 9090 {
				t.Errorf("Service %s does not follow the spec: %+v", name, service)
			}
		}
		if got := fmt.Sprint(c.recorded()); !strings.Contains(got, "as it sets them: ports") {
			t.Errorf("events %s", got)
		}
	}, withNodes(nodes, testLocalService())...)
}

// TestAnswersThatDiffer: an API server that is busy, and says so in other words each time, is not asked at full speed,
// although each answer changes the status.
func TestAnswersThatDiffer(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.answer("create", "services", func(name string) error {
			return apierrors.NewTooManyRequests(fmt.Sprintf("%s at %s", name, time.Now()), 0)
		})
		c.start()
		time.Sleep(time.Minute)
		atFirst := c.sent("services")
		time.Sleep(10 * time.Minute)
		got := c.sent("services")
		if atFirst > 300 || got < 1000 || got > 1300 { // ten each time, in the end every five seconds
			t.Errorf("%d requests in the first minute, then %d in ten", atFirst, got)
		}
	}, withNodes(30, testLocalService())...)
}

// TestQuotaRaised: each Service that a quota has room for is in an event, however little room there is at a time.
func TestQuotaRaised(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.create(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "quota"}})
		limit := func(services int64) {
			edit(c, "quota", func(quota *corev1.ResourceQuota) {
				room := resource.NewQuantity(services, resource.DecimalSI)
				quota.Spec.Hard = corev1.ResourceList{"count/services": *room}
			})
		}
		limit(0)
		c.start()
		reported := 0
		for _, quota := range []int{0, 30, 31, 32, 52} {
			limit(int64(quota))
			time.Sleep(5 * time.Minute)
			for _, event := range c.recorded() {
				if _, made, isMade := strings.Cut(event, "created "); isMade {
					var n int
					_, _ = fmt.Sscanf(made, "%d", &n)
					reported += n
				}
			}
			if got := len(c.services()); reported != got || got != quota {
				t.Errorf("room for %d: %d Services, and events of %d", quota, got, reported)
			}
		}
	}, withNodes(100, testLocalService())...)
}

// TestMostRefused: the Services that a policy accepts, by their names, are created within minutes, however many others
// it refuses. Once all have been tried, nothing else is reported.
func TestMostRefused(t *testing.T) {
	const nodes, accepted = 300, 30
	inCluster(t, func(t *testing.T, c *cluster) {
		c.answer("create", "services", func(name string) error {
			cause := "a policy says no"
			if strings.HasSuffix(name, "1") {
				cause = "another one, too"
			}
			if name >= "demo-node27" && len(name) == len("demo-node270") { // A plan has the accepted ones last.
				return nil
			}
			return apierrors.NewForbidden(corev1.Resource("services"), name, errors.New(cause))
		})
		c.start()
		time.Sleep(15 * time.Minute)
		if got := len(c.services()); got != accepted {
			t.Errorf("%d Services after 15 minutes, want %d", got, accepted)
		}
		c.create(testNode("node999"))
		settle()
		if get[*corev1.Service](c, "demo-node999") == nil {
			t.Error("the Service of a node that joins has to wait for those that are refused")
		}
		time.Sleep(20 * time.Minute)
		c.writes()
		c.recorded()
		time.Sleep(time.Hour)
		expect(t, "writes", nil, c.writes()) // above all of the status
		expect(t, "events", nil, c.recorded())
	}, withNodes(nodes, testLocalService())...)
}

// TestTerminatingNamespace: while the namespace is being deleted, few writes are tried, and nothing is reported.
func TestTerminatingNamespace(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		terminating := apierrors.NewForbidden(corev1.Resource("services"), "x", errors.New("terminating"))
		terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		var acceptsOne atomic.Bool
		c.answer("create", "services", func(string) error {
			if acceptsOne.CompareAndSwap(true, false) {
				return nil
			}
			return terminating
		})
		c.start()
		c.expectWrites("at first", 1)
		c.remove(testNode("b"))
		settle()
		c.expectWrites("when another node is gone", 0)
		acceptsOne.Store(true)
		c.create(testNode("c", "disk=ssd"))
		settle()
		if got := c.sent("services"); got < 2 || got > 3 {
			t.Errorf("%d writes for another node, want two creations, of which one may be tried again", got)
		}
		if writes := c.writes(); len(writes) != 1 {
			t.Errorf("writes %q, want one Service, and no status", writes)
		}
		expect(t, "events", nil, c.recorded())
	}, testNode("a", "disk=ssd"), testNode("b"), testLocalService(onSSD))
}

// TestProgress: a sync writes for five seconds, and then the status reports the progress of a long fan-out. The first
// part and the last have an event, and so has the part in which the first Service is refused.
func TestProgress(t *testing.T) {
	for name, test := range map[string]struct {
		nodes            int
		each             time.Duration // time to create one Service
		refused, accepts int           // the first creation that is refused, and how many are accepted after it
		least, most      int           // reports of progress
		events, followed int           // how many there are, and how many end with "more follow"
	}{
		"short":            {90, 5 * time.Millisecond, 0, 0, 0, 0, 1, 0},
		"long":             {120, 100 * time.Millisecond, 0, 0, 2, 3, 2, 1},
		"one hangs, often": {6, 5 * time.Second, 0, 0, 5, 6, 2, 1},
		"one is refused":   {160, 100 * time.Millisecond, 64, 200, 2, 4, 3, 2},
		"a quota":          {120, 100 * time.Millisecond, 64, 0, 2, 5, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *cluster) {
				c.options.WriteConcurrency = 1
				var mu sync.Mutex
				refusedName, creations := "", 0
				c.answer("create", "services", func(name string) error {
					time.Sleep(test.each)
					mu.Lock()
					defer mu.Unlock()
					if creations++; creations == test.refused {
						refusedName = name
					}
					if name == refusedName || test.refused > 0 && creations > test.refused+test.accepts {
						return apierrors.NewForbidden(corev1.Resource("services"), name, errors.New("no"))
					}
					return nil
				})
				c.start()
				time.Sleep(time.Minute)
				var reported []int32
				for _, s := range c.reported() {
					reported = append(reported, s.Services)
				}
				last := len(reported) - 1
				if last < test.least || last > test.most {
					t.Fatalf("reported %v, want %d to %d reports of progress", reported, test.least, test.most)
				}
				if n := len(c.services()); !slices.IsSorted(reported) || int(reported[last]) != n {
					t.Errorf("reported %v, want ascending numbers up to %d", reported, n)
				}
				var events, followed int
				all := c.recorded()
				for _, event := range all {
					if strings.Contains(event, eventServicesWritten) {
						events++
					}
					if strings.HasSuffix(event, "; more follow") {
						followed++
					}
				}
				if events != test.events || followed != test.followed {
					t.Errorf("%d events, want %d, and %d, want %d, that others follow: %q", events, test.events,
						followed, test.followed, all)
				}
			}, withNodes(test.nodes, testLocalService())...)
		})
	}
}

// TestStatusReadyNodes: the status counts the nodes whose Service has a ready endpoint, and follows the EndpointSlices,
// also when the labels of its Service move one to another LocalService. It says which port no container has.
func TestStatusReadyNodes(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.start()
		expect := func(when, want string) {
			t.Helper()
			settle()
			if got := get[*v1alpha1.LocalService](c, "demo").Status; got.Ready != want {
				t.Errorf("%s: ready %q (%d), want %q", when, got.Ready, got.ReadyNodes, want)
			}
		}
		belongTo := func(owner string) {
			edit(c, "demo-node1-x", func(s *discoveryv1.EndpointSlice) { s.Labels[v1alpha1.OwnerLabelKey] = owner })
		}
		expect("at first", "1/2")
		c.wantMessage("no container has a port named web")
		ready := testSlice("demo-node2", "b").Endpoints
		edit(c, "demo-node2-x", func(s *discoveryv1.EndpointSlice) { s.Endpoints = ready })
		expect("the other one is ready", "2/2")
		belongTo("other")
		expect("one belongs to another LocalService", "1/2")
		belongTo("demo")
		expect("it is back", "2/2")
		c.remove(testSlice("demo-node2"))
		expect("one is deleted", "1/2")
	}, testLocalService(func(ls *v1alpha1.LocalService) {
		ls.Spec.Ports[0].Name, ls.Spec.Ports[0].TargetPort = "web", intstr.FromString("web")
	}),
		testNode("node1"), testNode("node2"), testSlice("demo-node1", "a"), testSlice("demo-node2", "b!"))
}

// measured returns a function that checks what a histogram has recorded since the last call, once everything has
// settled: how many times, and their sum.
func measured(t *testing.T, histogram *componentmetrics.Histogram) func(what string, wantCount uint64, least,
	most time.Duration) {
	t.Helper()
	registry := componentmetrics.NewKubeRegistry()
	registry.MustRegister(histogram)
	read := func() (count uint64, sum float64) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		h := families[0].GetMetric()[0].GetHistogram()
		return h.GetSampleCount(), h.GetSampleSum()
	}
	counted, summed := read()
	return func(what string, wantCount uint64, least, most time.Duration) {
		t.Helper()
		settle()
		count, sum := read()
		if n, d := count-counted, time.Duration((sum-summed)*float64(time.Second)); n != wantCount || d < least ||
			d > most {
			t.Errorf("%s: %d measured, %s together; want %d, %s to %s", what, n, d, wantCount, least, most)
		}
		counted, summed = count, sum
	}
}

// TestNodeFanoutIsMeasured: for a new node, or a new LocalService, the time until the Service is created is measured,
// also if that takes several attempts. Nothing else is.
func TestNodeFanoutIsMeasured(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		time.Sleep(time.Hour)
		expect := measured(t, metrics.NodeFanout)
		c.create(testLocalService(objects.Named("names"), hostnamesMode))
		c.start()
		expect("the start, long after everything else was created", 0, 0, 0)
		c.create(testNode("new"))
		expect("a node joins", 1, reconcile.BatchPeriod, reconcile.BatchPeriod+2*time.Second)
		c.label("old", "disk=ssd")
		expect("a LocalService begins to select an old node", 0, 0, 0)
		c.remove(get[*corev1.Service](c, "demo-old"))
		expect("the Service of an old node is recreated", 0, 0, 0)
		c.editSpec(func(ls *v1alpha1.LocalService) { ls.Spec.PublishNotReadyAddresses = true })
		expect("the Service of a new node is changed", 0, 0, 0)
		c.remove(testNode("new"))
		expect("a node leaves", 0, 0, 0)
		over := c.refuseUntil("create", "services")
		c.create(testNode("late"))
		expect("a node joins, and its Service is refused", 0, 0, 0)
		over()
		time.Sleep(time.Minute)
		expect("the Service is not refused any more", 1, 10*time.Second, 15*time.Second)
		c.create(testLocalService(objects.Named("young")))
		expect("a LocalService is created", 2, 0, 4*time.Second)
	}, testLocalService(), testLocalService(objects.Named("ssd"), onSSD), testNode("old"))
}

// TestDeletionTakenBack: while a cache is behind, so that nothing can be made, the status stays as it is. Else a node
// whose label flips all the time would lead to two writes of the status each time.
func TestDeletionTakenBack(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.start()
		c.writes()
		c.endpoint.Lag("nodes", 10*time.Second)
		c.label("b")
		time.Sleep(5 * time.Second)
		c.label("b", "disk=ssd")
		time.Sleep(8 * time.Second)
		if _, isThere := c.deps.Caches.Nodes.Get("", "b").Labels.Lookup("disk"); isThere {
			t.Error("the cache is not behind")
		}
		time.Sleep(time.Minute)
		expect(t, "writes", nil, c.writes())
	}, testLocalService(onSSD), testNode("a", "disk=ssd"), testNode("b", "disk=ssd"))
}

// TestLocalServicesLag: while the watch of LocalServices is behind, Services are written all the same, and the status
// once it has caught up.
func TestLocalServicesLag(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.start()
		c.writes()
		c.endpoint.Stall("localservices", 4*time.Second)
		want := []string{}
		for i := range 15 {
			node := fmt.Sprintf("b%02d", i)
			c.create(testNode(node))
			time.Sleep(200 * time.Millisecond)
			want = append(want, "create services demo-"+node)
		}
		expect(t, "writes while the watch is behind", append(want, "update localservices/status demo 2/2 Ready"),
			c.writes())
		time.Sleep(3 * time.Second)
		expect(t, "writes afterwards", []string{"update localservices/status demo 16/16 Ready"}, c.writes())
	}, testLocalService(), testNode("a"))
}

// TestLongOutage: when the API server is back after an outage, what was about to be written and what has changed
// meanwhile is right within seconds, whatever a load balancer has answered in its place.
func TestLongOutage(t *testing.T) {
	for _, outcome := range []simulation.Outcome{simulation.Away, simulation.BadGateway, simulation.GatewayTimeout,
		simulation.Throttled} {
		t.Run(string(outcome), func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *cluster) {
				c.start()
				for i := range 5 { // Backoffs have jitter.
					before, meanwhile := fmt.Sprint("before-", i), fmt.Sprint("meanwhile-", i)
					c.create(testNode(before))
					time.Sleep(time.Duration(i) * time.Millisecond)
					c.server.Stop(3*time.Minute, 0, outcome)
					time.Sleep(time.Minute)
					c.create(testNode(meanwhile))
					time.Sleep(2 * time.Minute)
					c.waitUntil(func() bool {
						return c.services()["demo-"+before] != nil && c.services()["demo-"+meanwhile] != nil
					})
				}
			}, testLocalService(), testNode("node1"))
		})
	}
}

// TestProxyWithoutBookmarks: behind a proxy that drops bookmarks, the caches are filled by lists, and follow changes.
func TestProxyWithoutBookmarks(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.endpoint.DropsBookmarks.Store(true)
		c.start()
		time.Sleep(time.Minute)
		c.waitUntil(func() bool { return get[*corev1.Service](c, "demo-node1") != nil })
		c.create(testNode("node2"))
		c.waitUntil(func() bool { return get[*corev1.Service](c, "demo-node2") != nil })
	}, testLocalService(), testNode("node1"))
}

// TestConflictsAreReported: a webhook that refuses with the code of a conflict looks like a cache that lags, but the
// status must not say that everything is in place.
func TestConflictsAreReported(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.start()
		c.answer("create", "services", func(name string) error {
			return apierrors.NewConflict(corev1.Resource("services"), name, errors.New("not on Fridays"))
		})
		c.create(testNode("b"))
		time.Sleep(time.Minute)
		c.wantReady("False WritingServices 0/2, 1 Services")
	}, testLocalService(), testNode("a"))
}
