package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	core "k8s.io/client-go/testing"
	componentmetrics "k8s.io/component-base/metrics"

	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestProgress: a sync writes for half a second, and the status reports the progress of a long fan-out about once a
// second. Each part has an event.
func TestProgress(t *testing.T) {
	for name, c := range map[string]struct {
		nodes        int
		each         time.Duration // time to create one Service
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

// TestSliceOfAnotherLocalService: the labels of its Service move an EndpointSlice to another LocalService and back.
func TestSliceOfAnotherLocalService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := testLocalService()
		f := runLocalServices(t, ls, testNode("node1"), testService(ls, "node1"), testSlice("demo-node1", true))
		f.expect("writes", []string{"patch localservices/status demo 1/1 Ready"}, f.writes())
		slice := testSlice("demo-node1", true)
		slice.Labels[v1alpha1.OwnerLabelKey] = "other"
		f.set(slice)
		settle()
		if got := f.localService().Status.Ready; got != "0/1" {
			t.Errorf("ready %s while the slice belongs to another LocalService", got)
		}
		f.set(testSlice("demo-node1", true))
		settle()
		if got := f.localService().Status.Ready; got != "1/1" {
			t.Errorf("ready %s when the slice is back", got)
		}
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

// TestCapacityNear: more Services than pods can handle are created nevertheless, with one warning.
func TestCapacityNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addressed := testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = "" })
		f := runLocalServices(t, addressed, withServices(1000, 1000), testNode("node1"))
		f.expect("writes", []string{"create services demo-node1",
			"patch localservices/status demo 1/1 Ready, NearCapacity"}, f.writes())
		if got := f.recorded(); len(got) != 2 || !strings.HasPrefix(got[1], "Warning ManyEnvironmentVariables the "+
			"LocalServices of this namespace have more than 1000 Services") {
			t.Errorf("events %v, want a warning", got)
		}
		// Another one causes no second warning.
		f.set(testNode("node2"))
		settle()
		f.expect("writes", []string{"create services demo-node2", "patch localservices/status demo 2/2 Ready, " +
			"NearCapacity"}, f.writes())
		f.expect("events", []string{"Normal ServicesWritten created 1: demo-node2"}, f.recorded())
		// If nothing is created, the status is written once, at the end.
		f.set(testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP, ls.Generation = "", 2 }))
		settle()
		f.expect("writes", []string{"patch localservices/status demo 2/2 Ready, NearCapacity"}, f.writes())
	})
}

// latencies starts to measure the waits of a test. It returns a function that checks those that have ended since its
// last call, once everything has settled: their number, and their total time.
func latencies(t *testing.T) (*metrics.Waits, func(what string, wantCount uint64, least, most time.Duration)) {
	histogram := componentmetrics.NewHistogram(&componentmetrics.HistogramOpts{Name: "test_seconds", Help: "Test."})
	registry := componentmetrics.NewKubeRegistry()
	registry.MustRegister(histogram)
	var counted uint64
	var summed float64
	return metrics.NewWaits(histogram), func(what string, wantCount uint64, least,
		most time.Duration) {
		t.Helper()
		settle()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		h := families[0].GetMetric()[0].GetHistogram()
		count, sum := h.GetSampleCount()-counted, time.Duration((h.GetSampleSum()-summed)*float64(time.Second))
		counted, summed = h.GetSampleCount(), h.GetSampleSum()
		if count != wantCount || sum < least || sum > most {
			t.Errorf("%s: %d measured, %s together; want %d, %s to %s", what, count, sum, wantCount, least, most)
		}
	}
}

// TestNodeFanoutIsMeasured: the time from the event that a node is selected until its Service is written is measured,
// also if that takes several attempts. Nothing else is.
func TestNodeFanoutIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ssd := testLocalService(func(ls *v1alpha1.LocalService) {
			ls.Name, ls.UID, ls.Spec.NodeSelector = "ssd", "uid-ssd", map[string]string{"disk": "ssd"}
		})
		names := testLocalService(func(ls *v1alpha1.LocalService) {
			ls.Name, ls.UID, ls.Spec.Mode = "names", "uid-names", v1alpha1.ModeHostnames
		})
		f := newFixture(t, testLocalService(), ssd, names, testNode("node0"))
		c := f.newLocalServices()
		var expect func(what string, wantCount uint64, least, most time.Duration)
		c.nodeWaits, expect = latencies(t)
		f.watch()
		f.run(c.Run)
		expect("the start", 0, 0, 0)
		f.set(testNode("node1"))
		expect("a node joins", 1, batchPeriod, 2*batchPeriod)
		f.set(testNode("node1", "disk=ssd"))
		expect("a node is selected by another LocalService", 1, batchPeriod, 2*batchPeriod)
		f.set(testNode("node1", "disk=ssd", "zone=a"))
		expect("another label", 0, 0, 0)
		f.remove(testNode("node0"))
		expect("a node leaves", 0, 0, 0)
		over := refuseUntil(f, "create", "services")
		f.set(testNode("node2"))
		expect("a node joins, and its Service is refused", 0, 0, 0)
		over.Store(true)
		time.Sleep(time.Minute)
		expect("the Service is not refused any more", 1, 10*time.Second, 15*time.Second)
		over.Store(false)
		f.set(testNode("node3"))
		expect("another one joins, and its Service is refused", 0, 0, 0)
		f.remove(testLocalService())
		over.Store(true)
		expect("the LocalService is gone", 0, 0, 0)
		f.set(testLocalService())
		expect("its successor", 0, 0, 0)
		invalid := testLocalService(func(ls *v1alpha1.LocalService) {
			ls.Generation, ls.Spec.Selector = 2, map[string]string{"vm/rack": "node1"}
		})
		f.set(invalid)
		f.set(testNode("node4"))
		expect("a node joins while the spec is invalid", 0, 0, 0)
		f.set(testLocalService(func(ls *v1alpha1.LocalService) { ls.Generation = 3 }))
		expect("the spec is corrected", 0, 0, 0)
	})
}

// statuses calls written with each status that is written while a test runs.
func (f *fixture) statuses(written func(v1alpha1.LocalServiceStatus)) {
	f.client.PrependReactor("patch", "localservices", func(a core.Action) (bool, runtime.Object, error) {
		var applied v1alpha1.LocalService
		if err := json.Unmarshal(a.(core.PatchActionImpl).Patch, &applied); err != nil {
			return true, nil, err
		}
		written(applied.Status)
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

// TestCapacityAgain: NearCapacity becomes False when another LocalService is deleted, or wants fewer Services. It stays
// True while those of another are changed, or left because it selects no node.
func TestCapacityAgain(t *testing.T) {
	const near, again = "patch localservices/status demo 1/1 Ready, NearCapacity",
		"patch localservices/status demo 1/1 Ready"
	for name, c := range map[string]struct {
		change func(f *fixture)
		want   string
	}{
		"deleted":      {func(f *fixture) { f.remove(withServices(1000, 1000)) }, again},
		"smaller":      {func(f *fixture) { f.set(withServices(900, 900)) }, again},
		"changed":      {func(f *fixture) { f.set(withServices(1000, 0)); f.set(testSlice("demo-node1", true)) }, near},
		"selects none": {func(f *fixture) { f.set(withServices(0, 1000)); f.set(testSlice("demo-node1", true)) }, near},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				addressed := testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = "" })
				f := runLocalServices(t, addressed, withServices(1000, 1000), testNode("node1"))
				f.writes()
				c.change(f)
				time.Sleep(reconcile.MaxBackoff)
				settle()
				f.expect("writes", []string{c.want}, f.writes())
			})
		})
	}
}

// withServices returns another LocalService whose status says how many nodes and Services it has. It is being deleted,
// so its status stays.
func withServices(nodes, services int32) *v1alpha1.LocalService {
	return testLocalService(func(ls *v1alpha1.LocalService) {
		ls.Name, ls.UID, ls.Spec.ClusterIP = "many", "many", ""
		ls.Status.Nodes, ls.Status.Services = nodes, services
		ls.DeletionTimestamp, ls.Finalizers = new(metav1.Now()), []string{"test/finalizer"}
	})
}
