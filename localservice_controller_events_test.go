package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// testEvents checks what is written after events about a LocalService with Services on node1 and node2, and that
// nothing is written before them, or for an hour afterwards.
func testEvents(t *testing.T, cases map[string]eventCase) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ls := testLocalService(inPlace(2), onSSD)
				f := runLocalServices(t, ls, testNode("node1", "disk=ssd"), testNode("node2", "disk=ssd"),
					testNode("node3"), testService(ls, "node1"), testService(ls, "node2"))
				f.expect("writes at rest", nil, f.writes())
				c.event(f)
				settle()
				f.expect("writes", c.writes, f.writes())
				time.Sleep(time.Hour)
				if got := f.requests(); len(got) > 0 {
					t.Errorf("requests at rest: %v", got)
				}
			})
		})
	}
}

type eventCase struct {
	event  func(f *fixture)
	writes []string
}

// TestNodeEvents: Services follow the selected nodes. Heartbeats cause no writes.
func TestNodeEvents(t *testing.T) {
	node := func(edit func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
		n := testNode("node1", "disk=ssd")
		edit(n)
		return n
	}
	testEvents(t, map[string]eventCase{
		"added": {func(f *fixture) { f.set(testNode("node4", "disk=ssd")) },
			[]string{"create services demo-node4", "update localservices/status demo 3/3 Ready"}},
		"added, not selected": {func(f *fixture) { f.set(testNode("node4")) }, nil},
		"deleted": {func(f *fixture) { f.remove(testNode("node2")) },
			[]string{"delete services demo-node2 uid=uid-demo-node2", "update localservices/status demo 1/1 Ready"}},
		"labelled": {func(f *fixture) { f.set(testNode("node3", "disk=ssd")) },
			[]string{"create services demo-node3", "update localservices/status demo 3/3 Ready"}},
		"label removed": {func(f *fixture) { f.set(testNode("node1")) },
			[]string{"delete services demo-node1 uid=uid-demo-node1", "update localservices/status demo 1/1 Ready"}},
		"heartbeat": {func(f *fixture) {
			f.set(node(func(n *metav1.PartialObjectMetadata) { n.Annotations = map[string]string{"beat": "1"} }))
		}, nil},
		"recreated, seen as an update": {func(f *fixture) {
			f.set(node(func(n *metav1.PartialObjectMetadata) { n.UID = "another" }))
		}, nil},
		"recreated at once": {func(f *fixture) {
			f.remove(testNode("node1"))
			time.Sleep(time.Millisecond)
			f.set(testNode("node1", "disk=ssd"))
		}, nil},
		"recreated later": {func(f *fixture) {
			f.remove(testNode("node1"))
			time.Sleep(batchPeriod + time.Millisecond)
			f.set(testNode("node1", "disk=ssd"))
		}, []string{"create services demo-node1", "delete services demo-node1 uid=uid-demo-node1",
			"update localservices/status demo 1/1 Ready", "update localservices/status demo 2/2 Ready"}},
	})
}

// TestServiceEvents: external changes of Services are repaired, and a name is used once it is free.
func TestServiceEvents(t *testing.T) {
	ls := testLocalService(inPlace(2), onSSD)
	set := func(edit func(*corev1.Service)) func(*fixture) {
		return func(f *fixture) { f.set(testService(ls, "node1", edit)) }
	}
	thenRemove := func(event func(*fixture)) func(*fixture) {
		return func(f *fixture) {
			event(f)
			settle()
			f.remove(testService(ls, "node1"))
		}
	}
	testEvents(t, map[string]eventCase{
		"deleted": {func(f *fixture) { f.remove(testService(ls, "node1")) }, []string{"create services demo-node1"}},
		"given to another controller, then deleted": {thenRemove(set(func(s *corev1.Service) {
			s.OwnerReferences[0].Kind, s.OwnerReferences[0].UID = "Node", "x"
		})), []string{"create services demo-node1",
			"update localservices/status demo 1/2 not Ready: NameTaken, Conflicted, Stalled",
			"update localservices/status demo 2/2 Ready"}},
		"being deleted, kept by a finalizer": {thenRemove(set(func(s *corev1.Service) {
			s.DeletionTimestamp, s.Finalizers = new(metav1.Now()), []string{"x"}
		})), []string{"create services demo-node1",
			"update localservices/status demo 1/2 not Ready: WaitingForDeletion, Progressing",
			"update localservices/status demo 2/2 Ready"}},
		"label removed": {set(func(s *corev1.Service) { delete(s.Labels, "owner") }),
			[]string{`patch services demo-node1 {"metadata":{"labels":{"owner":"demo"},"resourceVersion":"1001"}}`}},
	})
}

// TestLocalServiceEvents: Services follow the spec, and the status is repaired.
func TestLocalServiceEvents(t *testing.T) {
	testEvents(t, map[string]eventCase{
		"spec changed": {func(f *fixture) {
			f.set(testLocalService(inPlace(2), func(ls *v1alpha1.LocalService) { ls.Generation = 2 }))
		}, []string{"create services demo-node3", "update localservices/status demo 3/3 Ready"}},
		"status changed by another client": {func(f *fixture) {
			f.set(testLocalService(inPlace(7), onSSD))
			time.Sleep(reconcile.MaxBackoff)
		}, []string{"update localservices/status demo 2/2 Ready"}},
		"deleted": {func(f *fixture) { f.remove(testLocalService()) }, nil},
	})
}

// TestEventsThatConcernNobody: Services and EndpointSlices that are not ours lead to no sync.
func TestEventsThatConcernNobody(t *testing.T) {
	ls := testLocalService(inPlace(0))
	service := func(name string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "theirs"}}
	}
	other := testSlice("other-node1", true)
	for name, event := range map[string]func(f *fixture){
		"a Service whose name begins in another way": func(f *fixture) { f.set(service("other-node1")) },
		"a Service whose name has no dash":           func(f *fixture) { f.set(service("demo")) },
		"a Service of the same name elsewhere": func(f *fixture) {
			f.set(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "demo-node1", Namespace: "other"}})
		},
		"an EndpointSlice of somebody else": func(f *fixture) { f.set(other) },
		"an EndpointSlice without a ready endpoint": func(f *fixture) {
			f.set(testSlice("demo-node1", false))
			f.set(testSlice("demo-node1", false, false))
			f.remove(testSlice("demo-node1"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, ls)
				c, syncs := f.newLocalServices(), 0
				end(t, c.loop)
				c.loop = reconcile.New("counted", f.deps.Clock,
					func(ctx context.Context, key types.NamespacedName) error {
						syncs++
						return c.sync(ctx, key)
					})
				f.watch()
				f.run(c.Run)
				before := syncs
				event(f)
				settle()
				if syncs != before || before == 0 {
					t.Errorf("%d syncs at the start, and %d in the end", before, syncs)
				}
			})
		})
	}
}

// runSilent runs a controller whose watch of Services sends only what the test sends.
func (f *fixture) runSilent() (services *watch.FakeWatcher) {
	f.t.Helper()
	services = watch.NewFake()
	f.kube.PrependWatchReactor("services", func(core.Action) (bool, watch.Interface, error) {
		return true, services, nil
	})
	f.runLocalServices()
	return services
}

// TestWaitsForItsOwnWrites: until the cache has observed what a sync wrote, nothing else is written for that
// LocalService. Then everything is written, once.
func TestWaitsForItsOwnWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, testNode("node1"), testLocalService())
		services := f.runSilent()
		f.expect("writes", []string{"create services demo-node1", "update localservices/status demo 1/1 Ready"},
			f.writes())
		f.set(testNode("node2"))
		f.edit(func(ls *v1alpha1.LocalService) { ls.Spec.PublishNotReadyAddresses = true })
		time.Sleep(30 * time.Second)
		f.expect("writes before they are observed", nil, f.writes())
		services.Add(f.services()["demo-node1"])
		settle()
		f.expect("writes when they are observed", []string{"create services demo-node2",
			`patch services demo-node1 {"metadata":{"resourceVersion":"1001"},` +
				`"spec":{"publishNotReadyAddresses":true}}`,
			"update localservices/status demo 2/2 Ready"}, f.writes())
	})
}

// TestUnobserved: a Service that somebody deletes before the cache has observed it is recreated, although the watch
// sends neither event, and nothing else leads to a sync.
func TestUnobserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, testNode("node1"), testLocalService(inPlace(1)))
		f.runSilent()
		f.expect("writes", []string{"create services demo-node1"}, f.writes())
		f.remove(f.services()["demo-node1"])
		time.Sleep(5 * time.Minute)
		if f.services()["demo-node1"] == nil {
			t.Error("the Service is not recreated")
		}
	})
}
