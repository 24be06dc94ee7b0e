package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestHandlersAddFewKeys: however many objects a tenant has, its events add few keys to the queues, and a hundred
// events add as many as one. Services and EndpointSlices that are not ours add none. Handlers do not judge: a pod that
// nothing selects is a key, too. Only Nodes, which no tenant changes, concern all LocalServices.
func TestHandlersAddFewKeys(t *testing.T) {
	const count = 3000
	dashes := strings.Repeat("d-", 25) + "d"
	var objects []runtime.Object
	for i := range count {
		objects = append(objects,
			testLocalService(func(ls *v1alpha1.LocalService) { ls.Name = fmt.Sprintf("demo%d", i) }),
			testPod(fmt.Sprintf("p%d", i), withLabels(map[string]string{"app": "other"})),
			&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("names-%d", i),
				Namespace: "default",
				Labels: map[string]string{v1alpha1.HostnamesLabelKey: v1alpha1.HostnamesSource,
					v1alpha1.OwnerLabelKey: "names"}}})
	}
	for i := range dashes {
		if dashes[i] == '-' {
			objects = append(objects, testLocalService(func(ls *v1alpha1.LocalService) { ls.Name = dashes[:i] }))
		}
	}
	names := testLocalService(hostnamesMode, func(ls *v1alpha1.LocalService) { ls.Name = "names" })
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "names", Namespace: "default",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(names,
			v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.Kind))}}}
	objects = append(objects, names, service, testNode("node1"), testSlice("other-node1", true),
		testSlice("demo0-node1", false))
	for _, key := range []types.NamespacedName{{Namespace: "default", Name: dashes}, {Namespace: "default",
		Name: "other-node1"}, {Namespace: "default", Name: "demo0"}, {Namespace: "other", Name: "demo0-node1"}} {
		objects = append(objects, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace,
			Name: key.Name}})
	}

	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, false, objects...)
		localServices, hostnames := newLocalServiceController(f.deps), newHostnamesController(f.deps, nil)
		end(t, localServices.loop)
		end(t, hostnames.loop)
		pods := f.newPods()
		var keys atomic.Int64
		counting := reconcile.New("count", clock.RealClock{}, func(context.Context, types.NamespacedName) error {
			keys.Add(1)
			return nil
		})
		pods.loop, hostnames.loop, localServices.loop = counting, counting, counting
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			counting.Run(ctx, 1, func(func(types.NamespacedName) bool) {})
		}()
		synctest.Wait()

		pod, ls := f.deps.Caches.Pods.Get("default", "p0"), f.deps.Caches.LocalServices.Get("default", "demo0")
		slice := f.deps.Caches.HostnameSlices.Get("default", "names-0")
		changed := func(namespace, name string) func() {
			service := f.deps.Caches.Services.Get(namespace, name)
			if service == nil {
				t.Fatalf("there is no Service %s/%s", namespace, name)
			}
			return func() { localServices.serviceChanged(service, service) }
		}
		named := f.deps.Caches.Services.Get("default", "names")
		endpoints := f.deps.Caches.EndpointSlices
		foreign, unready := endpoints.Get("default", "other-node1-x"), endpoints.Get("default", "demo0-node1-x")
		if foreign == nil || unready == nil {
			t.Fatal("there are no such endpoints")
		}
		node := f.deps.Caches.Nodes.Get("", "node1")
		selecting := testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.Selector["app"] = "other" })
		for name, c := range map[string]struct {
			event func()
			want  int64
		}{
			"a pod":                           {func() { pods.podChanged(pod, pod) }, 1},
			"a selector":                      {func() { pods.localServiceChanged(ls, selecting) }, 1},
			"a Service of mode Hostnames":     {func() { hostnames.serviceChanged(named, named) }, 1},
			"a spec of mode Hostnames":        {func() { hostnames.localServiceChanged(nil, names) }, 1},
			"an EndpointSlice":                {func() { hostnames.sliceChanged(slice, slice) }, 1},
			"an EndpointSlice, in the status": {func() { localServices.hostnameSliceChanged(slice, slice) }, 1},
			"a Service whose name has dashes": {changed("default", dashes), 25},
			"a Service of somebody else":      {changed("default", "other-node1"), 0},
			"a Service without a dash":        {changed("default", "demo0"), 0},
			"a Service elsewhere":             {changed("other", "demo0-node1"), 0},
			"endpoints of somebody else":      {func() { localServices.endpointsChanged(foreign, foreign) }, 0},
			"endpoints that are not ready":    {func() { localServices.endpointsChanged(unready, unready) }, 0},
			"a Node, in mode Hostnames":       {func() { hostnames.nodeChanged(node, node) }, 1},
			"a Node":                          {func() { localServices.nodeChanged(nil, node) }, count + 25 + 1},
		} {
			time.Sleep(time.Minute)
			keys.Store(0)
			for range 100 {
				c.event()
			}
			time.Sleep(time.Minute)
			if got := keys.Load(); got != c.want {
				t.Errorf("100 events of %s: %d keys, want %d", name, got, c.want)
			}
		}
		stop()
		<-stopped
	})
}
