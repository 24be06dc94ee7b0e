package cache

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testobject"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestHostnameSlice: of an EndpointSlice that is to be copied all that is published is kept, of a copy what tells it
// from another one; and of both, whose they are.
func TestHostnameSlice(t *testing.T) {
	full := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "default", UID: "u", ResourceVersion: "1",
			Labels: map[string]string{discoveryv1.LabelManagedBy: plan.KubernetesSliceManager, v1alpha1.OwnerLabelKey: "demo"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "published", UID: "s"},
				corev1.SchemeGroupVersion.WithKind("Service"))}},
		AddressType: discoveryv1.AddressTypeIPv6,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"fd00::1"}, NodeName: new("a"), Zone: new("z"),
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
		Ports: []discoveryv1.EndpointPort{{Port: new(int32(1))}},
	}
	trim := func(full *discoveryv1.EndpointSlice) *HostnameSlice {
		t.Helper()
		s, err := trimHostnameSlice(full)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	source := trim(full)
	want := &discoveryv1.EndpointSlice{AddressType: full.AddressType, Endpoints: full.Endpoints, Ports: full.Ports}
	for range 2 { // To read it must not use it up.
		if diff := cmp.Diff(want, source.Get()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	if source.LocalService().Name != "demo" || source.Controller().UID != "s" || source.GetUID() != "u" {
		t.Errorf("%+v", source)
	}
	copied := full.DeepCopy()
	copied.Labels[discoveryv1.LabelManagedBy], copied.Labels[v1alpha1.OwnerLabelKey] = v1alpha1.EndpointSliceManager, "other"
	if c := trim(copied); c.LocalService().Name != "published" || c.packed != "" || c.sum.Endpoints != nil {
		t.Errorf("a copy: %+v", c)
	}
	for name, c := range map[string]struct {
		edit func(*discoveryv1.EndpointSlice)
		same bool
	}{
		"resource version": {func(s *discoveryv1.EndpointSlice) { s.ResourceVersion = "2" }, true},
		"UID":              {func(s *discoveryv1.EndpointSlice) { s.UID = "2" }, false},
		"readiness":        {func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = new(false) }, false},
		"hostname":         {func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Hostname = new("h") }, false},
		"port":             {func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = new(int32(2)) }, false},
		"controller":       {func(s *discoveryv1.EndpointSlice) { s.OwnerReferences = nil }, false},
		"manager":          {func(s *discoveryv1.EndpointSlice) { delete(s.Labels, discoveryv1.LabelManagedBy) }, false},
		"LocalService":     {func(s *discoveryv1.EndpointSlice) { s.Labels[v1alpha1.OwnerLabelKey] = "x" }, false},
	} {
		edited := full.DeepCopy()
		c.edit(edited)
		if got := trim(edited).Same(source); got != c.same {
			t.Errorf("another %s: same %v, want %v", name, got, c.same)
		}
	}
}

// TestPodsOnDemand: pods are watched while a LocalService needs labels on them, and for a while after that.
func TestPodsOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := kubefake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"},
			Spec: corev1.PodSpec{NodeName: "a"}})
		p := newPods(false, func() (*Store[Pod], error) {
			return newStore("pods", clusterWide(coreinformers.NewPodInformer(kube, metav1.NamespaceAll, 0, cache.Indexers{})),
				func(full *corev1.Pod) (*Pod, error) { return trimPod(full, nodeLabelKey) },
				cache.Indexers{unlabelledByNamespace: indexUnlabelled}, func(string) cache.WatchErrorHandlerWithContext {
					return cache.DefaultWatchErrorHandler
				})
		})
		told := 0
		p.OnChange(func(before, after *Pod) { told++ })
		go p.run(t.Context())
		want := func(what string, pods, wantTold int) {
			t.Helper()
			synctest.Wait()
			time.Sleep(time.Second)
			n := 0
			for range p.All() {
				n++
			}
			for range p.Unlabelled("default") {
				n++
			}
			if p.Get("default", "p") != nil {
				n++
			}
			if n != 3*pods || told != wantTold || !p.HasSynced("default") {
				t.Errorf("%s: %d found of %d, %d told of %d, synced %v", what, n, 3*pods, told, wantTold, p.HasSynced("default"))
			}
		}
		hostnames := testobject.LocalService(func(ls *v1alpha1.LocalService) { ls.Spec.Mode = v1alpha1.ModeHostnames })
		services := testobject.LocalService()
		retiring := hostnames.DeepCopy()
		retiring.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRetiring}}
		p.localServiceChanged(nil, hostnames)
		want("nobody needs them", 0, 0)
		p.localServiceChanged(hostnames, services)
		if p.HasSynced("default") {
			t.Error("synced at once")
		}
		want("one needs them", 1, 1)
		p.localServiceChanged(services, hostnames)
		want("nobody does any more", 1, 1)
		p.localServiceChanged(hostnames, retiring)
		time.Sleep(2 * podsLinger)
		want("one does until its mode has changed", 1, 1)
		p.localServiceChanged(retiring, hostnames)
		want("a moment later", 1, 1)
		time.Sleep(podsLinger)
		want("nobody does", 0, 1)
		p.localServiceChanged(hostnames, services)
		want("again", 1, 2)
		p.localServiceChanged(services, nil)
		time.Sleep(podsLinger)
		want("it is deleted", 0, 2)
	})
}

// TestPodsUnwantedBeforeTheyAreWatched: pods are wanted, and not wanted any more, before the watch of them has begun,
// as when the goroutine of run is still stopping the watch before, or has not been scheduled yet.
func TestPodsUnwantedBeforeTheyAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPods(false, func() (*Store[Pod], error) { return nil, errors.New("not in this test") })
		ls := &v1alpha1.LocalService{}
		p.localServiceChanged(nil, ls)
		p.localServiceChanged(ls, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		panicked := make(chan any, 1)
		go func() {
			defer func() { panicked <- recover() }()
			p.run(ctx)
		}()
		time.Sleep(2 * podsLinger)
		cancel()
		if got := <-panicked; got != nil {
			t.Errorf("panic: %v", got)
		}
	})
}
