package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/app"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/internal/testing/simulation"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestHandlersAddFewKeys: however many objects a tenant has, its events add few keys to the queues, and a hundred
// events add as many as one. Services and EndpointSlices that are not ours add none. Handlers do not judge: a pod that
// nothing selects is a key, too. Only Nodes, which no tenant changes, concern all LocalServices.
func TestHandlersAddFewKeys(t *testing.T) {
	const count = 300
	dashes := strings.Repeat("d-", 25) + "d"
	names := testLocalService(objects.Named("names"), hostnamesMode)
	service := func(namespace, name string) *corev1.Service {
		return objects.Service(name, func(s *corev1.Service) {
			s.Namespace, s.Spec.ClusterIP = namespace, corev1.ClusterIPNone
		})
	}
	published := service("default", "names")
	published.OwnerReferences = objects.ControlledBy(v1alpha1.SchemeGroupVersion.String(), v1alpha1.Kind, "names")
	existing := []simulation.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, testNode("node1"),
		names, published, service("default", dashes), service("default", "other-node1"), service("default", "demo0"),
		service("other", "demo0-node1"), testSlice("other-node1", "a"), testSlice("demo0-node1", "b!")}
	for i := range count {
		slice := testSlice(fmt.Sprintf("names-%d", i))
		slice.Labels[v1alpha1.HostnamesLabelKey] = v1alpha1.HostnamesSource
		delete(slice.Labels, discoveryv1.LabelManagedBy) // A change by Kubernetes is not delayed, so that 100 may be 3 keys.
		existing = append(existing, slice,
			testLocalService(objects.Named(fmt.Sprintf("demo%d", i))),
			testPod(fmt.Sprintf("p%d", i), objects.Labelled("app=other")))
	}
	for i := range dashes {
		if dashes[i] == '-' {
			existing = append(existing, testLocalService(objects.Named(dashes[:i])))
		}
	}
	inCluster(t, func(t *testing.T, c *cluster) {
		var keys atomic.Int64
		var all *controllers
		c.run(func(deps app.Dependencies) func(context.Context) {
			all = newControllers(deps)
			ended, stop := context.WithCancel(t.Context())
			stop()
			all.run(ended) // Their queues have goroutines.
			counting := reconcile.New("count", deps.Clock, func(context.Context, types.NamespacedName) (time.Duration, error) {
				keys.Add(1)
				return 0, nil
			})
			all.pods.loop, all.hostnames.loop, all.localServices.loop = counting, counting, counting
			return func(ctx context.Context) { counting.Run(ctx, 1, func(func(types.NamespacedName) bool) {}) }
		})
		localServices, hostnames, pods, caches := all.localServices, all.hostnames, all.pods, c.deps.Caches

		pod, ls := caches.Pods.Get("default", "p0"), caches.LocalServices.Get("default", "demo0")
		slice := caches.HostnameSlices.Get("default", "names-0-x")
		changed := func(namespace, name string) func() {
			service := caches.Services.Get(namespace, name)
			if service == nil {
				t.Fatalf("there is no Service %s/%s", namespace, name)
			}
			return func() { localServices.serviceChanged(service, service) }
		}
		forged := caches.Services.Get("default", "names") // A controller is known by its UID.
		named := forged.DeepCopy()
		named.OwnerReferences[0].UID = caches.LocalServices.Get("default", "names").UID
		endpoints := caches.EndpointSlices
		foreign, unready := endpoints.Get("default", "other-node1-x"), endpoints.Get("default", "demo0-node1-x")
		if foreign == nil || unready == nil {
			t.Fatal("there are no such endpoints")
		}
		node := caches.Nodes.Get("", "node1")
		selectsOther := testLocalService(selecting("other"))
		for name, test := range map[string]struct {
			event func()
			want  int64
		}{
			"a pod":                           {func() { pods.podChanged(pod, pod) }, 1},
			"a selector":                      {func() { pods.localServiceChanged(ls, selectsOther) }, 1},
			"a Service of mode Hostnames":     {func() { hostnames.serviceChanged(named, named) }, 1},
			"a Service that says it is one":   {func() { hostnames.serviceChanged(forged, forged) }, 0},
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
				test.event()
			}
			time.Sleep(time.Minute)
			if got := keys.Load(); got != test.want {
				t.Errorf("100 events of %s: %d keys, want %d", name, got, test.want)
			}
		}

		// The API server drops fields of a spec that an older CustomResourceDefinition lacks, in the same generation and,
		// until somebody writes to the LocalService, in the same version. Nothing is written for it before the look.
		looks := 0
		localServices.lookSoon = func() { looks++ }
		for _, test := range []struct {
			version           string
			generations, want int
			isAtOnce          bool
		}{{ls.ResourceVersion, 0, 1, false}, {"pruned", 0, 1, false}, {"pruned", 1, 0, true}} {
			looks = 0
			keys.Store(0)
			localServices.localServiceChanged(ls, objects.Edit(ls.DeepCopy(), func(ls *v1alpha1.LocalService) {
				ls.ResourceVersion, ls.Spec.Ports = test.version, nil
				ls.Generation += int64(test.generations)
			}))
			time.Sleep(time.Second)
			if isAtOnce := keys.Load() > 0; looks != test.want || isAtOnce != test.isAtOnce {
				t.Errorf("%+v: %d looks, a sync at once: %t", test, looks, isAtOnce)
			}
		}
	}, existing...)
}
