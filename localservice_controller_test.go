package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/testobject"
	"github.com/localservice-dev/local-service-controller/internal/writer"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

var (
	demoKey          = types.NamespacedName{Namespace: "default", Name: "demo"}
	testLocalService = testobject.LocalService
)

// newLocalServiceFixture makes a controller that does nothing by itself: the test calls sync.
func newLocalServiceFixture(t *testing.T, objects ...runtime.Object) (*fixture, *localServiceController) {
	t.Helper()
	f := newFixture(t, objects...)
	c := f.newLocalServices()
	end(t, c.loop)
	f.watch()
	return f, c
}

// runLocalServices makes a controller that works.
func runLocalServices(t *testing.T, objects ...runtime.Object) *fixture {
	t.Helper()
	f := newFixture(t, objects...)
	f.runLocalServices()
	return f
}

// runLocalServices has a controller of LocalServices work until the end of the test.
func (f *fixture) runLocalServices() {
	f.t.Helper()
	f.startLocalServices(4)
	settle()
}

// startLocalServices has a controller of LocalServices work until stop is called, or the end of the test.
func (f *fixture) startLocalServices(workers int) (stop func()) {
	f.t.Helper()
	c := f.newLocalServices()
	f.watch()
	return f.start(c.Run, workers)
}

func (f *fixture) newLocalServices() *localServiceController {
	f.t.Helper()
	d := f.deps
	c, err := newLocalServiceController(d,
		writer.NewSlices(writer.NewDependencies(d.Kube, d.Metadata, d.Clock, d.Caches, d.Shuffle)))
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

func (f *fixture) expect(what string, want, got []string) {
	f.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestSyncWrites: what a sync writes, for each state that it may find.
func TestSyncWrites(t *testing.T) {
	ls := testLocalService()
	earlier := testLocalService(func(ls *v1alpha1.LocalService) { ls.UID = "earlier" })
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "demo-node1", Namespace: "default", UID: "theirs"}}
	elsewhere := testService(ls, "node1", func(s *corev1.Service) { s.Namespace = "other" })
	claimed := testService(ls, "node1", func(s *corev1.Service) {
		s.Namespace, s.Finalizers, s.DeletionTimestamp = "other", []string{"example.com/x"}, new(metav1.Now())
	})
	drifted := func(s *corev1.Service) { s.Spec.Selector["app"] = "x" }
	ssd := func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = map[string]string{"disk": "ssd"} }
	for name, c := range map[string]struct {
		objects []runtime.Object
		writes  []string
		events  []string
	}{
		"a Service for every node": {
			[]runtime.Object{ls, testNode("node1"), testNode("node2")},
			[]string{"create services demo-node1", "create services demo-node2", "patch localservices/status demo " +
				"2/2 Ready"},
			[]string{"Normal ServicesWritten Services: created 2 (2 nodes selected)"},
		},
		"the node's name counts, not its label kubernetes.io/hostname": {
			[]runtime.Object{ls, testNode("node1", "kubernetes.io/hostname=other")},
			[]string{"create services demo-node1", "patch localservices/status demo 1/1 Ready"},
			[]string{"Normal ServicesWritten Services: created 1 (1 nodes selected)"},
		},
		"nothing at rest": {
			[]runtime.Object{testLocalService(inPlace(1)), testNode("node1"), testService(ls, "node1")}, nil, nil,
		},
		"a status that is wrong": {
			[]runtime.Object{testLocalService(inPlace(2)), testNode("node1"), testService(ls, "node1")},
			[]string{"patch localservices/status demo 1/1 Ready"}, nil,
		},
		"a status of an earlier generation": {
			[]runtime.Object{testLocalService(inPlace(1), func(ls *v1alpha1.LocalService) { ls.Generation = 2 }),
				testNode("node1"), testService(ls, "node1")},
			[]string{"patch localservices/status demo 1/1 Ready"}, nil,
		},
		"only for the nodes selected": {
			[]runtime.Object{testLocalService(ssd), testNode("node1", "disk=ssd"), testNode("node2", "disk=hdd"),
				testNode("node3")},
			[]string{"create services demo-node1", "patch localservices/status demo 1/1 Ready"},
			[]string{"Normal ServicesWritten Services: created 1 (1 nodes selected)"},
		},
		"orphans go, with their UID": {
			[]runtime.Object{testLocalService(inPlace(0)), testService(ls, "gone")},
			[]string{"delete services demo-gone uid=uid-demo-gone"},
			[]string{"Normal ServicesWritten Services: deleted 1 (0 nodes selected)"},
		},
		"drift is mended by a patch of what differs": {
			[]runtime.Object{testLocalService(inPlace(1)), testNode("node1"), testService(ls, "node1", drifted)},
			[]string{`patch services demo-node1 {"metadata":{"resourceVersion":"7"},` +
				`"spec":{"selector":{"app":"demo"}}}`},
			[]string{"Normal ServicesWritten Services: updated 1 (1 nodes selected)"},
		},
		"headless to cluster IP is a replacement": {
			[]runtime.Object{testLocalService(inPlace(1)), testNode("node1"),
				testService(testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = "" }), "node1")},
			[]string{"create services demo-node1", "delete services demo-node1 uid=uid-demo-node1"},
			[]string{"Normal ServicesWritten Services: replaced 1 (1 nodes selected)"},
		},
		"a Service of somebody else is left alone": {
			[]runtime.Object{ls, testNode("node1"), testNode("node2"), foreign},
			[]string{"create services demo-node2", "patch localservices/status demo 1/2 not Ready: NameTaken, " +
				"Conflicted, Stalled"},
			[]string{"Normal ServicesWritten Services: created 1 (2 nodes selected)",
				"Warning NameTaken 1 Service names are taken by Services that this LocalService does not control: " +
					"demo-node1 (controlled by nothing). Delete or rename those, or give this LocalService another " +
					"name"},
		},
		"a Service of an earlier LocalService of the name is left to the garbage collector": {
			[]runtime.Object{testLocalService(inPlace(0)), testService(earlier, "gone")}, nil, nil,
		},
		"a Service in another namespace that claims to be ours is left alone": {
			[]runtime.Object{testLocalService(inPlace(0)), elsewhere}, nil, nil,
		},
		"a Service in another namespace that claims to be ours, and does not go, keeps no name from us": {
			[]runtime.Object{ls, testNode("node1"), claimed},
			[]string{"create services demo-node1", "patch localservices/status demo 1/1 Ready"},
			[]string{"Normal ServicesWritten Services: created 1 (1 nodes selected)"},
		},
		"a LocalService that is being deleted is left to the garbage collector": {
			[]runtime.Object{testLocalService(func(ls *v1alpha1.LocalService) {
				ls.DeletionTimestamp, ls.Finalizers = new(metav1.Now()), []string{"foregroundDeletion"}
			}), testNode("node1")}, nil, nil,
		},
		"a LocalService that is gone": {[]runtime.Object{testNode("node1")}, nil, nil},
		"a spec that cannot work": {
			[]runtime.Object{testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.Selector["vm/rack"] = "x" }),
				testNode("node1")},
			[]string{"patch localservices/status demo 0/0 not Ready: InvalidSpec, Stalled"},
			[]string{"Warning InvalidSpec spec.selector names the node label vm/rack, which the controller itself " +
				"adds: remove it, and use nodeSelector to choose nodes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, controller := newLocalServiceFixture(t, c.objects...)
				err := controller.sync(t.Context(), demoKey)
				if invalid := name == "a spec that cannot work"; (err != nil) != invalid {
					t.Errorf("sync: %v", err)
				}
				f.expect("writes", c.writes, f.writes())
				f.expect("events", c.events, f.recorded())
				synctest.Wait() // Now the caches have observed what was written.
				if err := controller.sync(t.Context(), demoKey); name != "a spec that cannot work" && err != nil {
					t.Errorf("second sync: %v", err)
				}
				f.expect("writes of a second sync", nil, f.writes())
			})
		})
	}
}

// TestEventsLeadToWork: what is written because of an event, and that nothing is looked at because of others.
func TestEventsLeadToWork(t *testing.T) {
	ssd := func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = map[string]string{"disk": "ssd"} }
	ls := testLocalService(inPlace(2), ssd)
	node := func(edit func(*metav1.PartialObjectMetadata), labels ...string) *metav1.PartialObjectMetadata {
		n := testNode("node1", labels...)
		edit(n)
		return n
	}
	ours := func(edit func(*corev1.Service)) *corev1.Service { return testService(ls, "node1", edit) }
	for name, c := range map[string]struct {
		event  func(f *fixture)
		writes []string
	}{
		"node added": {func(f *fixture) { f.set(testNode("node4", "disk=ssd")) },
			[]string{"create services demo-node4", "patch localservices/status demo 3/3 Ready"}},
		"node added that is not selected": {func(f *fixture) { f.set(testNode("node4")) }, nil},
		"node deleted": {func(f *fixture) { f.remove(testNode("node2")) },
			[]string{"delete services demo-node2 uid=uid-demo-node2", "patch localservices/status demo 1/1 Ready"}},
		"node labelled": {func(f *fixture) { f.set(testNode("node3", "disk=ssd")) },
			[]string{"create services demo-node3", "patch localservices/status demo 3/3 Ready"}},
		"node unlabelled": {func(f *fixture) { f.set(testNode("node1")) },
			[]string{"delete services demo-node1 uid=uid-demo-node1", "patch localservices/status demo 1/1 Ready"}},
		"node heartbeat": {func(f *fixture) {
			f.set(node(func(n *metav1.PartialObjectMetadata) { n.Annotations = map[string]string{"beat": "1"} },
				"disk=ssd"))
		}, nil},
		"node deleted and added again": {func(f *fixture) {
			f.set(node(func(n *metav1.PartialObjectMetadata) { n.UID = "another" }, "disk=ssd"))
		}, nil}, // Its Service is as good as before.
		"node deleted, and back at once": {func(f *fixture) {
			f.remove(testNode("node1"))
			time.Sleep(time.Millisecond)
			f.set(testNode("node1", "disk=ssd"))
		}, nil},
		"node deleted, and back later": {func(f *fixture) {
			f.remove(testNode("node1"))
			time.Sleep(batchPeriod + time.Millisecond)
			f.set(testNode("node1", "disk=ssd"))
		}, []string{"create services demo-node1", "delete services demo-node1 uid=uid-demo-node1",
			"patch localservices/status demo 1/1 Ready", "patch localservices/status demo 2/2 Ready"}},
		"our Service given to somebody else": {func(f *fixture) {
			f.set(ours(func(s *corev1.Service) { s.OwnerReferences[0].Kind, s.OwnerReferences[0].UID = "Node", "x" }))
		}, []string{"patch localservices/status demo 1/2 not Ready: NameTaken, Conflicted, Stalled"}},
		"our Service kept by a finalizer, and gone then": {func(f *fixture) {
			f.set(ours(func(s *corev1.Service) {
				s.DeletionTimestamp, s.Finalizers = new(metav1.Now()), []string{"x"}
			}))
			settle()
			f.remove(testService(ls, "node1"))
		}, []string{"create services demo-node1",
			"patch localservices/status demo 1/2 not Ready: WaitingForDeletion, Progressing",
			"patch localservices/status demo 2/2 Ready"}},
		"our Service deleted": {func(f *fixture) { f.remove(testService(ls, "node1")) },
			[]string{"create services demo-node1"}},
		"our Service edited": {func(f *fixture) { f.set(ours(func(s *corev1.Service) { delete(s.Labels, "owner") })) },
			[]string{`patch services demo-node1 {"metadata":{"labels":{"owner":"demo"},"resourceVersion":"1001"}}`}},
		"our Service's node annotation edited": {func(f *fixture) {
			f.set(ours(func(s *corev1.Service) { s.Annotations["localservice.dev/node"] = "node2" }))
		}, []string{`patch services demo-node1 {"metadata":{"annotations":{"localservice.dev/node":"node1"},` +
			`"resourceVersion":"1001"}}`}},
		"spec changed": {func(f *fixture) {
			f.set(testLocalService(inPlace(2), func(ls *v1alpha1.LocalService) { ls.Generation = 2 }))
		}, []string{"create services demo-node3", "patch localservices/status demo 3/3 Ready"}},
		"status edited by somebody": {func(f *fixture) { f.set(testLocalService(inPlace(7), ssd)) },
			[]string{"patch localservices/status demo 2/2 Ready"}},
		"LocalService deleted": {func(f *fixture) { f.remove(ls) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := runLocalServices(t, ls, testNode("node1", "disk=ssd"), testNode("node2", "disk=ssd"),
					testNode("node3"),
					testService(ls, "node1"), testService(ls, "node2"))
				f.expect("writes at rest", nil, f.writes())
				c.event(f)
				settle()
				f.expect("writes", c.writes, f.writes())
				time.Sleep(time.Hour)
				f.expect("writes at rest", nil, f.writes())
			})
		})
	}
}

// TestEventsThatConcernNobody: what is queued because of Services, and EndpointSlices, that are not ours.
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
				c := f.newLocalServices()
				f.watch()
				f.run(func(ctx context.Context, _ int) { c.Run(ctx, 0) })
				before := c.loop.Len() // Nobody works on the first key.
				event(f)
				settle()
				if got := c.loop.Len(); got != before || before != 1 {
					t.Errorf("%d keys in the queue, want the 1 of the start", got)
				}
			})
		})
	}
}

// TestNothingPolls: a LocalService whose Services are in place is not looked at again.
func TestNothingPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := testLocalService(inPlace(1))
		f := newFixture(t, ls, testNode("node1"), testService(ls, "node1"))
		c := f.newLocalServices()
		f.watch()
		f.run(func(ctx context.Context, _ int) {
			c.loop.Run(ctx, 0, func() iter.Seq[types.NamespacedName] { return slices.Values([]types.NamespacedName{}) })
		})
		if err := c.sync(t.Context(), demoKey); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if got := c.loop.Len(); got != 0 {
			t.Errorf("%d keys in the queue after an hour", got)
		}
	})
}

// TestForeignServicesHeal: when a name is freed, the node that wanted it gets its Service, and nothing polls for that.
// The LocalServices that may want a name are those whose own name it begins with.
func TestForeignServicesHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "demo-x-node1", Namespace: "default",
			UID: "theirs"}}
		second := testLocalService(func(ls *v1alpha1.LocalService) { ls.Name, ls.UID = "demo-x", "uid-2" })
		f := runLocalServices(t, second, testNode("node1"), foreign)
		f.expect("writes", []string{"patch localservices/status demo-x 0/1 not Ready: NameTaken, " +
			"Conflicted, Stalled"}, f.writes())
		time.Sleep(time.Hour)
		if got := f.requests(); len(got) > 0 {
			t.Errorf("requests while waiting: %v", got)
		}
		f.remove(foreign)
		settle()
		f.expect("writes", []string{"create services demo-x-node1", "patch localservices/status demo-x 1/1 " +
			"Ready"}, f.writes())
	})
}

// TestErrors: what becomes of a fan-out that the API server refuses.
func TestErrors(t *testing.T) {
	services := corev1.Resource("services")
	terminating := apierrors.NewForbidden(services, "x", errors.New("terminating"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	const refused = "patch localservices/status demo 0/90 not Ready: WriteFailed, Progressing"
	for name, c := range map[string]struct {
		err      error
		sync     string // what the error of sync says, "" for none
		status   string
		attempts int
	}{
		"quota is exceeded":                            {apierrors.NewForbidden(services, "x", errors.New("exceeded quota")), "", refused, 10},
		"a webhook fails":                              {apierrors.NewInternalError(errors.New("failed calling webhook")), "", refused, 10},
		"the server is busy":                           {apierrors.NewTooManyRequests("busy", 1), "10 writes failed", refused, 10},
		"the namespace is terminating: nobody is told": {terminating, "", "", 1},
		"the cache is behind: tried again, and no failure": {apierrors.NewAlreadyExists(services, "x"), "already exists",
			"patch localservices/status demo 0/90 not Ready: WritingServices, Progressing", 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, controller := newLocalServiceFixture(t, append(testNodes(90), testLocalService())...)
				f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
					return true, nil, c.err
				})
				err := controller.sync(t.Context(), demoKey)
				if (err == nil) != (c.sync == "") || err != nil && !strings.Contains(err.Error(), c.sync) {
					t.Errorf("sync: %v, want %q", err, c.sync)
				}
				writes := f.writes()
				if c.status != "" {
					f.expect("status", []string{c.status}, writes[len(writes)-1:])
					writes = writes[:len(writes)-1]
				}
				if len(writes) != c.attempts {
					t.Errorf("%d attempts, want %d", len(writes), c.attempts)
				}
				// The next sync, with the trouble over, does all that is missing.
				f.kube.ReactionChain = f.kube.ReactionChain[1:]
				time.Sleep(10 * time.Second)
				if err := controller.sync(t.Context(), demoKey); err != nil {
					t.Fatal(err)
				}
				if got := f.writes(); len(got) != 91 {
					t.Errorf("%d writes when the trouble is over, want 90 and the status", len(got))
				}
			})
		})
	}
}

// TestRefusedServices: Services that are refused do not keep the others from being made, nor are they forgotten.
func TestRefusedServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var over atomic.Bool
		f := newFixture(t, testLocalService(), testNode("node1"), testNode("node2"), testNode("node3"))
		c := f.newLocalServices()
		f.kube.PrependReactor("create", "services", func(a core.Action) (bool, runtime.Object, error) {
			bad := a.(core.CreateAction).GetObject().(*corev1.Service).Name == "demo-node2"
			return bad && !over.Load(), nil, apierrors.NewInternalError(errors.New("no luck"))
		})
		f.watch()
		f.run(c.Run)
		writes := f.writes()
		f.expect("writes", []string{"create services demo-node1", "create services demo-node2",
			"create services demo-node3"}, slices.Compact(
			slices.DeleteFunc(slices.Clone(writes), func(w string) bool { return !strings.HasPrefix(w, "create") })))
		if got := writes[len(writes)-1]; got != "patch localservices/status demo 2/3 not Ready: WriteFailed, "+
			"Progressing" {
			t.Errorf("status %s", got)
		}
		if got := f.recorded(); !slices.ContainsFunc(got, func(e string) bool {
			return strings.Contains(e, "Warning WriteFailed 1 write failed: create Service "+
				"default/demo-node2") && strings.Contains(e, "no luck")
		}) || len(got) != 2 {
			t.Errorf("events %v, want one that says what was attempted, and why it failed", got)
		}
		over.Store(true)
		time.Sleep(10 * time.Minute)
		f.expect("writes when the trouble is "+
			"over", []string{"create services demo-node2", "patch localservices/status demo 3/3 " +
			"Ready"}, lastWrites(f.writes(), 2))
	})
}

func lastWrites(writes []string, n int) []string { return writes[max(0, len(writes)-n):] }

// TestOutdatedPlans: the writes of a plan stop when the LocalService changes.
func TestOutdatedPlans(t *testing.T) {
	for name, event := range map[string]func(f *fixture){
		"LocalService deleted": func(f *fixture) { f.remove(testLocalService()) },
		"another LocalService of the name": func(f *fixture) {
			f.remove(testLocalService())
			f.set(testLocalService(func(ls *v1alpha1.LocalService) { ls.UID, ls.ResourceVersion = "another", "2000" }))
		},
		"spec changed": func(f *fixture) {
			f.set(testLocalService(func(ls *v1alpha1.LocalService) { ls.Generation = 2 }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, controller := newLocalServiceFixture(t, append(testNodes(90), testLocalService())...)
				var creates atomic.Int64
				f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
					if creates.Add(1) == 1 {
						event(f)
						time.Sleep(time.Millisecond) // Now the caches know.
					}
					return false, nil, nil
				})
				if err := controller.sync(t.Context(), demoKey); !reconcile.IsStale(err) {
					t.Errorf("sync: %v, want that it is stale", err)
				}
				f.expect("writes", []string{"create services"}, prefixes(f.writes()))
			})
		})
	}
}

func prefixes(writes []string) []string {
	var out []string
	for _, w := range writes {
		words := strings.Fields(w)
		out = append(out, words[0]+" "+words[1])
	}
	return out
}

// TestProgress: a sync writes for half a second, and the status reports about once a second how far a long fan-out is.
// Each part has an event.
func TestProgress(t *testing.T) {
	for name, c := range map[string]struct {
		nodes        int
		each         time.Duration // that a Service takes
		least, most  int           // reports of progress
		mostOfEvents int
	}{
		"short":            {90, 5 * time.Millisecond, 0, 0, 1},
		"long":             {600, 5 * time.Millisecond, 2, 4, 7},
		"one hangs, often": {6, 5 * time.Second, 5, 6, 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, append(testNodes(c.nodes), testLocalService())...)
				f.deps.Options.WriteConcurrency = 1
				f.slowCreates(c.each)
				var reported []int32
				f.statuses(func(s v1alpha1.LocalServiceStatus) { reported = append(reported, s.Services) })
				f.runLocalServices()
				time.Sleep(time.Minute)
				last := len(reported) - 1
				if last < c.least || last > c.most || !slices.IsSorted(reported) || reported[last] != int32(c.nodes) {
					t.Errorf("reported %v, want %d to %d reports of progress", reported, c.least, c.most)
				}
				if events := f.recorded(); len(events) == 0 || len(events) > c.mostOfEvents {
					t.Errorf("%d events: %q", len(events), events)
				}
			})
		})
	}
}

// TestShutdownDuringFanOut: a write that has begun is finished, and no other is begun.
func TestShutdownDuringFanOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newLocalServiceFixture(t, append(testNodes(90), testLocalService())...)
		ctx, stop := context.WithCancel(t.Context())
		f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
			stop()
			time.Sleep(time.Second)
			return false, nil, nil
		})
		if err := c.sync(ctx, demoKey); !errors.Is(err, context.Canceled) {
			t.Errorf("sync: %v, want that it was cancelled", err)
		}
		list, err := f.kube.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(f.writes()); got != 1 || len(list.Items) != 1 {
			t.Errorf("%d writes and %d Services, want the one that was under way", got, len(list.Items))
		}
	})
}

// TestStatusReadyNodes: the status counts the selected nodes whose Service, if it is ours, has a ready endpoint, and
// follows at most once in a period.
func TestStatusReadyNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := testLocalService()
		foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "demo-node4", Namespace: "default",
			UID: "theirs"}}
		f := runLocalServices(t, ls, testNode("node1"), testNode("node2"), testNode("node3"), testNode("node4"),
			foreign,
			testService(ls, "node1"), testService(ls, "node2"), testService(ls, "node3"),
			testSlice("demo-node1", false, true), testSlice("demo-node2", false), testSlice("demo-node4", true),
			testSlice("other", true))
		expect := func(want string) {
			t.Helper()
			got := f.localService()
			if got.Status.Ready != want {
				t.Errorf("ready %q (%d), want %q", got.Status.Ready, got.Status.ReadyNodes, want)
			}
		}
		expect("1/4")
		f.writes()
		for range 10 {
			f.set(testSlice("demo-node3", true))
			time.Sleep(50 * time.Millisecond)
			f.set(testSlice("demo-node3", false))
			time.Sleep(50 * time.Millisecond)
		}
		f.set(testSlice("demo-node3", true))
		settle()
		expect("2/4")
		if got := f.writes(); len(got) > 2 {
			t.Errorf("%d status writes in 4 s: %v", len(got), got)
		}
		f.remove(testSlice("demo-node1"))
		settle()
		expect("1/4")
	})
}

// TestUpdateBehind: what another instance has written for a newer spec is not undone by one whose cache has not heard
// of that spec, as after a failover.
func TestUpdateBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := testLocalService(inPlace(1))
		newer := func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }
		f, c := newLocalServiceFixture(t, ls, testNode("node1"), testService(ls, "node1", newer))
		f.client.PrependReactor("get", "localservices", func(core.Action) (bool, runtime.Object, error) {
			live := ls.DeepCopy()
			live.Generation++
			return true, live, nil
		})
		if err := c.sync(t.Context(), demoKey); err == nil {
			t.Error("no error")
		}
		f.expect("writes", nil, f.writes())
	})
}

// TestAdoptionOfOrphans: Services that were orphaned are adopted, or replaced, by a LocalService that is there, and by
// none that is being deleted and of which the cache does not know that yet: those were orphaned by the same command,
// and would be deleted with it.
func TestAdoptionOfOrphans(t *testing.T) {
	ls := testLocalService(inPlace(1))
	adopted := []string{`patch services demo-node1 {"metadata":{"ownerReferences":[{` +
		`"apiVersion":"localservice.dev/v1alpha1","blockOwnerDeletion":true,"controller":true,` +
		`"kind":"LocalService","name":"demo","uid":"uid-demo"}],"resourceVersion":"7"}}`}
	replaced := []string{"create services demo-node1", "delete services demo-node1 uid=uid-demo-node1"}
	for name, c := range map[string]struct {
		live                   func(*v1alpha1.LocalService) // at the API server, nil if it is gone
		adoptable, replaceable []string
	}{
		"the LocalService is there": {func(*v1alpha1.LocalService) {}, adopted, replaced},
		"it is being deleted": {func(ls *v1alpha1.LocalService) {
			ls.DeletionTimestamp = new(metav1.Now())
		}, nil, nil},
		"it is another of the same name": {func(ls *v1alpha1.LocalService) { ls.UID = "another" }, nil, nil},
		"it is gone":                     {nil, nil, nil},
	} {
		for _, orphan := range []struct {
			edit func(*corev1.Service)
			want []string
		}{
			{func(s *corev1.Service) { s.OwnerReferences = nil }, c.adoptable},
			{func(s *corev1.Service) {
				s.OwnerReferences, s.Spec.ClusterIP, s.Spec.ClusterIPs = nil, "10.96.0.1", []string{"10.96.0.1"}
			}, c.replaceable},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f, controller := newLocalServiceFixture(t, ls, testNode("node1"),
						testService(ls, "node1", orphan.edit))
					f.client.PrependReactor("get", "localservices", func(core.Action) (bool, runtime.Object, error) {
						if c.live == nil {
							return true, nil, apierrors.NewNotFound(v1alpha1.Resource("localservices"), "demo")
						}
						live := ls.DeepCopy()
						c.live(live)
						return true, live, nil
					})
					if err := controller.sync(t.Context(), demoKey); (err == nil) != (orphan.want != nil) ||
						err != nil && !strings.Contains(err.Error(), "it was changed or deleted") {
						t.Errorf("sync: %v", err)
					}
					f.expect("writes", orphan.want, f.writes())
				})
			})
		}
	}
}

// TestQuotaAndNewNodes: where a quota has room for one Service a node, and all nodes are replaced by others, the
// deletions are not given up because creations fail: they make the room.
func TestQuotaAndNewNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := testLocalService()
		objects := []runtime.Object{ls}
		for i := range 30 {
			objects = append(objects, testNode(fmt.Sprintf("a%d", i)), testService(ls, fmt.Sprintf("z%d", i)))
		}
		f, c := newLocalServiceFixture(t, objects...)
		f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource("services"), "x", errors.New("exceeded quota"))
		})
		if err := c.sync(t.Context(), demoKey); err != nil {
			t.Error(err)
		}
		counts := map[string]int{}
		for _, w := range prefixes(f.writes()) {
			counts[w]++
		}
		if counts["delete services"] != 30 || counts["create services"] != 10 {
			t.Errorf("%v, want 30 deletions and 10 attempts to create", counts)
		}
	})
}
