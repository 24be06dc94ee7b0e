package main

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// withoutPermission makes the API server refuse to create EndpointSlices until that is permitted.
func (f *fixture) withoutPermission() (isPermitted *atomic.Bool) {
	isPermitted = &atomic.Bool{}
	f.kube.PrependReactor("create", "endpointslices", func(core.Action) (bool, runtime.Object, error) {
		err := errors.New(`User "u" cannot create resource "endpointslices" in API group "discovery.k8s.io" ` +
			`in the namespace "default"`)
		return !isPermitted.Load(), nil, apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), "x", err)
	})
	f.publish("1", "a")
	f.wantReady("False HostnamesNotPermitted 0/1, 2 Services")
	return isPermitted
}

// TestHostnamesNotPermitted: without the permission to write EndpointSlices, little is asked of the API server. The
// names are published within two minutes after it is granted.
func TestHostnamesNotPermitted(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), testNodes(1), func(w *fixture) {
		isPermitted := w.withoutPermission()
		time.Sleep(5 * time.Minute) // The backoff of the refused write grows.
		w.requests()
		time.Sleep(10 * time.Minute)
		if requests := w.requests(); len(requests) > 20 { // four for each attempt
			t.Errorf("%d requests in ten minutes without the permission", len(requests))
		}
		isPermitted.Store(true)
		time.Sleep(reconcile.MaxBackoff)
		w.want("once it is permitted", "a=10.0.0.1")
		w.wantReady("True HostnamesInPlace 1/1, 2 Services")
	})
}

// TestHostnamesContested: a copy that an admission webhook changes counts as refused: it is reported, and tried again
// less and less often.
func TestHostnamesContested(t *testing.T) {
	nodes := []runtime.Object{testNode("a"), testNode("b")}
	inHostnamesWorld(t, testLocalService(hostnamesMode), nodes, func(w *fixture) {
		var isMutated atomic.Bool
		isMutated.Store(true)
		for _, verb := range []string{"create", "update"} {
			w.kube.PrependReactor(verb, "endpointslices", func(a core.Action) (bool, runtime.Object, error) {
				if slice := a.(core.CreateAction).GetObject().(*discoveryv1.EndpointSlice); isMutated.Load() {
					slice.Endpoints[0].Addresses = []string{"10.9.9.9"}
				}
				return false, nil, nil
			})
		}
		w.publish("1", "a")
		w.want("first", "a=10.9.9.9")
		w.wantReady("False WriteFailed 0/2, 2 Services")
		w.writes()
		time.Sleep(time.Minute)
		if got := w.writes(); len(got) > 4 {
			t.Errorf("it is written too often: %q", got)
		}
		isMutated.Store(false)
		w.publish("1", "a", "b")
		time.Sleep(2 * reconcile.MaxBackoff)
		w.want("once it is gone", "a=10.0.0.1", "b=10.0.0.2")
		w.wantReady("True HostnamesInPlace 2/2, 2 Services")
	})
}

// TestCopyDeletedUnobserved: a copy that somebody deletes before the cache has observed it is recreated, although the
// watch sends neither event.
func TestCopyDeletedUnobserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, testNode("a"), testLocalService(hostnamesMode))
		var mu sync.Mutex
		var silent []*watch.FakeWatcher
		w.kube.PrependWatchReactor("endpointslices", func(a core.Action) (bool, watch.Interface, error) {
			mu.Lock()
			defer mu.Unlock()
			fake := watch.NewFake()
			selector := a.(core.WatchAction).GetWatchRestrictions().Labels.String()
			if strings.Contains(selector, v1alpha1.HostnamesLabelKey) {
				silent = append(silent, fake)
			}
			return true, fake, nil
		})
		w.runAll()
		w.publish("1", "a")
		silent[0].Add(w.slice(sourceName + "-1"))
		settle()
		w.want("published", "a=10.0.0.1")
		w.remove(w.slice(sourceName + "-1-named"))
		silent[0].Error(&apierrors.NewResourceExpired("too old resource version").ErrStatus)
		time.Sleep(20 * time.Second)
		w.want("after the copy was deleted", "a=10.0.0.1")
	})
}
