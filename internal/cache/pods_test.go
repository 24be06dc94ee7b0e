package cache

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/localservice-dev/local-service-controller/internal/testobject"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestPodsOnDemand: pods are watched while a LocalService needs labels on them, and for a while after that.
func TestPodsOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCachesOf(t, kubefake.NewClientset(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u"},
			Spec:       corev1.PodSpec{NodeName: "a"}}),
			dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()))
		p, changes := c.Pods, 0
		p.OnChange(func(before, after *Pod) { changes++ })
		go p.run(t.Context())
		expect := func(when string, pods, wantChanges int) {
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
			if n != 3*pods || changes != wantChanges || !p.HasSynced("default") {
				t.Errorf("%s: found %d times, want %d; %d changes, want %d; synced %t", when, n, 3*pods, changes,
					wantChanges, p.HasSynced("default"))
			}
		}
		become := func(ls *v1alpha1.LocalService) {
			show(t, c.LocalServices, ls)
			p.localServiceChanged(nil, ls)
		}
		hostnames := testobject.LocalService(func(ls *v1alpha1.LocalService) { ls.Spec.Mode = v1alpha1.ModeHostnames })
		services := testobject.LocalService()
		retiring := hostnames.DeepCopy()
		retiring.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRetiring}}
		become(hostnames)
		time.Sleep(podsLinger)
		expect("not needed", 0, 0)
		show(t, c.LocalServices, services)
		if p.HasSynced("default") { // Nothing has started the watch yet.
			t.Error("synced before pods were watched")
		}
		become(services)
		expect("needed", 1, 1)
		become(hostnames)
		expect("not needed any more", 1, 1)
		become(retiring)
		time.Sleep(2 * podsLinger)
		expect("needed until the mode has changed", 1, 1)
		become(hostnames)
		expect("a moment later", 1, 1)
		time.Sleep(podsLinger)
		expect("a minute later", 0, 1)
		become(services)
		expect("needed again", 1, 2)
		hide(t, c.LocalServices, services)
		p.localServiceChanged(services, nil)
		time.Sleep(podsLinger)
		expect("the LocalService is deleted", 0, 2)
	})
}
