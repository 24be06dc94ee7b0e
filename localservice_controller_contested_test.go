package main

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// contest makes admission change each Service that is created and, with updates, each that is updated, while it is on.
func (f *fixture) contest(admit func(*corev1.Service), updates bool) (on *atomic.Bool) {
	on = &atomic.Bool{}
	on.Store(true)
	react := func(do core.ReactionFunc) core.ReactionFunc {
		return func(a core.Action) (bool, runtime.Object, error) {
			if create, isCreate := a.(core.CreateActionImpl); isCreate && on.Load() {
				create.Object = create.Object.DeepCopyObject()
				admit(create.Object.(*corev1.Service))
				return do(create)
			}
			handled, object, err := do(a)
			if service, ok := object.(*corev1.Service); ok && err == nil && on.Load() {
				admit(service)
				err = f.kube.Tracker().Update(a.GetResource(), service, service.Namespace)
			}
			return handled, object, err
		}
	}
	f.kube.PrependReactor("create", "services", react(f.createService))
	if updates {
		f.kube.PrependReactor("patch", "services", react(f.patch))
	}
	return on
}

// expectServiceWrites checks how many writes of Services there were since the last call.
func (f *fixture) expectServiceWrites(when string, want int) {
	f.t.Helper()
	writes := f.writes()
	ofServices := slices.DeleteFunc(slices.Clone(writes), func(w string) bool {
		return !strings.Contains(w, " services ")
	})
	if len(ofServices) != want {
		f.t.Errorf("%d writes of Services %s, want %d: %v", len(ofServices), when, want, writes)
	}
}

// TestContestedFields: a field that admission changes costs each Service one write more, is reported, and is left
// unchanged for a while. One that it changes only at creation is corrected.
func TestContestedFields(t *testing.T) {
	anyClass := func(ls *v1alpha1.LocalService) { ls.Spec.Type, ls.Spec.ClusterIP = "LoadBalancer", "" }
	ourClass := func(ls *v1alpha1.LocalService) { anyClass(ls); ls.Spec.LoadBalancerClass = new("ours") }
	headless := func(*v1alpha1.LocalService) {}
	setAffinity := func(s *corev1.Service) {
		s.Spec.SessionAffinity = "ClientIP"
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(10800))}}
	}
	setClass := func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("theirs") }
	removeOwner := func(s *corev1.Service) { s.OwnerReferences = nil }
	removeNode := func(s *corev1.Service) { delete(s.Annotations, v1alpha1.NodeAnnotationKey) }
	const nodes = 3
	for name, c := range map[string]struct {
		spec    func(*v1alpha1.LocalService)
		admit   func(*corev1.Service)
		updates bool
		// first are the writes of Services until the field is left, probes those after a while, and ended those after
		// admission has stopped.
		first, probes, ended int
	}{
		"at creation":                {headless, setAffinity, false, 2 * nodes, 0, 0},
		"at creation and at update":  {headless, setAffinity, true, 2 * nodes, nodes, nodes},
		"immutable":                  {ourClass, setClass, true, nodes, 0, 2 * nodes},
		"immutable, not in the spec": {anyClass, setClass, true, nodes, 0, 0},
		"the controller reference":   {headless, removeOwner, true, 2 * nodes, nodes, nodes},
		"the node":                   {headless, removeNode, true, 2 * nodes, nodes, nodes},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, append(testNodes(nodes), testLocalService(c.spec))...)
				on := f.contest(c.admit, c.updates)
				f.runLocalServices()
				f.expectServiceWrites("until it is left", c.first)
				isContested := c.probes+c.ended > 0
				if got := fmt.Sprint(f.recorded()); (strings.Count(got, "Warning Contested") == 1) != isContested {
					t.Errorf("events %s", got)
				}
				time.Sleep(time.Minute)
				f.expectServiceWrites("while it is left unchanged", 0)
				time.Sleep(time.Minute)
				f.expectServiceWrites("when it is tried again", c.probes)
				on.Store(false)
				time.Sleep(reconcile.MaxBackoff)
				f.expectServiceWrites("after admission has stopped", c.ended)
				f.edit(func(ls *v1alpha1.LocalService) { ls.Spec.PublishNotReadyAddresses = true })
				f.expectServiceWrites("when the spec has changed", nodes)
			})
		})
	}
}

// TestContestedParts: where admission changes a part of a field, all Services get the rest of that field when the spec
// changes, and not only the first one.
func TestContestedParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes, tried = 20, 10 // One more would be in vain.
		f := newFixture(t, append(testNodes(nodes), testLocalService())...)
		f.contest(func(s *corev1.Service) { s.Spec.Ports[0].AppProtocol = new("example.com/theirs") }, true)
		f.runLocalServices()
		f.expectServiceWrites("until it is left", nodes+tried)
		f.edit(func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].Port = 9090 })
		f.expectServiceWrites("when the spec has changed", nodes)
		for name, service := range f.services() {
			if service.Spec.Ports[0].Port != 9090 {
				t.Errorf("Service %s does not follow the spec: %+v", name, service)
			}
		}
		if got := fmt.Sprint(f.recorded()); !strings.Contains(got, "as it sets them: ports") {
			t.Errorf("events %s", got)
		}
	})
}
