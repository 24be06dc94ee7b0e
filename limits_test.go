package main

import (
	"errors"
	"fmt"
	"strings"
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

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestDeletionOfMost: that most Services are deleted is announced before it happens.
func TestDeletionOfMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := testLocalService(inPlace(3))
		f := runLocalServices(t, ls, testNode("node1"), testService(ls, "node1"), testService(ls, "gone1"),
			testService(ls, "gone2"))
		f.expect("writes", []string{"delete services demo-gone1 uid=uid-demo-gone1",
			"delete services demo-gone2 uid=uid-demo-gone2", "patch localservices/status demo 1/1 Ready"}, f.writes())
		f.expect("events", []string{"Warning DeletingServices About to delete 2 of 3 Services, which no " +
			"selected node wants any more",
			"Normal ServicesWritten Services: deleted 2 (1 nodes selected)"}, f.recorded())
	})
}

func selectTypo(ls *v1alpha1.LocalService) {
	ls.Generation, ls.Spec.NodeSelector = ls.Generation+1, map[string]string{"disk": "sdd"}
}

func selectSSD(ls *v1alpha1.LocalService) {
	ls.Generation, ls.Spec.NodeSelector = ls.Generation+1, map[string]string{"disk": "ssd"}
}

// TestUnselected: a nodeSelector that matches no node, by a mistake in it or in the labels of nodes, deletes nothing of
// a node that exists. When it matches again, all goes on.
func TestUnselected(t *testing.T) {
	const kept = "patch localservices/status demo 0/0 not Ready: NoNodesSelected"
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, testNode("a", "disk=ssd"), testNode("b", "disk=ssd"), testLocalService(selectSSD))
		stop := f.startLocalServices(4)
		settle()
		f.writes()
		f.recorded()
		f.edit(func(ls *v1alpha1.LocalService) {
			selectTypo(ls)
			ls.Spec.Ports[0].Port = 81 // The Services are left as they are.
		})
		settle()
		f.expect("writes after a mistake", []string{kept}, f.writes())
		f.expect("events", []string{`Warning NoNodesSelected no node matches spec.nodeSelector "disk=sdd", so 2 ` +
			`Services of nodes that exist are kept as they are. Correct spec.nodeSelector or the labels of the nodes`},
			f.recorded())
		stop()
		f.deps.Caches = f.newCaches(false)
		f.runLocalServices()
		f.expect("writes of the next instance", nil, f.writes())
		f.remove(testNode("b"))
		settle()
		if writes := f.writes(); len(f.services()) != 1 || len(writes) != 2 || !strings.HasPrefix(writes[0],
			"delete services demo-b") {
			t.Errorf("writes when a node is gone: %v", writes)
		}
		f.edit(selectSSD)
		settle()
		if s := f.services(); len(s) != 1 || s["demo-a"].Spec.Ports[0].Port != 81 {
			t.Errorf("%d Services when it is corrected", len(s))
		}
		f.set(testNode("a"))
		settle()
		f.set(testNode("a", "disk=ssd"))
		settle()
		writes := strings.Join(f.writes(), "; ")
		if strings.Contains(writes, "delete") || !strings.Contains(writes, kept) ||
			!strings.Contains(writes, "1/1 Ready") {
			t.Errorf("writes when the node has lost its label, and got it again: %s", writes)
		}
	})
}

// TestTerminatingNamespace: while the namespace is being deleted little is tried, not even when a node goes that has no
// Service, and nothing is told.
func TestTerminatingNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, testNode("a", "disk=ssd"), testNode("b"), testLocalService(selectSSD))
		terminating := apierrors.NewForbidden(corev1.Resource("services"), "x", errors.New("terminating"))
		terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
			return true, nil, terminating
		})
		f.runLocalServices()
		f.expect("writes", []string{"create services demo-a"}, f.writes())
		f.remove(testNode("b"))
		settle()
		f.expect("writes when another node is gone", nil, f.writes())
		f.set(testNode("c", "disk=ssd"))
		settle()
		if writes := f.writes(); len(writes) != 1 || !strings.HasPrefix(writes[0], "create services ") {
			t.Errorf("writes for another node: %v, want one, and no status", writes)
		}
		f.expect("events", nil, f.recorded())
	})
}

// TestUnselectedIsAskedLive: a node that the cache does not know, and the API server does, keeps its Service.
func TestUnselectedIsAskedLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := testLocalService(selectTypo)
		f := newFixture(t, ls, testService(ls, "late"))
		f.nodes.PrependWatchReactor("*", func(core.Action) (bool, watch.Interface, error) {
			return true, watch.NewFake(), nil
		})
		controller := f.newLocalServices()
		f.watch()
		f.set(testNode("late"))
		f.start(controller.Run, 4)
		settle()
		if len(f.services()) != 1 {
			t.Error("the Service of a node that exists was deleted")
		}
	})
}

// TestUnselectedHostnames: no name is taken away by a nodeSelector that matches no node, and all follow the pods. A new
// LocalService that selects nothing publishes nothing.
func TestUnselectedHostnames(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode, selectSSD), []runtime.Object{testNode("a", "disk=ssd"),
		testNode("b", "disk=ssd")}, func(w *hostnamesWorld) {
		w.publish("1", "a", "b")
		w.edit(selectTypo)
		w.wantReady("False NoNodesSelected 0/0, 2 Services")
		w.want("names after a mistake", "a=10.0.0.1", "b=10.0.0.2")
		w.publish("1", "b!")
		w.publish("1", "b", "a!")
		w.want("names when the pods have changed", "a=10.0.0.2!", "b=10.0.0.1")
		w.remove(testNode("b"))
		settle()
		w.want("names when a node is gone", "a=10.0.0.2!")
		w.edit(selectSSD)
		w.want("names when it is corrected", "a=10.0.0.2!")
		w.wantReady("True HostnamesInPlace 0/1, 2 Services")
	})
	inHostnamesWorld(t, testLocalService(hostnamesMode, selectTypo), []runtime.Object{testNode("a")},
		func(w *hostnamesWorld) {
			w.wantReady("False NoNodesSelected 0/0, 0 Services")
			w.expect("writes", []string{"patch localservices/status demo 0/0 not Ready: NoNodesSelected"}, w.writes())
		})
}

// TestUnselectedAfterAChangeOfMode: also the Services of the previous mode stay.
func TestUnselectedAfterAChangeOfMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := runLocalServices(t, testNode("a"), testLocalService())
		f.edit(func(ls *v1alpha1.LocalService) {
			selectTypo(ls)
			hostnamesMode(ls)
		})
		time.Sleep(time.Hour)
		ls := f.localService()
		isRetiring := meta.IsStatusConditionTrue(ls.Status.Conditions, v1alpha1.ConditionRetiring)
		if f.services()["demo-a"] == nil || isRetiring || !plan.LabelsPods(ls) {
			t.Errorf("%d Services; pods are labelled: %t; conditions %v", len(f.services()), plan.LabelsPods(ls),
				ls.Status.Conditions)
		}
	})
}

// TestCapacityNear: more Services than pods stand are made all the same, and warned of, once.
func TestCapacityNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addressed := testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = "" })
		objects := []runtime.Object{addressed, testNode("node1")}
		for i := range 1000 {
			objects = append(objects, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d", i),
				Namespace: "default"},
				Spec: corev1.ServiceSpec{ClusterIP: fmt.Sprintf("10.1.%d.%d", i/250, i%250),
					ClusterIPs: []string{"10.1.0.1"}}})
		}
		f := runLocalServices(t, objects...)
		f.expect("writes", []string{"create services demo-node1",
			"patch localservices/status demo 1/1 Ready, NearCapacity"}, f.writes())
		if got := f.recorded(); len(got) != 2 || !strings.HasPrefix(got[1], "Warning ManyEnvironmentVariables the "+
			"namespace has 1001 Services") {
			t.Errorf("events %v, want a warning", got)
		}
		// One more is nothing new.
		f.set(testNode("node2"))
		settle()
		f.expect("writes", []string{"create services demo-node2", "patch localservices/status demo 2/2 Ready, " +
			"NearCapacity"}, f.writes())
		f.expect("events", []string{"Normal ServicesWritten Services: created 1 (2 nodes selected)"}, f.recorded())
		// Where nothing is created, the status is written once, at the end.
		f.set(testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP, ls.Generation = "", 2 }))
		settle()
		f.expect("writes", []string{"patch localservices/status demo 2/2 Ready, NearCapacity"}, f.writes())
	})
}
