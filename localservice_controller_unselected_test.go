package main

import (
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

func onTypo(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = map[string]string{"disk": "sdd"} }

// TestUnselected: a nodeSelector that matches no node, by a mistake in it or in the labels of nodes, deletes no Service
// of a node that exists. When it matches again, everything continues as usual.
func TestUnselected(t *testing.T) {
	const kept = "update localservices/status demo 0/0 not Ready: NoNodesSelected"
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, testNode("a", "disk=ssd"), testNode("b", "disk=ssd"), testLocalService(onSSD))
		stop := f.startLocalServices()
		settle()
		f.writes()
		f.recorded()
		f.edit(func(ls *v1alpha1.LocalService) {
			onTypo(ls)
			ls.Spec.Ports[0].Port = 81 // The Services stay unchanged.
		})
		f.expect("writes after a mistake", []string{kept}, f.writes())
		f.expect("events", []string{`Warning NoNodesSelected no node matches spec.nodeSelector "disk=sdd", so the ` +
			"Services of nodes that exist are kept, and their names still work (2). Correct spec.nodeSelector or the " +
			"labels of the nodes"},
			f.recorded())
		stop()
		f.deps.Caches = f.newCaches(false)
		f.runLocalServices()
		f.expect("writes of the next instance", nil, f.writes())
		f.remove(testNode("b"))
		settle()
		if writes := f.writes(); len(f.services()) != 1 || len(writes) != 2 || !strings.HasPrefix(writes[0],
			"delete services demo-b") {
			t.Errorf("writes after a node was deleted: %v", writes)
		}
		f.edit(onSSD)
		if s := f.services(); len(s) != 1 || s["demo-a"].Spec.Ports[0].Port != 81 {
			t.Errorf("%d Services after the correction", len(s))
		}
		f.set(testNode("a"))
		settle()
		f.set(testNode("a", "disk=ssd"))
		settle()
		writes := strings.Join(f.writes(), "; ")
		if strings.Contains(writes, "delete") || !strings.Contains(writes, kept) ||
			!strings.Contains(writes, "1/1 Ready") {
			t.Errorf("writes after the node has lost its label and regained it: %s", writes)
		}
	})
}

// TestUnselectedHostnames: no name is removed by a nodeSelector that matches no node, and all follow the pods. A new
// LocalService that selects nothing publishes nothing.
func TestUnselectedHostnames(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode, onSSD), []runtime.Object{testNode("a", "disk=ssd"),
		testNode("b", "disk=ssd")}, func(w *fixture) {
		w.publish("1", "a", "b")
		w.edit(onTypo)
		w.wantReady("False NoNodesSelected 0/0, 2 Services")
		w.want("names after a mistake", "a=10.0.0.1", "b=10.0.0.2")
		w.publish("1", "b!")
		w.publish("1", "b", "a!")
		w.want("names when the pods have changed", "a=10.0.0.2!", "b=10.0.0.1")
		w.remove(testNode("b"))
		settle()
		w.want("names when a node is gone", "a=10.0.0.2!")
		w.edit(onSSD)
		w.want("names when it is corrected", "a=10.0.0.2!")
		w.wantReady("True NoPodsReady 0/1, 2 Services")
	})
	inHostnamesWorld(t, testLocalService(hostnamesMode, onTypo), []runtime.Object{testNode("a")},
		func(w *fixture) {
			w.wantReady("False NoNodesSelected 0/0, 0 Services")
			w.expect("writes", []string{"update localservices/status demo 0/0 not Ready: NoNodesSelected"}, w.writes())
		})
}
