package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/fanout"
	"github.com/localservice-dev/local-service-controller/pkg/reconcile"
)

var demoKey = types.NamespacedName{Namespace: "default", Name: "demo"}

func newLocalServiceFixture(t *testing.T, objects ...runtime.Object) (*fixture, *localServiceController) {
	t.Helper()
	f := newFixture(t, objects...)
	c, err := newLocalServiceController(f.deps)
	if err != nil {
		t.Fatal(err)
	}
	f.fill()
	for _, obj := range f.deps.services.GetIndexer().List() {
		c.census.Change(nil, obj.(*fanout.Service))
	}
	return f, c
}

// TestSyncWrites: what a sync writes, for each state that it may find.
func TestSyncWrites(t *testing.T) {
	ls := testLocalService()
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "demo-node1", Namespace: "default", UID: "theirs"}}
	elsewhere := testService(t, testLocalService(), "node1", func(s *corev1.Service) {
		s.Namespace, s.OwnerReferences = "other", nil
	})
	drifted := func(s *corev1.Service) { s.Spec.Selector["app"] = "x" }
	for name, c := range map[string]struct {
		objects []runtime.Object
		writes  []string
		events  []string
	}{
		"a Service for every node": {
			[]runtime.Object{ls, testNode("node1"), testNode("node2")},
			[]string{"create services demo-node1", "create services demo-node2", "patch localservices/status demo 2/2 Ready"},
			[]string{"Normal ServicesWritten Services: created 2 (2 nodes selected)"},
		},
		"the node's name counts, not its label kubernetes.io/hostname": {
			[]runtime.Object{ls, testNode("node1", "kubernetes.io/hostname=other")},
			[]string{"create services demo-node1", "patch localservices/status demo 1/1 Ready"},
			[]string{"Normal ServicesWritten Services: created 1 (1 nodes selected)"},
		},
		"nothing at rest": {
			[]runtime.Object{testLocalService(inPlace(1)), testNode("node1"), testService(t, ls, "node1")}, nil, nil,
		},
		"a status that is wrong": {
			[]runtime.Object{testLocalService(inPlace(2)), testNode("node1"), testService(t, ls, "node1")},
			[]string{"patch localservices/status demo 1/1 Ready"}, nil,
		},
		"only for the nodes selected": {
			[]runtime.Object{testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = map[string]string{"disk": "ssd"} }),
				testNode("node1", "disk=ssd"), testNode("node2", "disk=hdd"), testNode("node3")},
			[]string{"create services demo-node1", "patch localservices/status demo 1/1 Ready"},
			[]string{"Normal ServicesWritten Services: created 1 (1 nodes selected)"},
		},
		"orphans go, with their UID": {
			[]runtime.Object{testLocalService(inPlace(0)), testService(t, ls, "gone")},
			[]string{"delete services demo-gone uid=uid-demo-gone"},
			[]string{"Normal ServicesWritten Services: deleted 1 (0 nodes selected)"},
		},
		"drift is mended by a patch of what differs": {
			[]runtime.Object{testLocalService(inPlace(1)), testNode("node1"), testService(t, ls, "node1", drifted)},
			[]string{`patch services demo-node1 {"metadata":{"resourceVersion":"7"},"spec":{"selector":{"app":"demo"}}}`},
			[]string{"Normal ServicesWritten Services: updated 1 (1 nodes selected)"},
		},
		"headless to cluster IP is a replacement": {
			[]runtime.Object{testLocalService(inPlace(1)), testNode("node1"), testService(t, testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = "" }), "node1",
				func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.0.1" })},
			[]string{"create services demo-node1", "delete services demo-node1 uid=uid-demo-node1"},
			[]string{"Normal ServicesWritten Services: replaced 1 (1 nodes selected)"},
		},
		"a Service of somebody else is left alone": {
			[]runtime.Object{ls, testNode("node1"), testNode("node2"), foreign},
			[]string{"create services demo-node2", "patch localservices/status demo 1/2 not Ready: NameTaken, Conflicted"},
			[]string{"Normal ServicesWritten Services: created 1 (2 nodes selected)",
				"Warning NameTaken 1 Service names are taken by Services that this LocalService does not control: demo-node1. Delete or rename those, or give this LocalService another name"},
		},
		"a Service with our label in another namespace is left alone": {
			[]runtime.Object{testLocalService(inPlace(0)), elsewhere}, nil, nil,
		},
		"a LocalService that is being deleted is left to the garbage collector": {
			[]runtime.Object{testLocalService(func(ls *v1alpha1.LocalService) {
				ls.DeletionTimestamp, ls.Finalizers = new(metav1.Now()), []string{"foregroundDeletion"}
			}), testNode("node1")}, nil, nil,
		},
		"a LocalService that is gone": {[]runtime.Object{testNode("node1")}, nil, nil},
		"a spec that cannot work": {
			[]runtime.Object{testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.Selector["vm/rack"] = "x" }), testNode("node1")},
			[]string{"patch localservices/status demo 0/0 not Ready: InvalidSpec"},
			[]string{"Warning InvalidSpec spec.selector names the node label vm/rack, which the controller itself adds: remove it, and use nodeSelector to choose nodes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, controller := newLocalServiceFixture(t, c.objects...)
			err := controller.sync(t.Context(), demoKey)
			if invalid := name == "a spec that cannot work"; (err != nil) != invalid {
				t.Errorf("sync: %v", err)
			}
			if diff := cmp.Diff(c.writes, f.writes()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.events, f.recorded()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEventsLeadToWork: what an event makes the controller look at. It is checked by what is written for a cluster of
// three nodes in which nothing but that event's own node can differ: work that grows with the cluster would show.
func TestEventsLeadToWork(t *testing.T) {
	ssd := func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = map[string]string{"disk": "ssd"} }
	ls := testLocalService(inPlace(2), ssd)
	base := []runtime.Object{ls, testNode("node1", "disk=ssd"), testNode("node2", "disk=ssd"), testNode("node3"),
		testService(t, ls, "node1"), testService(t, ls, "node2")}
	services := func(namespace string) func(f *fixture, c *localServiceController) {
		return func(f *fixture, c *localServiceController) {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "demo-node1", Namespace: namespace, Labels: map[string]string{"owner": "demo"}}}
			c.serviceChanged(f.trimmed(service).(*fanout.Service))
		}
	}
	for name, c := range map[string]struct {
		event  func(f *fixture, c *localServiceController)
		queued bool
		writes []string
	}{
		"node added": {func(f *fixture, c *localServiceController) {
			c.nodeChanged(nil, f.cached(testNode("node4", "disk=ssd")).(*node))
		}, true, []string{"create services demo-node4", "patch localservices/status demo 3/3 Ready"}},
		"node added that is not selected": {func(f *fixture, c *localServiceController) {
			c.nodeChanged(nil, f.cached(testNode("node4")).(*node))
		}, false, nil},
		"node deleted": {func(f *fixture, c *localServiceController) {
			gone := testNode("node2", "disk=ssd")
			f.uncached(gone)
			c.nodeChanged(f.trimmed(gone).(*node), nil)
		}, true, []string{"delete services demo-node2 uid=uid-demo-node2", "patch localservices/status demo 1/1 Ready"}},
		"node labelled": {func(f *fixture, c *localServiceController) {
			before := f.trimmed(testNode("node3")).(*node)
			c.nodeChanged(before, f.cached(testNode("node3", "disk=ssd")).(*node))
		}, true, []string{"create services demo-node3", "patch localservices/status demo 3/3 Ready"}},
		"node unlabelled": {func(f *fixture, c *localServiceController) {
			before := f.trimmed(testNode("node1", "disk=ssd")).(*node)
			c.nodeChanged(before, f.cached(testNode("node1")).(*node))
		}, true, []string{"delete services demo-node1 uid=uid-demo-node1", "patch localservices/status demo 1/1 Ready"}},
		"node heartbeat": {func(f *fixture, c *localServiceController) {
			before, after := testNode("node1", "disk=ssd"), testNode("node1", "disk=ssd")
			after.ResourceVersion, after.Annotations = "2", map[string]string{"beat": "1"}
			c.nodeChanged(f.trimmed(before).(*node), f.cached(after).(*node))
		}, false, nil},
		"node deleted and added again": {func(f *fixture, c *localServiceController) {
			before, after := testNode("node1", "disk=ssd"), testNode("node1", "disk=ssd")
			after.UID = "another"
			c.nodeChanged(f.trimmed(before).(*node), f.cached(after).(*node))
		}, false, nil}, // Its Service is as good as before.
		"our Service deleted": {func(f *fixture, c *localServiceController) {
			s := testService(t, ls, "node1")
			f.uncached(s)
			if err := f.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("services"), s.Namespace, s.Name); err != nil {
				t.Fatal(err)
			}
			c.serviceChanged(f.trimmed(s).(*fanout.Service))
		}, true, []string{"create services demo-node1"}},
		"our Service edited": {func(f *fixture, c *localServiceController) {
			s := testService(t, ls, "node1", func(s *corev1.Service) { delete(s.Labels, "owner") })
			c.serviceChanged(f.cached(s).(*fanout.Service))
		}, true, []string{`patch services demo-node1 {"metadata":{"labels":{"owner":"demo"},"resourceVersion":"7"}}`}},
		"our Service's node annotation edited": {func(f *fixture, c *localServiceController) {
			s := testService(t, ls, "node1", func(s *corev1.Service) { s.Annotations["localservice.dev/node"] = "node2" })
			c.serviceChanged(f.cached(s).(*fanout.Service))
		}, true, []string{`patch services demo-node1 {"metadata":{"annotations":{"localservice.dev/node":"node1"},"resourceVersion":"7"}}`}},
		"a Service of nobody":            {services("default"), false, nil},
		"a Service in another namespace": {services("other"), false, nil},
		"status written":                 {func(_ *fixture, c *localServiceController) { c.localServiceChanged(ls, statusOnly(ls)) }, true, nil},
		"resync":                         {func(_ *fixture, c *localServiceController) { c.localServiceChanged(ls, ls) }, true, nil},
		"LocalService deleted, known only by name": {func(_ *fixture, c *localServiceController) {
			c.loop.Add(keyOf(deleted[*v1alpha1.LocalService](cache.DeletedFinalStateUnknown{Obj: ls})))
		}, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f, controller := newLocalServiceFixture(t, base...)
			if err := controller.sync(t.Context(), demoKey); err != nil {
				t.Fatal(err)
			}
			if got := f.writes(); got != nil {
				t.Fatalf("not at rest: %v", got)
			}
			var queued []types.NamespacedName
			controller.loop = reconcile.New("test", clock.RealClock{}, func(_ context.Context, key types.NamespacedName) error {
				queued = append(queued, key)
				return nil
			})
			c.event(f, controller)
			drain(t, controller.loop)
			if (len(queued) > 0) != c.queued || c.queued && queued[0] != demoKey {
				t.Errorf("queued: %v; want %s: %v", queued, demoKey, c.queued)
			}
			if err := controller.sync(t.Context(), demoKey); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.writes, f.writes()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

// drain has a loop work until nothing is queued.
func drain[K comparable](t *testing.T, loop *reconcile.Loop[K]) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		loop.Run(ctx, 1)
	}()
	if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return loop.Len() == 0, nil
	}); err != nil {
		t.Errorf("the queue does not get empty: %v", err)
	}
	stop()
	<-stopped
}

func statusOnly(ls *v1alpha1.LocalService) *v1alpha1.LocalService {
	out := ls.DeepCopy()
	out.ResourceVersion = "2"
	return out
}

// TestForeignServicesHeal: when a name is freed, the node that wanted it gets its Service, and nothing polls for that.
func TestForeignServicesHeal(t *testing.T) {
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "demo-node1", Namespace: "default", UID: "theirs"}}
	f, c := newLocalServiceFixture(t, testLocalService(), testNode("node1"), foreign)
	if err := c.sync(t.Context(), demoKey); err != nil {
		t.Fatal(err)
	}
	f.writes()
	f.uncached(foreign)
	if err := f.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("services"), "default", "demo-node1"); err != nil {
		t.Fatal(err)
	}
	c.serviceChanged(f.trimmed(foreign).(*fanout.Service))
	if c.loop.Len() != 1 {
		t.Fatal("the LocalService is not looked at again")
	}
	if err := c.sync(t.Context(), demoKey); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"create services demo-node1", "patch localservices/status demo 1/1 Ready"}, f.writes()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// TestErrors: what becomes of a fan-out that the API server refuses.
func TestErrors(t *testing.T) {
	services := corev1.Resource("services")
	terminating := apierrors.NewForbidden(services, "x", errors.New("terminating"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, c := range map[string]struct {
		err      error
		sync     string // what the error of sync says, "" for none
		status   string
		attempts int // at most
	}{
		"quota is exceeded: one try is enough": {apierrors.NewForbidden(services, "x", errors.New("exceeded quota")), "exceeded quota",
			"patch localservices/status demo 0/100 not Ready: WriteFailed, Progressing", 8},
		"the server is in trouble: all are tried": {apierrors.NewInternalError(errors.New("etcd is slow")), "100 writes failed",
			"patch localservices/status demo 0/100 not Ready: WriteFailed, Progressing", 100},
		"the namespace is terminating: nobody is told": {terminating, "", "", 8},
		"the cache is behind: tried again, and no failure": {apierrors.NewAlreadyExists(services, "x"), "already exists",
			"patch localservices/status demo 0/100 not Ready: WritingServices, Progressing", 100},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{testLocalService()}
			for i := range 100 {
				objects = append(objects, testNode(fmt.Sprintf("node%d", i)))
			}
			f, controller := newLocalServiceFixture(t, objects...)
			f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) { return true, nil, c.err })
			err := controller.sync(t.Context(), demoKey)
			if (err == nil) != (c.sync == "") || err != nil && !strings.Contains(err.Error(), c.sync) {
				t.Errorf("sync: %v, want %q", err, c.sync)
			}
			writes := f.writes()
			status := ""
			if i := slices.IndexFunc(writes, func(w string) bool { return strings.HasPrefix(w, "patch localservices") }); i >= 0 {
				status = writes[i]
				writes = slices.Delete(writes, i, i+1)
			}
			if status != c.status {
				t.Errorf("status %q, want %q", status, c.status)
			}
			if len(writes) > c.attempts {
				t.Errorf("%d attempts, want at most %d", len(writes), c.attempts)
			}
			if name == "the namespace is terminating: nobody is told" {
				if err := controller.sync(t.Context(), demoKey); err != nil || f.writes() != nil {
					t.Errorf("tried again, although the namespace is going: %v", err)
				}
				return
			}
			// The next sync, with the trouble over, does all that is missing.
			f.kube.ReactionChain = f.kube.ReactionChain[1:]
			if err := controller.sync(t.Context(), demoKey); err != nil {
				t.Fatal(err)
			}
			if got := f.writes(); len(got) != 101 {
				t.Errorf("%d writes when the trouble is over, want 100 and the status", len(got))
			}
		})
	}
}

// TestPartialFailure: one Service that is refused does not keep the others from being made.
func TestPartialFailure(t *testing.T) {
	f, c := newLocalServiceFixture(t, testLocalService(), testNode("node1"), testNode("node2"), testNode("node3"))
	f.kube.PrependReactor("create", "services", func(a core.Action) (bool, runtime.Object, error) {
		bad := a.(core.CreateAction).GetObject().(*corev1.Service).Name == "demo-node2"
		return bad, nil, apierrors.NewInternalError(errors.New("no luck"))
	})
	err := c.sync(t.Context(), demoKey)
	if err == nil || !strings.Contains(err.Error(), "create Service default/demo-node2") || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("sync: %v, want what was attempted, and why it failed", err)
	}
	want := []string{"create services demo-node1", "create services demo-node2", "create services demo-node3",
		"patch localservices/status demo 2/3 not Ready: WriteFailed, Progressing"}
	if diff := cmp.Diff(want, f.writes()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// TestDeletionDuringFanOut: a fan-out stops when its LocalService is deleted.
func TestDeletionDuringFanOut(t *testing.T) {
	ls := testLocalService()
	objects := []runtime.Object{ls}
	for i := range 100 {
		objects = append(objects, testNode(fmt.Sprintf("node%d", i)))
	}
	f, c := newLocalServiceFixture(t, objects...)
	f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
		f.uncached(ls)
		return false, nil, nil
	})
	if err := c.sync(t.Context(), demoKey); err != nil {
		t.Errorf("sync: %v", err)
	}
	if got := f.writes(); len(got) == 0 || len(got) > 2*cap(c.slots) {
		t.Errorf("%d writes after the LocalService was deleted, want those that were under way", len(got))
	}
}

// TestStatusProgress: the status tells how far a long fan-out has come, once a second and not once a Service.
func TestStatusProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := []runtime.Object{testLocalService()}
		for i := range 90 {
			objects = append(objects, testNode(fmt.Sprintf("node%02d", i)))
		}
		f, c := newLocalServiceFixture(t, objects...)
		c.slots, c.clock = make(chan struct{}, 1), clock.RealClock{}
		defer func() { // The queue has goroutines of its own.
			stopped, stop := context.WithCancel(t.Context())
			stop()
			c.loop.Run(stopped, 0)
		}()
		f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
			time.Sleep(30 * time.Millisecond) // fake time: 2.7 s in all
			return false, nil, nil
		})
		if err := c.sync(t.Context(), demoKey); err != nil {
			t.Fatal(err)
		}
		got := slices.DeleteFunc(f.writes(), func(w string) bool { return strings.HasPrefix(w, "create") })
		want := []string{
			"patch localservices/status demo 33/90 not Ready: WritingServices, Progressing",
			"patch localservices/status demo 66/90 not Ready: WritingServices, Progressing",
			"patch localservices/status demo 90/90 Ready",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
	})
}

// TestShutdownDuringFanOut: a write that has begun is finished, and no other is begun.
func TestShutdownDuringFanOut(t *testing.T) {
	objects := []runtime.Object{testLocalService()}
	for i := range 100 {
		objects = append(objects, testNode(fmt.Sprintf("node%02d", i)))
	}
	f, c := newLocalServiceFixture(t, objects...)
	ctx, stop := context.WithCancel(t.Context())
	f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
		stop()
		return false, nil, nil
	})
	if err := c.sync(ctx, demoKey); !errors.Is(err, context.Canceled) {
		t.Errorf("sync: %v, want that it was cancelled", err)
	}
	list, err := f.kube.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(f.writes()); got == 0 || got > 2*cap(c.slots) || got != len(list.Items) {
		t.Errorf("%d writes and %d Services, want those that were under way", got, len(list.Items))
	}
}
