package main

import (
	"fmt"
	"maps"
	"math"
	goruntime "runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

var sourceName = plan.ServiceName("demo", plan.Source, "")

func hostnamesMode(ls *v1alpha1.LocalService) { ls.Spec.Mode = v1alpha1.ModeHostnames }

// inHostnamesWorld calls do in a bubble with a LocalService, once the running controllers have nothing to do.
func inHostnamesWorld(t *testing.T, ls *v1alpha1.LocalService, objects []runtime.Object, do func(*fixture)) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, append(objects, ls)...)
		f.runAll()
		do(f)
	})
}

// publish does what Kubernetes does for the pods of the source: one on each node, ready unless its name ends in !.
func (f *fixture) publish(suffix string, nodes ...string) {
	f.t.Helper()
	source := f.services()[sourceName]
	slice := objects.SourceSlice(source, sourceName+"-"+suffix, nodes...)
	maps.Copy(slice.Labels, source.Labels)
	f.set(slice)
	settle()
}

// slice returns the EndpointSlice that the API server has.
func (f *fixture) slice(name string) *discoveryv1.EndpointSlice {
	f.t.Helper()
	slice, err := f.kube.DiscoveryV1().EndpointSlices("default").Get(f.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return slice.DeepCopy()
}

// names returns the published names, with their addresses.
func (f *fixture) names() []string {
	f.t.Helper()
	list, err := f.kube.DiscoveryV1().EndpointSlices("default").List(f.t.Context(),
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=demo"})
	if err != nil {
		f.t.Fatal(err)
	}
	var names []string
	for _, slice := range list.Items {
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

func (f *fixture) want(what string, names ...string) {
	f.t.Helper()
	if got := f.names(); !slices.Equal(got, names) {
		f.t.Errorf("%s: %q, want %q", what, got, names)
	}
}

// wantReady checks the condition Ready and the numbers, abbreviated.
func (f *fixture) wantReady(want string) {
	f.t.Helper()
	status := f.localService().Status
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	got := fmt.Sprintf("%s %s %s, %d Services", c.Status, c.Reason, status.Ready, status.Services)
	if got != want {
		f.t.Errorf("%s, want %s", got, want)
	}
}

// TestHostnames: there are two Services, a copy of each EndpointSlice, one write for each change, and none at rest.
func TestHostnames(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a"), testNode("b.example.com")},
		func(w *fixture) {
			w.expect("writes", []string{"create services demo", "create services " + sourceName,
				"update localservices/status demo 2/2 not Ready: NoEndpointSlices, Progressing"}, w.writes())
			w.publish("1", "a", "b.example.com!", "gone")
			w.expect("writes", []string{"create endpointslices " + sourceName + "-1-named",
				"update localservices/status demo 2/2 Ready"}, w.writes())
			first := []string{"a=10.0.0.1", "b-example-com-zvm5k36wu5=10.0.0.2!", "gone=10.0.0.3"}
			w.want("first", first...)
			w.editSlice(sourceName+"-1-named",
				func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Hostname = new("other") })
			time.Sleep(time.Second)
			w.want("somebody has edited the copy", first...)
			w.writes()
			w.publish("1", "a")
			w.publish("2", "b.example.com")
			w.expect("writes", []string{"create endpointslices " + sourceName + "-2-named",
				"update endpointslices " + sourceName + "-1-named", "update localservices/status demo 2/2 Ready"},
				slices.Compact(w.writes()))
			w.removeSlice("1")
			time.Sleep(time.Minute) // A copy outlives its source for a moment.
			w.want("one is gone", "b-example-com-zvm5k36wu5=10.0.0.1")
			w.writes()
			time.Sleep(time.Hour)
			if got := w.requests(); len(got) > 0 {
				t.Errorf("at rest: %v", got)
			}
		})
}

// TestHostnamesGroups: with groupBy the names are those of groups of nodes. They follow the spec and the nodes.
func TestHostnamesGroups(t *testing.T) {
	ls := testLocalService(hostnamesMode, func(ls *v1alpha1.LocalService) {
		ls.Spec.GroupBy, ls.Spec.NodeSelector = "zone", map[string]string{"os": "linux"}
	})
	nodes := []runtime.Object{testNode("a", "zone=x", "os=linux"), testNode("b", "zone=x", "os=linux"),
		testNode("c", "zone=x", "os=other"), testNode("d", "os=linux"), testNode("e", "os=linux")}
	inHostnamesWorld(t, ls, nodes, func(w *fixture) {
		w.publish("1", "a", "b", "c", "d")
		w.want("first", "x=10.0.0.1", "x=10.0.0.2")
		w.wantReady("True HostnamesInPlace 1/1, 2 Services")
		w.set(testNode("b", "zone=z", "os=linux"))
		settle()
		w.want("a node moves", "x=10.0.0.1", "z=10.0.0.2")
		w.set(testNode("e", "zone=y", "os=linux"))
		settle()
		w.wantReady("True HostnamesInPlace 2/3, 2 Services") // There is no pod in y.
		w.recorded()
		w.edit(func(ls *v1alpha1.LocalService) { ls.Spec.GroupBy = "" })
		settle()
		w.expect("events", []string{`Normal ServicesWritten updated 1: demo; the names change: groupBy was "zone", ` +
			`and is ""`}, w.recorded())
		w.want("no groups any more", "a=10.0.0.1", "b=10.0.0.2", "d=10.0.0.4")
		w.wantReady("True HostnamesInPlace 3/4, 2 Services")
		w.edit(func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = nil }) // This changes no Service.
		w.want("all nodes", "a=10.0.0.1", "b=10.0.0.2", "c=10.0.0.3", "d=10.0.0.4")
	})
}

// TestModeChanged: where an older CustomResourceDefinition lets the mode change, nothing is written until it is changed
// back, or the Services of the other mode are deleted.
func TestModeChanged(t *testing.T) {
	const invalid = "False InvalidSpec 2/2, 2 Services"
	changeTo := func(mode v1alpha1.Mode) func(*v1alpha1.LocalService) {
		return func(ls *v1alpha1.LocalService) { ls.Spec.Mode = mode }
	}
	nodes := []runtime.Object{testNode("a"), testNode("b"), testSlice("demo-a", true), testSlice("demo-b", true)}
	inHostnamesWorld(t, testLocalService(), nodes, func(w *fixture) {
		w.writes()
		w.edit(changeTo(v1alpha1.ModeHostnames))
		settle()
		w.wantReady(invalid)
		w.set(testNode("c"))
		settle()
		w.expect("writes", []string{"update localservices/status demo 2/2 not Ready: InvalidSpec, Stalled"}, w.writes())
		w.edit(changeTo(v1alpha1.ModeServices))
		settle()
		w.wantReady("True ServicesInPlace 2/3, 3 Services")
	})
	inHostnamesWorld(t, testLocalService(hostnamesMode), nodes[:2], func(w *fixture) {
		w.publish("1", "a", "b")
		w.writes()
		w.edit(changeTo(v1alpha1.ModeServices))
		settle()
		w.wantReady(invalid)
		w.publish("1", "a")
		w.expect("writes", []string{"update localservices/status demo 2/2 not Ready: InvalidSpec, Stalled"}, w.writes())
		w.remove(w.services()["demo"])
		settle()
		w.wantReady(invalid)
		w.remove(w.services()[sourceName])
		settle()
		w.wantReady("True NoPodsReady 0/2, 2 Services")
	})
}

// TestHostnamesAllocations: what a sync of an EndpointSlice allocates does not grow with the number of EndpointSlices.
func TestHostnamesAllocations(t *testing.T) {
	key := types.NamespacedName{Namespace: "default", Name: sourceName + "-1"}
	allocated := func(slices int) (bytes uint64) {
		inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a")}, func(w *fixture) {
			for i := range slices {
				w.publish(fmt.Sprint(i), "a")
			}
			c, err := newHostnamesController(w.deps, newWriters(w.deps), nil)
			if err != nil {
				w.t.Fatal(err)
			}
			end(w.t, c.loop)
			bytes = math.MaxUint64
			for range 100 { // Other goroutines allocate, too: the least is that of the sync.
				var before, after goruntime.MemStats
				goruntime.ReadMemStats(&before)
				if err := c.sync(w.t.Context(), key); err != nil {
					w.t.Error(err)
				}
				goruntime.ReadMemStats(&after)
				bytes = min(bytes, after.TotalAlloc-before.TotalAlloc)
			}
		})
		return bytes
	}
	if few, many := allocated(2), allocated(200); many > few+few/2 {
		t.Errorf("%d bytes among 200 EndpointSlices, %d among 2", many, few)
	}
}
