package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	core "k8s.io/client-go/testing"
	componentmetrics "k8s.io/component-base/metrics"

	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

var podKey = types.NamespacedName{Namespace: "default", Name: "p"}

func newPodFixture(t *testing.T, all bool, objects ...runtime.Object) (*fixture, *podController) {
	t.Helper()
	f := newFixture(t, objects...)
	f.deps.Options.LabelAllPods = all
	f.deps.Caches = f.newCaches(all)
	c := f.newPods()
	end(t, c.loop)
	f.watch()
	return f, c
}

func (f *fixture) newPods() *podController {
	f.t.Helper()
	c, err := newPodController(f.deps)
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

func TestPodsSyncWrites(t *testing.T) {
	label := func(value string) []string {
		return []string{fmt.Sprintf(`patch pods p {"metadata":{"labels":{"vm/rack":%q},"uid":"uid-p"}}`, value)}
	}
	long := strings.Repeat("n", 70)
	other := testLocalService(func(ls *v1alpha1.LocalService) {
		ls.Name, ls.Spec.Selector["tier"] = "other", "x"
	})
	for name, c := range map[string]struct {
		all     bool
		objects []runtime.Object
		writes  []string
	}{
		"scheduled and selected": {false, []runtime.Object{testLocalService(), testPod("p")}, label("node1")},
		"a stale label of the template": {false, []runtime.Object{testLocalService(),
			testPod("p", withLabels(map[string]string{"app": "demo", "vm/rack": "node2"}))}, label("node1")},
		"not scheduled yet": {false, []runtime.Object{testLocalService(),
			testPod("p", func(p *corev1.Pod) { p.Spec.NodeName = "" })}, nil},
		"no labels": {false, []runtime.Object{testLocalService(),
			testPod("p", withLabels(nil))}, nil},
		"no labels, and all are labelled": {true, []runtime.Object{testPod("p", withLabels(nil))}, label("node1")},
		"selected in another namespace": {false, []runtime.Object{
			testLocalService(func(ls *v1alpha1.LocalService) { ls.Namespace = "other" }), testPod("p")}, nil},
		"selected only in mode Hostnames, beside one that is invalid": {false, []runtime.Object{
			testLocalService(hostnamesMode), testLocalService(func(ls *v1alpha1.LocalService) {
				ls.Name, ls.Spec.Selector = "other", nil
			}), testPod("p")}, nil},
		"selected by one of two": {false, []runtime.Object{other, testLocalService(), testPod("p")}, label("node1")},
		"terminating": {false, []runtime.Object{testLocalService(), testPod("p", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = new(metav1.Now()), []string{"x"}
		})}, label("node1")},
		"a node whose name is longer than a label": {true, []runtime.Object{testPod("p",
			func(p *corev1.Pod) { p.Spec.NodeName = long })},
			label(strings.Repeat("n", 52) + "-qudj3x2bm4")},
		"gone": {true, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, controller := newPodFixture(t, c.all, c.objects...)
				if err := controller.sync(t.Context(), podKey); err != nil {
					t.Errorf("sync: %v", err)
				}
				f.expect("writes", c.writes, f.writes())
			})
		})
	}
}

// TestPodsEvents: an event causes one write for each pod that needs a label.
func TestPodsEvents(t *testing.T) {
	mine, other := testPod("mine"), testPod("other", withLabels(map[string]string{"app": "other"}))
	elsewhere := testPod("elsewhere", func(p *corev1.Pod) { p.Namespace = "other" })
	labelled := testPod("labelled", withLabels(map[string]string{"app": "demo", "vm/rack": "node1"}))
	selecting := func(app string) *v1alpha1.LocalService {
		return testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.Selector["app"] = app })
	}
	second := testLocalService(func(ls *v1alpha1.LocalService) { ls.Name = "second" })
	for name, c := range map[string]struct {
		before []runtime.Object
		event  func(f *fixture)
		want   []string // pods
	}{
		"pod of a LocalService": {[]runtime.Object{selecting("demo")}, func(f *fixture) { f.set(mine) },
			[]string{"mine"}},
		"pod of two LocalServices": {[]runtime.Object{selecting("demo"), second}, func(f *fixture) { f.set(mine) },
			[]string{"mine"}},
		"pod of none":          {[]runtime.Object{selecting("demo")}, func(f *fixture) { f.set(other) }, nil},
		"pod that is labelled": {[]runtime.Object{selecting("demo")}, func(f *fixture) { f.set(labelled) }, nil},
		"label edited by hand": {[]runtime.Object{selecting("demo"), labelled}, func(f *fixture) {
			f.set(testPod("labelled", withLabels(map[string]string{"app": "demo", "vm/rack": "x"})))
		}, []string{"labelled"}},
		"pod deleted": {[]runtime.Object{selecting("demo"), labelled},
			func(f *fixture) { f.remove(labelled) }, nil},
		"LocalService created": {[]runtime.Object{mine, other, elsewhere, labelled},
			func(f *fixture) { f.set(selecting("demo")) }, []string{"mine"}},
		"LocalService that selects others now": {[]runtime.Object{selecting("x"), mine, other, elsewhere, labelled},
			func(f *fixture) { f.set(selecting("demo")) }, []string{"mine"}},
		"LocalService that has mode Services now, beside another": {[]runtime.Object{mine,
			testLocalService(hostnamesMode), testLocalService(func(ls *v1alpha1.LocalService) {
				ls.Name, ls.Spec.Selector["app"] = "second", "x"
			})}, func(f *fixture) { f.set(testLocalService()) }, []string{"mine"}},
		"LocalService deleted": {[]runtime.Object{selecting("x"), mine},
			func(f *fixture) { f.remove(selecting("x")) }, nil},
		"the LocalService of a labelled pod deleted": {[]runtime.Object{selecting("demo"), labelled},
			func(f *fixture) { f.remove(selecting("demo")) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, c.before...)
				controller := f.newPods()
				f.watch()
				f.run(controller.Run)
				f.expect("writes at rest", nil, f.writes())
				c.event(f)
				settle()
				var want []string
				for _, pod := range c.want {
					const patch = `patch pods %s {"metadata":{"labels":{"vm/rack":"node1"},"uid":"uid-%[1]s"}}`
					want = append(want, fmt.Sprintf(patch, pod))
				}
				f.expect("writes", want, f.writes())
			})
		})
	}
}

// TestPodsFromBefore: pods that exist when the controller starts are labelled, and so are those that were created
// while it was a standby.
func TestPodsFromBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, testLocalService(), testPod("a"), testPod("b"), testPod("c", withLabels(nil)))
		controller := f.newPods()
		f.watch()
		f.set(testPod("d"))
		settle()
		f.expect("writes of a standby", nil, f.writes())
		f.run(controller.Run)
		if got := len(f.writes()); got != 3 {
			t.Errorf("%d writes, want 3", got)
		}
	})
}

func TestPodsErrors(t *testing.T) {
	pods := corev1.Resource("pods")
	otherUID := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil)
	otherUID.ErrStatus.Details.Causes = []metav1.StatusCause{{Field: "metadata.uid"}}
	for name, c := range map[string]struct {
		err   error
		fails string // part of the error of sync, "" for none
		event bool
	}{
		"gone":               {apierrors.NewNotFound(pods, "p"), "", false},
		"another pod by now": {otherUID, "", false},
		"somebody else was quicker, of which there is an event": {apierrors.NewConflict(pods, "p",
			errors.New("modified")), "modified", false},
		"refused by admission": {apierrors.NewForbidden(pods, "p", errors.New("labels are frozen")),
			"", true},
		"refused by a policy": {apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p",
			nil), "", true},
		"server in trouble": {apierrors.NewInternalError(errors.New("etcd is slow")), "etcd is slow", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, controller := newPodFixture(t, true, testPod("p"))
				f.kube.PrependReactor("patch", "pods", func(core.Action) (bool, runtime.Object, error) {
					return true,
						nil, c.err
				})
				err := controller.sync(t.Context(), podKey)
				if reconcile.IsStale(err) != apierrors.IsConflict(c.err) { // It is not worth an operator's attention.
					t.Errorf("sync: %v is stale: %t", err, reconcile.IsStale(err))
				}
				if (err == nil) != (c.fails == "") || err != nil &&
					!(strings.Contains(err.Error(), c.fails) && strings.Contains(err.Error(), "label pod default/p")) {
					t.Errorf("sync: %v, want %q and what was attempted", err, c.fails)
				}
				if got := f.recorded(); (len(got) == 1) != c.event {
					t.Errorf("events %v", got)
				}
			})
		})
	}
}

// TestPodsLabelledAtBinding: a metric shows, by newly scheduled pods, whether an admission policy labels them.
func TestPodsLabelledAtBinding(t *testing.T) {
	registry := componentmetrics.NewKubeRegistry()
	registry.MustRegister(metrics.PodsLabelledAtBinding)
	synctest.Test(t, func(t *testing.T) {
		labelled := withLabels(map[string]string{"vm/rack": "node1"})
		f := newFixture(t, testPod("before"), testPod("labelled-before", labelled), testLocalService())
		c := f.newPods()
		f.watch()
		f.run(c.Run)
		pods := 0
		see := func(want float64, edit ...func(*corev1.Pod)) {
			t.Helper()
			pods++
			f.set(testPod(fmt.Sprint("p", pods), edit...))
			settle()
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			if got := families[0].GetMetric()[0].GetGauge().GetValue(); got != want {
				t.Errorf("pod %d: labelled at binding: %v, want %v", pods, got, want)
			}
		}
		see(1, labelled)
		see(1, func(p *corev1.Pod) { p.Spec.NodeName = strings.Repeat("n", 70) }) // not labelled by the policy
		see(0)
		see(1, labelled)
	})
}

// TestPodLabelIsMeasured: the time from the event that a pod is scheduled until its label is written is measured, also
// if that takes several attempts. Pods that existed before do not count.
func TestPodLabelIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, testLocalService(), testPod("before"))
		c := f.newPods()
		var expect func(what string, wantCount uint64, least, most time.Duration)
		c.waits, expect = latencies(t)
		f.watch()
		f.run(c.Run)
		expect("the start", 0, 0, 0)
		f.set(testPod("a"))
		expect("a pod is scheduled", 1, 0, 10*time.Millisecond)
		f.set(testPod("other", withLabels(map[string]string{"app": "other"})))
		expect("a pod that nothing selects", 0, 0, 0)
		over := refuseUntil(f, "patch", "pods")
		f.set(testPod("b"))
		f.set(testPod("c"))
		expect("labels are refused", 0, 0, 0)
		f.remove(testPod("c"))
		f.set(testPod("c", func(p *corev1.Pod) { p.UID, p.DeletionTimestamp = "second", new(metav1.Now()) }))
		settle()
		over.Store(true)
		time.Sleep(time.Minute)
		// The backoff belongs to a pod, not to its name.
		expect("the labels are not refused any more", 2, 20*time.Second, 21*time.Second)
	})
}
