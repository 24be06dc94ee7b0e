package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	core "k8s.io/client-go/testing"
	componentmetrics "k8s.io/component-base/metrics"

	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestProgress: a sync writes for five seconds, and then the status reports the progress of a long fan-out. The first
// part and the last have an event, and so has the part in which the first Service is refused.
func TestProgress(t *testing.T) {
	for name, c := range map[string]struct {
		nodes            int
		each             time.Duration // time to create one Service
		refused, accepts int           // the first creation that is refused, and how many are accepted after it
		least, most      int           // reports of progress
		events, followed int           // how many there are, and how many end with "more follow"
	}{
		"short":            {90, 5 * time.Millisecond, 0, 0, 0, 0, 1, 0},
		"long":             {600, 20 * time.Millisecond, 0, 0, 2, 3, 2, 1},
		"one hangs, often": {6, 5 * time.Second, 0, 0, 5, 6, 2, 1},
		"one is refused":   {800, 20 * time.Millisecond, 320, 800, 2, 4, 3, 2},
		"a quota":          {600, 20 * time.Millisecond, 320, 0, 2, 5, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, append(testNodes(c.nodes), testLocalService())...)
				f.deps.Options.WriteConcurrency = 1
				refusedName, creations := "", 0
				f.kube.PrependReactor("create", "services", func(a core.Action) (bool, runtime.Object, error) {
					name := a.(core.CreateAction).GetObject().(*corev1.Service).Name
					if creations++; creations == c.refused {
						refusedName = name
					}
					isRefused := name == refusedName || c.refused > 0 && creations > c.refused+c.accepts
					return isRefused, nil,
						apierrors.NewForbidden(a.GetResource().GroupResource(), name, errors.New("no"))
				})
				f.slowCreates(c.each)
				var reported []int32
				f.statuses(func(s v1alpha1.LocalServiceStatus) { reported = append(reported, s.Services) })
				f.runLocalServices()
				time.Sleep(time.Minute)
				last := len(reported) - 1
				if last < c.least || last > c.most || !slices.IsSorted(reported) ||
					int(reported[last]) != len(f.services()) {
					t.Errorf("reported %v, want %d to %d reports of progress", reported, c.least, c.most)
				}
				var events, followed int
				all := f.recorded()
				for _, event := range all {
					if strings.Contains(event, eventServicesWritten) {
						events++
					}
					if strings.HasSuffix(event, "; more follow") {
						followed++
					}
				}
				if events != c.events || followed != c.followed {
					t.Errorf("%d events, want %d, and %d, want %d, that others follow: %q", events, c.events, followed,
						c.followed, all)
				}
			})
		})
	}
}

// TestStatusReadyNodes: the status counts the nodes whose Service has a ready endpoint, and follows the EndpointSlices,
// also when the labels of its Service move one to another LocalService.
func TestStatusReadyNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := testLocalService()
		f := runLocalServices(t, ls, testNode("node1"), testNode("node2"), testService(ls, "node1"),
			testService(ls, "node2"), testSlice("demo-node1", true), testSlice("demo-node2", false))
		expect := func(when, want string) {
			t.Helper()
			settle()
			if got := f.localService().Status; got.Ready != want {
				t.Errorf("%s: ready %q (%d), want %q", when, got.Ready, got.ReadyNodes, want)
			}
		}
		expect("at first", "1/2")
		f.set(testSlice("demo-node2", true))
		expect("the other one is ready", "2/2")
		moved := testSlice("demo-node1", true)
		moved.Labels[v1alpha1.OwnerLabelKey] = "other"
		f.set(moved)
		expect("one belongs to another LocalService", "1/2")
		f.set(testSlice("demo-node1", true))
		expect("it is back", "2/2")
		f.remove(testSlice("demo-node2"))
		expect("one is deleted", "1/2")
	})
}

// TestObservedGeneration: a status about one spec does not claim to be about the next one, which was stored while the
// last Service was being written.
func TestObservedGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newLocalServiceFixture(t, testLocalService(), testNode("node1"))
		f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
			f.set(testLocalService(func(ls *v1alpha1.LocalService) {
				ls.Generation, ls.Spec.PublishNotReadyAddresses = 2, true
			}))
			time.Sleep(time.Millisecond) // The caches observe it.
			return false, nil, nil
		})
		var observed []int64
		f.statuses(func(s v1alpha1.LocalServiceStatus) { observed = append(observed, s.ObservedGeneration) })
		if err := c.sync(t.Context(), demoKey); !reconcile.IsStale(err) {
			t.Errorf("sync: %v, want an error because the LocalService has changed", err)
		}
		synctest.Wait() // Now the caches have observed what was written.
		if len(observed) > 0 {
			t.Errorf("the status reports generations %v, but nothing was written for the second one", observed)
		}
		if err := c.sync(t.Context(), demoKey); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(observed, []int64{2}) {
			t.Errorf("after a second sync: the status reports generations %v", observed)
		}
	})
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
	synctest.Test(t, func(t *testing.T) {
		created := func(age time.Duration, node *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
			node.CreationTimestamp = metav1.NewTime(time.Now().Add(-age))
			return node
		}
		localService := func(name string, age time.Duration, edit ...func(*v1alpha1.LocalService)) runtime.Object {
			return testLocalService(append(edit, func(ls *v1alpha1.LocalService) {
				ls.Name, ls.UID, ls.CreationTimestamp = name, types.UID(name), metav1.NewTime(time.Now().Add(-age))
			})...)
		}
		f := newFixture(t, localService("demo", time.Hour), localService("ssd", time.Hour, onSSD),
			localService("names", 0, hostnamesMode), created(time.Hour, testNode("old")))
		expect := measured(t, metrics.NodeFanout)
		f.runLocalServices()
		expect("the start, long after everything was created", 0, 0, 0)
		f.set(created(0, testNode("new")))
		expect("a node joins", 1, batchPeriod, batchPeriod+2*time.Second)
		f.set(created(time.Hour, testNode("old", "disk=ssd")))
		expect("a LocalService begins to select an old node", 0, 0, 0)
		f.remove(testService(testLocalService(), "old"))
		expect("the Service of an old node is recreated", 0, 0, 0)
		f.set(localService("demo", time.Hour, func(ls *v1alpha1.LocalService) {
			ls.Generation, ls.Spec.PublishNotReadyAddresses = 2, true
		}))
		expect("the Service of a new node is changed", 0, 0, 0)
		f.remove(testNode("new"))
		expect("a node leaves", 0, 0, 0)
		over := refuseUntil(f, "create", "services")
		f.set(created(0, testNode("late")))
		expect("a node joins, and its Service is refused", 0, 0, 0)
		over.Store(true)
		time.Sleep(time.Minute)
		expect("the Service is not refused any more", 1, 10*time.Second, 15*time.Second)
		f.set(localService("young", 0))
		expect("a LocalService is created", 2, 0, 4*time.Second)
	})
}

// statuses calls written with each status that is written while a test runs.
func (f *fixture) statuses(written func(v1alpha1.LocalServiceStatus)) {
	f.client.PrependReactor("update", "localservices", func(a core.Action) (bool, runtime.Object, error) {
		written(a.(core.UpdateAction).GetObject().(*v1alpha1.LocalService).Status)
		return false, nil, nil
	})
}

// slowCreates makes each creation of a Service take a while.
func (f *fixture) slowCreates(d time.Duration) {
	f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
		time.Sleep(d)
		return false, nil, nil
	})
}

// TestDeletionTakenBack: while a cache is behind, so that nothing can be made, the status stays as it is. Else a node
// whose label flips all the time would lead to two writes of the status each time.
func TestDeletionTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, testLocalService(), testNode("a"), testNode("b"))
		f.runLocalServices()
		f.writes()
		f.nodes.PrependReactor("get", "nodes", func(core.Action) (bool, runtime.Object, error) {
			return true, testNode("b"), nil
		})
		f.remove(testNode("b"))
		settle()
		f.expect("writes while the API server has the node", nil, f.writes())
		f.set(testNode("b"))
		settle()
		f.expect("writes once the cache has it, too", nil, f.writes())
	})
}

// TestLocalServicesLag: while the watch of LocalServices is behind, Services are written all the same, and the status
// once it has caught up.
func TestLocalServicesLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, testLocalService(), testNode("a"))
		watcher := watch.NewFake()
		f.client.PrependWatchReactor("localservices", core.DefaultWatchReactor(watcher, nil))
		f.runLocalServices()
		f.expect("writes", []string{"create services demo-a", "update localservices/status demo 1/1 Ready"}, f.writes())
		var want []string
		for i := range 15 {
			node := fmt.Sprintf("b%02d", i)
			f.set(testNode(node))
			time.Sleep(200 * time.Millisecond)
			want = append(want, "create services demo-"+node)
		}
		f.expect("writes while the watch is behind", want, f.writes())
		watcher.Modify(f.localService())
		time.Sleep(2 * time.Second)
		f.expect("writes", []string{"update localservices/status demo 16/16 Ready"}, f.writes())
	})
}

// TestConflictsAreReported: a webhook that refuses with the code of a conflict looks like a cache that lags, but the
// status must not say that everything is in place.
func TestConflictsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, testLocalService(), testNode("a"))
		f.runLocalServices()
		f.writes()
		f.kube.PrependReactor("create", "services", func(a core.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), "x", errors.New("not on Fridays"))
		})
		f.set(testNode("b"))
		time.Sleep(time.Minute)
		ready := meta.FindStatusCondition(f.localService().Status.Conditions, v1alpha1.ConditionReady)
		if ready.Status == metav1.ConditionTrue || f.localService().Status.Nodes != 2 {
			t.Errorf("the status is %+v", f.localService().Status)
		}
	})
}
