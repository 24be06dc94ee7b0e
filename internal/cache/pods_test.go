package cache

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestPodsOnDemand: pods are watched from the first LocalService that needs labels on them until the process ends.
func TestPodsOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCachesOf(t, kubefake.NewClientset(objects.Pod("p", "a", objects.Unlabelled)),
			dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()))
		p, changes := c.Pods, 0
		p.OnChange(func(before, after *Pod) { changes++ })
		expect := func(when string, pods int) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			n := len(p.Unlabelled("default"))
			for range p.All() {
				n++
			}
			if p.Get("default", "p") != nil {
				n++
			}
			if n != 3*pods || changes != pods || !p.HasSynced("default") {
				t.Errorf("%s: found %d times, want %d; %d changes, want %d; synced %t", when, n, 3*pods, changes,
					pods, p.HasSynced("default"))
			}
		}
		hostnames := objects.LocalService(objects.HostnamesMode)
		invalid := objects.LocalService(func(ls *v1alpha1.LocalService) { ls.Spec.Selector = nil })
		services := objects.LocalService()
		go p.run(t.Context())
		p.localServiceChanged(nil, hostnames)
		p.localServiceChanged(nil, invalid)
		expect("not needed", 0)
		p.localServiceChanged(nil, services)
		expect("needed", 1)
		p.localServiceChanged(services, nil)
		p.localServiceChanged(nil, services)
		expect("needed no more, and needed again", 1)
	})
}

// TestPodsHaveSynced: whether pods are needed is known before it is asked whether they are known.
func TestPodsHaveSynced(t *testing.T) {
	c := newCaches(t)
	if !c.Pods.HasSynced("default") {
		t.Error("pods that nobody needs are not known")
	}
	c.Pods.localServiceChanged(nil, objects.LocalService())
	if c.Pods.HasSynced("default") {
		t.Error("known before the watch has begun")
	}
	if c.all()[0] != runner(c.LocalServices) {
		t.Error("whether pods are watched is asked first")
	}
}
