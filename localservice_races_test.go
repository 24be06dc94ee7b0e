package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/writer"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// statuses are the statuses that are written while a test runs.
func (f *fixture) statuses(told func(v1alpha1.LocalServiceStatus)) {
	f.client.PrependReactor("patch", "localservices", func(a core.Action) (bool, runtime.Object, error) {
		var applied v1alpha1.LocalService
		if err := json.Unmarshal(a.(core.PatchActionImpl).Patch, &applied); err != nil {
			return true, nil, err
		}
		told(applied.Status)
		return false, nil, nil
	})
}

// TestObservedGeneration: what was found and done for one spec is not told as being about the next one, which came
// while the last Service was being written.
func TestObservedGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newLocalServiceFixture(t, testLocalService(), testNode("node1"))
		f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
			f.set(testLocalService(func(ls *v1alpha1.LocalService) {
				ls.Generation, ls.Spec.PublishNotReadyAddresses = 2, true
			}))
			time.Sleep(time.Millisecond) // Now the caches know.
			return false, nil, nil
		})
		var observed []int64
		f.statuses(func(s v1alpha1.LocalServiceStatus) { observed = append(observed, s.ObservedGeneration) })
		if err := c.sync(t.Context(), demoKey); !reconcile.IsStale(err) {
			t.Errorf("sync: %v, want that the API server says that the LocalService has changed", err)
		}
		synctest.Wait() // Now the caches have observed what was written.
		if !slices.Equal(observed, []int64{1}) {
			t.Errorf("the status is about generations %v, but nothing was done for the second one", observed)
		}
		if err := c.sync(t.Context(), demoKey); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(observed, []int64{1, 2}) {
			t.Errorf("after a second sync: the status is about generations %v", observed)
		}
	})
}

// TestSliceOfAnotherLocalService: an EndpointSlice follows the labels of its Service to another LocalService and back.
func TestSliceOfAnotherLocalService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := testLocalService()
		f := runLocalServices(t, ls, testNode("node1"), testService(ls, "node1"), testSlice("demo-node1", true))
		f.expect("writes", []string{"patch localservices/status demo 1/1 Ready"}, f.writes())
		ready := func() string {
			got := f.localService()
			return got.Status.Ready
		}
		slice := testSlice("demo-node1", true)
		slice.Labels[v1alpha1.OwnerLabelKey] = "other"
		f.set(slice)
		settle()
		if got := ready(); got != "0/1" {
			t.Errorf("ready %s while the slice is of another LocalService", got)
		}
		f.set(testSlice("demo-node1", true))
		settle()
		if got := ready(); got != "1/1" {
			t.Errorf("ready %s when the slice is back", got)
		}
	})
}

// slowCreates has each creation of a Service take a while.
func (f *fixture) slowCreates(d time.Duration) {
	f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
		time.Sleep(d)
		return false, nil, nil
	})
}

// TestSlowRefusalsWhileNodesCome: that the API server refuses the writes is told, also if it takes its time, and nodes
// change meanwhile.
func TestSlowRefusalsWhileNodesCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, append(testNodes(90), testLocalService())...)
		f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
			time.Sleep(200 * time.Millisecond)
			return true, nil, apierrors.NewInternalError(errors.New("failed calling webhook"))
		})
		c := f.newLocalServices()
		f.watch()
		go func() {
			for i := range 80 {
				f.set(testNode(fmt.Sprintf("new%02d", i)))
				time.Sleep(100 * time.Millisecond)
			}
		}()
		f.run(c.Run)
		time.Sleep(5 * time.Second)
		ls := f.localService()
		ready := meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Reason != v1alpha1.ReasonWriteFailed || !strings.Contains(ready.Message, "webhook") {
			t.Errorf("after 8 s of refusals, the status says %v", ready)
		}
	})
}

// TestStatusWhileNodesJoin: while nodes join one after the other, each has its Service at once, and the status follows
// about once in an interval.
func TestStatusWhileNodesJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes, pause = 100, 100 * time.Millisecond
		f := runLocalServices(t, testLocalService())
		f.writes()
		writes, told := 0, int32(0)
		f.statuses(func(s v1alpha1.LocalServiceStatus) { writes, told = writes+1, s.Services })
		for i := range nodes {
			f.set(testNode(fmt.Sprintf("node%02d", i)))
			time.Sleep(pause)
			f.recorded() // There is room for so many only.
		}
		settle()
		if most := int(nodes*pause/writer.NumbersInterval) + 2; writes > most || told != nodes {
			t.Errorf("%d status writes, want at most %d; the last told of %d Services", writes, most, told)
		}
	})
}

// TestInvalidSpecIsTold: that a spec cannot work is told, also if the first attempt to do so fails.
func TestInvalidSpecIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.Selector["vm/rack"] = "x" }))
		c := f.newLocalServices()
		attempts := 0
		f.client.PrependReactor("patch", "localservices", func(core.Action) (bool, runtime.Object, error) {
			attempts++
			return attempts == 1, nil, apierrors.NewInternalError(errors.New("etcd is slow"))
		})
		f.watch()
		f.run(c.Run)
		f.expect("writes", []string{"patch localservices/status demo 0/0 not Ready: InvalidSpec, Stalled",
			"patch localservices/status demo 0/0 not Ready: InvalidSpec, Stalled"}, f.writes())
	})
}

// runSilent has a controller work to which the watch of Services tells only what the test has it tell.
func (f *fixture) runSilent() (services *watch.FakeWatcher) {
	f.t.Helper()
	services = watch.NewFake()
	f.kube.PrependWatchReactor("services", func(core.Action) (bool, watch.Interface, error) {
		return true, services, nil
	})
	f.runLocalServices()
	return services
}

// TestWaitsForItsOwnWrites: while the watch has not told what a sync wrote, nothing else is written for that
// LocalService; then all of it, once.
func TestWaitsForItsOwnWrites(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fixture)
		want   []string
	}{
		"a node joins": {func(f *fixture) { f.set(testNode("node2")) },
			[]string{"create services demo-node2", "patch localservices/status demo 2/2 Ready"}},
		"the node is gone": {func(f *fixture) { f.remove(testNode("node1")) },
			[]string{"delete services demo-node1 uid=uid-demo-node1-1001", "patch localservices/status demo 0/0 not Ready: NoNodesSelected"}},
		"the spec is another": {func(f *fixture) {
			f.edit(func(ls *v1alpha1.LocalService) { ls.Generation, ls.Spec.PublishNotReadyAddresses = 2, true })
		}, []string{"patch localservices/status demo 1/1 Ready", `patch services demo-node1 ` +
			`{"metadata":{"resourceVersion":"1001"},"spec":{"publishNotReadyAddresses":true}}`}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, testNode("node1"), testLocalService())
				services := f.runSilent()
				f.expect("writes", []string{"create services demo-node1", "patch localservices/status demo 1/1 Ready"},
					f.writes())
				c.change(f)
				time.Sleep(30 * time.Second)
				f.expect("writes before the watch tells", nil, f.writes())
				services.Add(f.services()["demo-node1"])
				settle()
				f.expect("writes when the watch tells", c.want, f.writes())
			})
		})
	}
}

// TestUnobserved: a write that no watch ever tells of is waited for only for a while.
func TestUnobserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, testNode("node1"), testLocalService())
		f.runSilent()
		f.remove(f.services()["demo-node1"])
		time.Sleep(5 * time.Minute)
		if f.services()["demo-node1"] == nil {
			t.Error("the Service is not created again")
		}
	})
}

// TestDeletedUnseen: a Service that somebody deletes before the watch has told that it is there is made again, although
// the watch never tells of either.
func TestDeletedUnseen(t *testing.T) {
	services := func(t *testing.T, f *fixture) []corev1.Service {
		list, err := f.kube.CoreV1().Services(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	t.Run("while the watch is broken", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, testNode("node1"), testLocalService())
			watches := make(chan *watch.FakeWatcher, 10)
			f.kube.PrependWatchReactor("services", func(core.Action) (bool, watch.Interface, error) {
				silent := watch.NewFake()
				watches <- silent
				return true, silent, nil
			})
			f.kube.PrependReactor("list", "services", func(core.Action) (bool, runtime.Object, error) {
				object, err := f.kube.Tracker().List(corev1.SchemeGroupVersion.WithResource("services"),
					corev1.SchemeGroupVersion.WithKind("Service"), metav1.NamespaceAll)
				object.(*corev1.ServiceList).ResourceVersion = f.nextVersion()
				return true, object, err
			})
			f.runLocalServices()
			f.remove(&services(t, f)[0])
			(<-watches).Error(&apierrors.NewResourceExpired("too old resource version").ErrStatus)
			time.Sleep(10 * time.Second)
			if got := services(t, f); len(got) != 1 {
				t.Errorf("%d Services 10 s after the deletion", len(got))
			}
		})
	})
	t.Run("before its creation is answered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, testNode("node1"), testLocalService())
			var once sync.Once
			f.deps.Kube = slowServices{Interface: f.kube, created: func(service *corev1.Service) {
				once.Do(func() {
					time.Sleep(100 * time.Millisecond)
					f.remove(service)
					time.Sleep(100 * time.Millisecond)
				})
			}}
			f.runLocalServices()
			time.Sleep(10 * time.Second)
			if got := services(t, f); len(got) != 1 {
				t.Errorf("%d Services 10 s after the deletion", len(got))
			}
		})
	})
}
