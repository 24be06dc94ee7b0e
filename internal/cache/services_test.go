package cache

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testobject"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestOwned: a LocalService owns the Services of its namespace that have its UID in their controller reference,
// whatever their names, and as the cache has them now.
func TestOwned(t *testing.T) {
	c := newCaches(t)
	of := func(uid types.UID, namespace, node string) *Service {
		return generated(t, testobject.LocalService(func(ls *v1alpha1.LocalService) {
			ls.UID, ls.Namespace = uid, namespace
		}), node)
	}
	expect := func(when string, want ...string) {
		t.Helper()
		owned := c.Services.Owned(testobject.LocalService())
		for name, service := range owned {
			if name != service.GetName() || service.GetNamespace() != "default" {
				t.Errorf("%s: %s/%s under the name %s", when, service.GetNamespace(), service.GetName(), name)
			}
		}
		if got := slices.Sorted(maps.Keys(owned)); !slices.Equal(got, want) {
			t.Errorf("%s: owned %v, want %v", when, got, want)
		}
	}
	expect("empty")
	show(t, c.Services.Store, of("uid-demo", "default", "a"), of("uid-demo", "default", "b"),
		of("uid-demo", "other", "c"), of("earlier", "default", "d"), trimmed(t, testobject.ForeignService("demo-e")))
	expect("several LocalServices", "demo-a", "demo-b")
	show(t, c.Services.Store, of("another", "default", "a"), of("uid-demo", "default", "d"))
	expect("two have another controller", "demo-b", "demo-d")
	hide(t, c.Services.Store, of("uid-demo", "default", "b"))
	expect("one is deleted", "demo-d")
}

// TestLookup: a lookup returns the Service of a name, and a nil interface if there is none.
func TestLookup(t *testing.T) {
	c := newCaches(t)
	show(t, c.Services.Store, trimmed(t, testobject.ForeignService("demo-e")))
	if got := c.Services.Lookup("default", "demo-e"); got == nil || got.GetName() != "demo-e" {
		t.Errorf("%v", got)
	}
	if got := c.Services.Lookup("other", "demo-e"); got != nil {
		t.Errorf("in another namespace: %v", got)
	}
}

// TestCapacityCounts: Services of all kinds count. Those with a cluster IP count if the LocalService has some, too.
func TestCapacityCounts(t *testing.T) {
	c := newCaches(t)
	service := func(namespace, name, clusterIP string) *Service {
		return trimmed(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: corev1.ServiceSpec{ClusterIP: clusterIP, ClusterIPs: []string{clusterIP}}})
	}
	addressed := testobject.LocalService(testobject.Specs["cluster IP"])
	hostnames := testobject.LocalService(testobject.Specs["cluster IP"], func(ls *v1alpha1.LocalService) {
		ls.Spec.Mode = v1alpha1.ModeHostnames
	})
	expect := func(when string, ls *v1alpha1.LocalService, more int, want plan.Capacity) {
		t.Helper()
		if diff := cmp.Diff(want, c.Services.Capacity(ls, more)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	headless, second := service("default", "a", "None"), service("default", "b", "10.0.0.1")
	elsewhere, external := service("other", "a", "10.0.0.2"), service("other", "external", "")
	expect("empty", addressed, 0, plan.Capacity{})
	show(t, c.Services.Store, headless, second, elsewhere, external)
	expect("headless", testobject.LocalService(), 5, plan.Capacity{InCluster: 9, InNamespace: 7})
	expect("mode Hostnames", hostnames, 2, plan.Capacity{InCluster: 6, InNamespace: 4})
	expect("cluster IP", addressed, 5, plan.Capacity{InCluster: 9, InNamespace: 7, ClusterIPsInNamespace: 6})
	expect("fewer", addressed, -1, plan.Capacity{InCluster: 3, InNamespace: 1, ClusterIPsInNamespace: 0})
	first := service("default", "a", "10.0.0.3")
	show(t, c.Services.Store, first)
	expect("changed", addressed, 0, plan.Capacity{InCluster: 4, InNamespace: 2, ClusterIPsInNamespace: 2})
	hide(t, c.Services.Store, first, second)
	expect("deleted", addressed, 0, plan.Capacity{InCluster: 2})
}

// TestCapacityIsPartial: if only some namespaces are watched, their Services are counted, and the capacity is
// marked as partial.
func TestCapacityIsPartial(t *testing.T) {
	c := newCaches(t, "default", "other")
	for _, namespace := range []string{"default", "other"} {
		s := trimmed(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}})
		if err := c.Services.watched.of(namespace).GetIndexer().Add(s); err != nil {
			t.Fatal(err)
		}
	}
	want := plan.Capacity{InCluster: 2, InNamespace: 1, IsPartial: true}
	if diff := cmp.Diff(want, c.Services.Capacity(testobject.LocalService(), 0)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	elsewhere := testobject.LocalService(func(ls *v1alpha1.LocalService) { ls.Namespace = "unwatched" })
	if got := c.Services.Capacity(elsewhere, 0).InNamespace; got != 0 || len(c.Services.Owned(elsewhere)) > 0 {
		t.Errorf("%d Services in a namespace that is not watched", got)
	}
}
