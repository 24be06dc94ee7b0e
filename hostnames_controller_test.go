package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

var sourceName = plan.ServiceName("demo", plan.Source, "")

func hostnamesMode(ls *v1alpha1.LocalService) { ls.Spec.Mode = v1alpha1.ModeHostnames }

// hostnamesWorld has an API server with a LocalService, a running controller, and the part of Kubernetes that publishes
// pods.
type hostnamesWorld struct {
	*fixture
	ls *v1alpha1.LocalService
}

// inHostnamesWorld calls do in a bubble, once the controller has nothing to do.
func inHostnamesWorld(t *testing.T, ls *v1alpha1.LocalService, objects []runtime.Object, do func(*hostnamesWorld)) {
	synctest.Test(t, func(t *testing.T) {
		w := &hostnamesWorld{newFixture(t, append(objects, ls)...), ls}
		w.runAll()
		do(w)
	})
}

func (w *hostnamesWorld) service(name string) *corev1.Service {
	w.t.Helper()
	object, err := w.kube.Tracker().Get(corev1.SchemeGroupVersion.WithResource("services"), "default", name)
	if err != nil {
		w.t.Fatal(err)
	}
	return object.(*corev1.Service)
}

// publish does what Kubernetes does for the pods of the source: one on each node, ready unless its name ends in !.
func (w *hostnamesWorld) publish(suffix string, nodes ...string) {
	w.t.Helper()
	source := w.service(sourceName)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: sourceName + "-" + suffix, Namespace: "default",
			ResourceVersion: w.nextVersion(),
			Labels: map[string]string{discoveryv1.LabelServiceName: sourceName,
				discoveryv1.LabelManagedBy: plan.KubernetesSliceManager},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(source,
				corev1.SchemeGroupVersion.WithKind("Service"))}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
	}
	for key, value := range source.Labels {
		slice.Labels[key] = value
	}
	for i, node := range nodes {
		name, notReady := strings.CutSuffix(node, "!")
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}, NodeName: &name, Zone: new("z"),
			Conditions: discoveryv1.EndpointConditions{Ready: new(!notReady)},
			Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z"}}}})
	}
	w.set(slice)
	settle()
}

// names returns the published names, with their addresses.
func (w *hostnamesWorld) names() []string {
	w.t.Helper()
	list, err := w.kube.DiscoveryV1().EndpointSlices("default").List(w.t.Context(),
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=demo"})
	if err != nil {
		w.t.Fatal(err)
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

func (w *hostnamesWorld) want(what string, names ...string) {
	w.t.Helper()
	if got := w.names(); !slices.Equal(got, names) {
		w.t.Errorf("%s: %q, want %q", what, got, names)
	}
}

func (w *hostnamesWorld) edit(edit func(*v1alpha1.LocalService)) {
	w.t.Helper()
	w.fixture.edit(func(ls *v1alpha1.LocalService) {
		ls.Generation++
		edit(ls)
	})
	settle()
}

// ready returns the condition Ready, abbreviated.
func (w *hostnamesWorld) ready() string {
	w.t.Helper()
	ls := w.localService()
	c := meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionReady)
	return fmt.Sprintf("%s %s %s, %d Services", c.Status, c.Reason, ls.Status.Ready, ls.Status.Services)
}

func (w *hostnamesWorld) wantReady(want string) {
	w.t.Helper()
	if got := w.ready(); got != want {
		w.t.Errorf("%s, want %s", got, want)
	}
}

// TestHostnames: there are two Services, a copy of each EndpointSlice, one write for each change, and none at rest.
func TestHostnames(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a"), testNode("b.example.com")},
		func(w *hostnamesWorld) {
			w.expect("writes", []string{"create services demo", "create services " + sourceName,
				"patch localservices/status demo 2/2 not Ready: NoEndpointSlices, Progressing"}, w.writes())
			published, source := w.service("demo"), w.service(sourceName)
			if published.Spec.ClusterIP != corev1.ClusterIPNone || len(published.Spec.Selector) > 0 ||
				source.Spec.ClusterIP != corev1.ClusterIPNone || !cmp.Equal(source.Spec.Selector, w.ls.Spec.Selector) {
				t.Errorf("published %+v\nsource %+v", published.Spec, source.Spec)
			}
			w.publish("1", "a", "b.example.com!", "gone")
			w.expect("writes", []string{"create endpointslices " + sourceName + "-1-named",
				"patch localservices/status demo 2/2 Ready"}, w.writes())
			w.want("first", "a=10.0.0.1", "b-example-com-zvm5k36wu5=10.0.0.2!", "gone=10.0.0.3")
			copied, err := w.kube.DiscoveryV1().EndpointSlices("default").Get(t.Context(), sourceName+"-1-named",
				metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			e := copied.Endpoints[0]
			if *e.NodeName != "a" || *e.Zone != "z" || e.Hints == nil || *copied.Ports[0].Port != 8080 ||
				copied.Labels["service.kubernetes.io/headless"] != "" || len(copied.Labels) != 5 ||
				copied.OwnerReferences[0].UID != published.UID {
				t.Errorf("the copy: %+v", copied)
			}
			w.publish("1", "a")
			w.publish("2", "b.example.com")
			w.expect("writes", []string{"create endpointslices " + sourceName + "-2-named",
				"patch localservices/status demo 2/2 Ready", "update endpointslices " + sourceName + "-1-named"},
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

// TestHostnamesGroups: with groupBy the names are those of groups of nodes, and follow the nodes' labels.
func TestHostnamesGroups(t *testing.T) {
	ls := testLocalService(hostnamesMode, func(ls *v1alpha1.LocalService) {
		ls.Spec.GroupBy, ls.Spec.NodeSelector = "zone", map[string]string{"os": "linux"}
	})
	inHostnamesWorld(t, ls, []runtime.Object{testNode("a", "zone=x", "os=linux"), testNode("b", "zone=x", "os=linux"),
		testNode("c", "zone=Y.1", "os=linux"), testNode("d", "zone=x", "os=other"), testNode("e", "os=linux"),
		testNode("f", "zone=", "os=linux")}, func(w *hostnamesWorld) {
		w.publish("1", "a", "b", "c", "d", "e", "f", "unknown")
		w.want("first", "x=10.0.0.1", "x=10.0.0.2", "y-1-pzdwrni43z=10.0.0.3")
		w.wantReady("True HostnamesInPlace 2/2, 2 Services")
		w.set(testNode("c", "zone=z", "os=linux"))
		settle()
		w.want("a node moves", "x=10.0.0.1", "x=10.0.0.2", "z=10.0.0.3")
		w.edit(func(ls *v1alpha1.LocalService) { ls.Spec.GroupBy = "" })
		w.want("no groups any more", "a=10.0.0.1", "b=10.0.0.2", "c=10.0.0.3", "e=10.0.0.5", "f=10.0.0.6")
		w.wantReady("True HostnamesInPlace 5/5, 2 Services")
	})
}

// TestHostnamesOfStrangers: only what Kubernetes has published for the source is copied, and only what our own Service
// controls is written.
func TestHostnamesOfStrangers(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), testNodes(1), func(w *hostnamesWorld) {
		w.publish("1", "a")
		w.want("first", "a=10.0.0.1")
		genuine, err := w.kube.DiscoveryV1().EndpointSlices("default").Get(t.Context(), sourceName+"-1",
			metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i, forge := range []func(*discoveryv1.EndpointSlice){
			func(s *discoveryv1.EndpointSlice) { s.OwnerReferences = nil },
			func(s *discoveryv1.EndpointSlice) { s.OwnerReferences[0].UID = "another" },
			func(s *discoveryv1.EndpointSlice) { s.OwnerReferences[0].Controller = nil },
			func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelManagedBy] = "somebody" },
			func(s *discoveryv1.EndpointSlice) { s.Namespace = "other" },
		} {
			forged := genuine.DeepCopy()
			forged.Name = fmt.Sprintf("%s-forged%d", sourceName, i)
			forge(forged)
			w.set(forged)
		}
		// A Service of somebody else that has the name of ours.
		settle()
		w.writes()
		w.want("forged", "a=10.0.0.1")
		w.remove(w.service("demo"))
		stranger := w.service(sourceName).DeepCopy()
		stranger.Name, stranger.UID, stranger.OwnerReferences, stranger.Labels = "demo", "stranger", nil, nil
		w.set(stranger)
		settle()
		w.publish("1", "a", "b")
		if got := w.writes(); slices.ContainsFunc(got, func(s string) bool {
			return strings.Contains(s, "endpointslices")
		}) {
			t.Errorf("written for a Service of somebody else: %q", got)
		}
		w.wantReady("False NameTaken 0/1, 1 Services")
	})
}

// TestChangeOfMode: the names of a mode stay until those of the next answer, and a while longer.
func TestChangeOfMode(t *testing.T) {
	retired := plan.RetireAfter + 2*time.Second
	inHostnamesWorld(t, testLocalService(), []runtime.Object{testNode("a", "zone=x"), testNode("b", "zone=x")},
		func(w *hostnamesWorld) {
			w.set(testSlice("demo-a", true))
			settle()
			w.wantReady("True ServicesInPlace 1/2, 2 Services")
			services := func(want ...string) {
				t.Helper()
				list, err := w.kube.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for i := range list.Items {
					got = append(got, list.Items[i].Name)
				}
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("Services %q, want %q", got, want)
				}
			}
			w.edit(func(ls *v1alpha1.LocalService) { ls.Spec.Mode, ls.Spec.GroupBy = v1alpha1.ModeHostnames, "zone" })
			time.Sleep(retired)
			services("demo", "demo-a", "demo-b", sourceName) // Kubernetes has not published the pods.
			w.publish("1", "a!", "b!")
			time.Sleep(retired)
			services("demo", "demo-a", "demo-b", sourceName) // The pod on a is reached through its Service only.
			w.publish("1", "a", "b!")
			time.Sleep(plan.RetireAfter - 5*time.Second)
			services("demo", "demo-a", "demo-b", sourceName) // DNS may not know the new names yet.
			time.Sleep(retired)
			services("demo", sourceName)
			w.wantReady("True HostnamesInPlace 1/1, 2 Services")
			if c := meta.FindStatusCondition(w.localService().Status.Conditions, v1alpha1.ConditionRetiring); c != nil {
				t.Errorf("still retiring: %v", c)
			}
			w.remove(testSlice("demo-a"))

			w.edit(func(ls *v1alpha1.LocalService) { ls.Spec.Mode, ls.Spec.GroupBy = "", "" })
			time.Sleep(retired)
			services("demo", "demo-a", "demo-b", sourceName)
			w.publish("1", "a", "b!", "b") // The names to be deleted are kept up to date.
			w.want("while they are needed", "x=10.0.0.1", "x=10.0.0.2!", "x=10.0.0.3")
			w.set(testSlice("demo-a", true))
			time.Sleep(retired)
			services("demo", "demo-a", "demo-b", sourceName)
			w.set(testSlice("demo-b", true))
			// Not while the controller writes the status: this write would be lost.
			time.Sleep(5 * time.Second)
			// The wait begins again.
			w.edit(func(ls *v1alpha1.LocalService) { ls.Spec.PublishNotReadyAddresses = true })
			time.Sleep(plan.RetireAfter - 5*time.Second)
			services("demo", "demo-a", "demo-b", sourceName)
			time.Sleep(retired)
			services("demo-a", "demo-b")
		})
}
