package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// refuse has the API server say no to what matches: "delete services demo", or "" for the name of any.
func (w *hostnamesWorld) refuse(verb, resource, name string) {
	synctest.Wait() // Nobody must be asking now.
	w.kube.PrependReactor(verb, resource, func(a core.Action) (bool, runtime.Object, error) {
		if named, ok := a.(interface{ GetName() string }); ok && name != "" && named.GetName() != name {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "x", errors.New("no"))
	})
}

func (w *hostnamesWorld) removeSlice(suffix string) {
	w.t.Helper()
	w.remove(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: sourceName + "-" + suffix,
		Namespace: "default"}})
}

// backOff has a change of Service demo refused for so long that it is tried every 2 minutes only.
func (w *hostnamesWorld) backOff() {
	w.t.Helper()
	w.refuse("patch", "services", "")
	w.edit(func(ls *v1alpha1.LocalService) {
		ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: map[string]string{"team": "a"}}
	})
	time.Sleep(5 * time.Minute)
}

// TestChangeOfModeWhileNamesAreRefused: the Service of a node stays while the name that follows it is not published as
// the pods are, because that is refused.
func TestChangeOfModeWhileNamesAreRefused(t *testing.T) {
	inHostnamesWorld(t, testLocalService(), []runtime.Object{testNode("a")}, func(w *hostnamesWorld) {
		w.set(testSlice("demo-a", true))
		settle()
		w.edit(hostnamesMode)
		w.publish("1", "a!")
		w.refuse("update", "endpointslices", "")
		w.publish("1", "a")
		time.Sleep(10 * time.Minute)
		w.want("refused", "a=10.0.0.1!")
		w.service("demo-a")
	})
}

// TestChangeOfModeWhileNamesStay: the names are kept up to date as long as they are there, be it that their deletion is
// refused.
func TestChangeOfModeWhileNamesStay(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a")}, func(w *hostnamesWorld) {
		w.publish("1", "a")
		w.refuse("delete", "services", "demo")
		w.edit(func(ls *v1alpha1.LocalService) { ls.Spec.Mode = "" })
		w.set(testSlice("demo-a", true))
		time.Sleep(5 * time.Minute)
		w.publish("1", "a!")
		w.want("the name is still there", "a=10.0.0.1!")
	})
}

// TestHostnamesGoWhileServicesAreRefused: a copy goes after its source, whatever is refused of the Services.
func TestHostnamesGoWhileServicesAreRefused(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a"), testNode("b")},
		func(w *hostnamesWorld) {
			w.publish("1", "a")
			w.publish("2", "b")
			w.backOff()
			w.removeSlice("2")
			time.Sleep(20 * time.Second)
			w.want("20 seconds after its source", "a=10.0.0.1")
		})
}

// TestHostnamesAreTriedAgainWhileServicesAreRefused: what the API server was too busy for is made a moment later.
func TestHostnamesAreTriedAgainWhileServicesAreRefused(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a")}, func(w *hostnamesWorld) {
		var busy atomic.Bool
		w.kube.PrependReactor("update", "endpointslices", func(core.Action) (bool, runtime.Object, error) {
			return busy.Swap(false), nil, apierrors.NewServiceUnavailable("busy")
		})
		w.publish("1", "a")
		w.backOff()
		busy.Store(true)
		w.publish("1", "a!") // and 3 seconds
		w.want("a moment later", "a=10.0.0.1!")
	})
}

// TestHostnamesOneDeletionIsRefused: it does not hold up the others.
func TestHostnamesOneDeletionIsRefused(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a"), testNode("b"), testNode("c")},
		func(w *hostnamesWorld) {
			for i, node := range []string{"a", "b", "c"} {
				w.publish(fmt.Sprint(i), node)
			}
			w.refuse("delete", "endpointslices", sourceName+"-1-named")
			w.removeSlice("1")
			time.Sleep(5 * time.Minute)
			w.removeSlice("2")
			time.Sleep(20 * time.Second)
			w.want("20 seconds after its source", "a=10.0.0.1", "b=10.0.0.1")
		})
}

// TestHostnamesSourcesGoAgainAndAgain: copies go although there is, now and then, nothing to copy for a moment.
func TestHostnamesSourcesGoAgainAndAgain(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a")}, func(w *hostnamesWorld) {
		w.publish("0", "a")
		for i := range 10 {
			w.removeSlice(fmt.Sprint(i))
			time.Sleep(time.Second)
			w.publish(fmt.Sprint(i+1), "a") // and 3 seconds
		}
		if got := w.names(); len(got) > 3 {
			t.Errorf("copies pile up: %q", got)
		}
	})
}

// TestHostnamesSourceGoesTwice: a copy stays for a moment longer than its source each time.
func TestHostnamesSourceGoesTwice(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a"), testNode("b")},
		func(w *hostnamesWorld) {
			w.publish("1", "a")
			w.publish("2", "b")
			for range 2 {
				w.removeSlice("2")
				settle()
				w.want("for a moment", "a=10.0.0.1", "b=10.0.0.1")
				w.publish("2", "b")
				time.Sleep(10 * time.Second)
			}
		})
}

// TestHostnamesRefusedUntilCorrected: what was refused is tried at once when the spec is corrected.
func TestHostnamesRefusedUntilCorrected(t *testing.T) {
	ls := testLocalService(hostnamesMode, func(ls *v1alpha1.LocalService) { ls.Spec.GroupBy = "zone" })
	inHostnamesWorld(t, ls, []runtime.Object{testNode("a", "zone=bad")}, func(w *hostnamesWorld) {
		w.kube.PrependReactor("create", "endpointslices", func(a core.Action) (bool, runtime.Object, error) {
			slice := a.(core.CreateAction).GetObject().(*discoveryv1.EndpointSlice)
			return *slice.Endpoints[0].Hostname == "bad", nil, apierrors.NewForbidden(
				a.GetResource().GroupResource(), "x", errors.New("a policy allows no such hostname"))
		})
		w.publish("1", "a")
		w.wantReady("False WriteFailed 0/1, 2 Services")
		w.edit(func(ls *v1alpha1.LocalService) { ls.Spec.GroupBy = "" })
		w.want("corrected", "a=10.0.0.1")
		w.wantReady("True HostnamesInPlace 1/1, 2 Services")
	})
}

// TestHostnamesStoredOutOfSight: where admission takes the labels off by which copies are known, that is told, and not
// fought.
func TestHostnamesStoredOutOfSight(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a")}, func(w *hostnamesWorld) {
		var stored atomic.Pointer[discoveryv1.EndpointSlice] // The watch does not tell it.
		write := func(a core.Action) (bool, runtime.Object, error) {
			slice := a.(core.CreateAction).GetObject().(*discoveryv1.EndpointSlice).DeepCopy()
			if !strings.HasSuffix(slice.Name, "-named") {
				return false, nil, nil
			}
			if a.GetVerb() == "create" && stored.Load() != nil {
				return true, nil, apierrors.NewAlreadyExists(discoveryv1.Resource("endpointslices"), slice.Name)
			}
			delete(slice.Labels, v1alpha1.HostnamesLabelKey)
			slice.UID, slice.ResourceVersion = "uid", w.nextVersion()
			stored.Store(slice)
			return true, slice, nil
		}
		w.kube.PrependReactor("create", "endpointslices", write)
		w.kube.PrependReactor("update", "endpointslices", write)
		w.kube.PrependReactor("get", "endpointslices", func(core.Action) (bool, runtime.Object, error) {
			return true, stored.Load(), nil
		})
		w.publish("1", "a")
		time.Sleep(5 * time.Minute)
		got := slices.DeleteFunc(w.writes(), func(s string) bool { return !strings.Contains(s, "-named") })
		if len(got) > 16 {
			t.Errorf("a fight: %d writes, such as %q", len(got), got[0])
		}
		w.wantReady("False WriteFailed 0/1, 2 Services")
	})
}

// TestNodeLabelsDoNotCutBackoff: a label of a node that changes all the time mends nothing that was refused.
func TestNodeLabelsDoNotCutBackoff(t *testing.T) {
	inHostnamesWorld(t, testLocalService(), nil, func(w *hostnamesWorld) {
		var tries atomic.Int64
		w.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
			tries.Add(1)
			return true, nil, apierrors.NewForbidden(corev1.Resource("services"), "x", errors.New("exceeded quota"))
		})
		for i := range 300 {
			w.set(testNode("a", fmt.Sprint("load=", i)))
			time.Sleep(time.Second)
		}
		if tries.Load() == 0 || tries.Load() > 8 { // 10 s, 20 s, ... 2 minutes later
			t.Errorf("%d tries within 5 minutes", tries.Load())
		}
	})
}

// TestHostnamesOfAServiceThatIsGone: while the watch of Services lags behind a deletion, no copies are made as fast as
// the garbage collector deletes them.
func TestHostnamesOfAServiceThatIsGone(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a")}, func(w *hostnamesWorld) {
		w.publish("1", "a")
		w.want("first", "a=10.0.0.1")
		copied := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: sourceName + "-1-named",
			Namespace: "default"}}
		var isGone atomic.Bool
		isGone.Store(true)
		w.kube.PrependReactor("list", "services", func(core.Action) (bool, runtime.Object, error) {
			return isGone.Load(), &corev1.ServiceList{}, nil
		})
		w.kube.PrependReactor("create", "endpointslices", func(core.Action) (bool, runtime.Object, error) {
			if isGone.Load() {
				time.AfterFunc(100*time.Millisecond, func() { w.remove(copied) })
			}
			return false, nil, nil
		})
		w.writes()
		w.remove(copied)
		time.Sleep(time.Minute)
		if got := w.requests(); len(got) > 40 {
			t.Errorf("%d requests within a minute", len(got))
		}
		isGone.Store(false)
		time.Sleep(2 * time.Minute)
		w.want("the Service is there", "a=10.0.0.1")
	})
}

// TestHostnamesContestedUntilCorrected: what admission has changed is written again at once when the spec changes.
func TestHostnamesContestedUntilCorrected(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a")}, func(w *hostnamesWorld) {
		var isMutated atomic.Bool
		isMutated.Store(true)
		w.kube.PrependReactor("create", "endpointslices", func(a core.Action) (bool, runtime.Object, error) {
			if isMutated.Load() {
				a.(core.CreateAction).GetObject().(*discoveryv1.EndpointSlice).Endpoints[0].Zone = new("other")
			}
			return false, nil, nil
		})
		w.publish("1", "a")
		w.wantReady("False Contested 1/1, 2 Services")
		isMutated.Store(false)
		w.edit(func(ls *v1alpha1.LocalService) { ls.Spec.PublishNotReadyAddresses = true })
		w.wantReady("True HostnamesInPlace 1/1, 2 Services")
	})
}
