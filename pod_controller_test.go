package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/metrics"
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
	corrected := []string{`patch pods p {"metadata":{"labels":{"vm/rack":"node1"},"resourceVersion":"1","uid":"uid-p"}}`}
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
			testPod("p", withLabels(map[string]string{"app": "demo", "vm/rack": "node2"}))}, corrected},
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

// TestPodsOfOwners: a label with another value is left to the pod's controller if that selects by it, or may do so: it
// would release the pod and make another one, again and again.
func TestPodsOfOwners(t *testing.T) {
	selector := func(keys ...string) *metav1.LabelSelector {
		out := &metav1.LabelSelector{MatchLabels: map[string]string{}}
		for _, key := range keys {
			out.MatchLabels[key] = "rack1"
		}
		return out
	}
	meta := metav1.ObjectMeta{Namespace: "default", Name: "owner", UID: "uid-owner"}
	replicaSet := func(s *metav1.LabelSelector) runtime.Object {
		return &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: s}}
	}
	for name, c := range map[string]struct {
		apiVersion, kind string
		owner            runtime.Object
		isRefused        bool   // to the controller
		event            string // part of it; "" if the label is written
	}{
		"ReplicaSet":               {"apps/v1", "ReplicaSet", replicaSet(selector("app")), false, ""},
		"ReplicaSet, by the label": {"apps/v1", "ReplicaSet", replicaSet(selector("app", "vm/rack")), false, "selects"},
		"a kind that is not known": {"example.com/v1", "CloneSet", nil, false, "(example.com/v1) may select"},
		"a Node, of a static pod":  {"v1", "Node", nil, false, ""},
		"the owner is gone":        {"apps/v1", "ReplicaSet", nil, false, "not found"},
		"the owner cannot be read": {"apps/v1", "ReplicaSet", replicaSet(selector()), true, "forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, controller := newPodFixture(t, true, testPod("p", func(p *corev1.Pod) {
					p.Labels["vm/rack"] = "rack1"
					p.OwnerReferences = []metav1.OwnerReference{{APIVersion: c.apiVersion, Kind: c.kind, Name: "owner",
						UID: "uid-owner", Controller: new(true)}}
				}))
				if c.owner != nil {
					if err := f.kube.Tracker().Add(c.owner); err != nil {
						t.Fatal(err)
					}
				}
				if c.isRefused {
					f.kube.PrependReactor("get", "*", func(core.Action) (bool, runtime.Object, error) {
						return true, nil, apierrors.NewForbidden(corev1.Resource("x"), "owner", nil)
					})
				}
				if err := controller.sync(t.Context(), podKey); err != nil {
					t.Error(err)
				}
				events, writes := strings.Join(f.recorded(), "\n"), f.writes()
				isTold := strings.Contains(events, c.event) && strings.Contains(events, "rack1") &&
					strings.Contains(events, c.kind+" owner") && strings.Contains(events, "-node-label-key")
				if c.event == "" && (events != "" || len(writes) != 1) ||
					c.event != "" && (!isTold || len(writes) > 0) {
					t.Errorf("writes %v, events %q", writes, events)
				}
			})
		})
	}
}

// TestPodsContested: admission that sets the label to another value makes it refused. It is reported, and tried again
// with a backoff.
func TestPodsContested(t *testing.T) {
	for _, value := range []string{"frozen", ""} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, testLocalService(), testPod("p"))
			var over atomic.Bool
			f.kube.PrependReactor("patch", "pods", func(core.Action) (bool, runtime.Object, error) {
				if over.Load() {
					return false, nil, nil
				}
				p := testPod("p", withLabels(map[string]string{"app": "demo", "vm/rack": value}),
					func(p *corev1.Pod) { p.Annotations = map[string]string{"at": time.Now().String()} })
				f.set(p)
				return true, p, nil
			})
			controller := f.newPods()
			f.watch()
			f.run(controller.Run)
			time.Sleep(15 * time.Second)
			events := f.recorded()
			if got := len(f.writes()); got > 2 || len(events) == 0 || len(events) > 2 ||
				!strings.Contains(events[0], fmt.Sprintf("(%q): exempt", value)) {
				t.Errorf("%d writes in 15 s, events %q", got, events)
			}
			over.Store(true)
			time.Sleep(2 * time.Minute)
			if p := controller.caches.Pods.Get("default", "p"); !p.Labelled() {
				t.Error("the label is wrong after the admission is gone")
			}
			f.expect("events", nil, f.recorded())
		})
	}
}

// TestPodsNotFound: a pod that is in the cache, and of which a webhook says that something is not found, is tried
// again.
func TestPodsNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, testLocalService(), testPod("p"))
		var over atomic.Bool
		f.kube.PrependReactor("patch", "pods", func(core.Action) (bool, runtime.Object, error) {
			return !over.Load(), nil, apierrors.NewNotFound(corev1.Resource("tenants"), "x")
		})
		controller := f.newPods()
		f.watch()
		f.run(controller.Run)
		time.Sleep(time.Minute)
		if got := len(f.writes()); got < 2 || got > 4 {
			t.Errorf("%d writes in a minute", got)
		}
		over.Store(true)
		time.Sleep(2 * time.Minute)
		if p := controller.caches.Pods.Get("default", "p"); !p.Labelled() {
			t.Error("not labelled")
		}
	})
}

// TestPodsChangedAgain: a label that something else changes as often as it is written is written once a second, and
// that is reported. A new pod of the same name does not wait.
func TestPodsChangedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrong := func() *corev1.Pod { return testPod("p", withLabels(map[string]string{"app": "demo", "vm/rack": "x"})) }
		f := newFixture(t, testLocalService(), testPod("p"))
		controller := f.newPods()
		f.watch()
		f.run(controller.Run)
		f.expect("events of the first write", nil, f.recorded())
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			f.set(wrong())
		}
		if got := len(f.writes()); got < 9 || got > 11 {
			t.Errorf("%d writes in 10 s, want one a second", got)
		}
		if events := f.recorded(); len(events) < 9 || !strings.Contains(events[0], "NodeLabelContested") {
			t.Errorf("events %q", events)
		}
		settle()
		f.recorded()
		f.remove(wrong())
		f.set(testPod("p"))
		synctest.Wait()
		f.expect("events of its successor", nil, f.recorded())
		if p := controller.caches.Pods.Get("default", "p"); !p.Labelled() {
			t.Error("its successor waits")
		}
	})
}

// TestPodsEvents: an event causes one write for each pod that needs a label.
func TestPodsEvents(t *testing.T) {
	version := regexp.MustCompile(`"resourceVersion":"[0-9]+",`)
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
				writes := f.writes()
				for i := range writes {
					writes[i] = version.ReplaceAllString(writes[i], "")
				}
				f.expect("writes", want, writes)
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
			errors.New("modified")), "", false},
		"refused by admission": {apierrors.NewForbidden(pods, "p", errors.New("labels are frozen")),
			"", true},
		"refused by a policy": {apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p",
			nil), "", true},
		"a webhook that is down": {apierrors.NewInternalError(errors.New("failed calling webhook")), "", true},
		"server in trouble":      {apierrors.NewServiceUnavailable("etcd is slow"), "etcd is slow", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, controller := newPodFixture(t, true, testPod("p"))
				f.kube.PrependReactor("patch", "pods", func(core.Action) (bool, runtime.Object, error) {
					return true,
						nil, c.err
				})
				err := controller.sync(t.Context(), podKey)
				if (err == nil) != (c.fails == "") || err != nil &&
					!(strings.Contains(err.Error(), c.fails) && strings.Contains(err.Error(), "set the label vm/rack of pod default/p")) {
					t.Errorf("sync: %v, want %q and what was attempted", err, c.fails)
				}
				if got := f.recorded(); (len(got) == 1) != c.event {
					t.Errorf("events %v", got)
				}
			})
		})
	}
}

// TestPodLabelIsMeasured: the time from the scheduling of a pod until its label is written is measured, also if that
// takes several attempts; for a new LocalService, from its creation. A label that is corrected does not count.
func TestPodLabelIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheduled := func(name string, age time.Duration, edit ...func(*corev1.Pod)) *corev1.Pod {
			return testPod(name, append(edit, func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue,
					LastTransitionTime: metav1.NewTime(time.Now().Add(-age))}}
			})...)
		}
		f := newFixture(t, testLocalService(), scheduled("before", time.Hour))
		c := f.newPods()
		expect := measured(t, metrics.PodLabel)
		f.watch()
		f.run(c.Run)
		expect("the start", 0, 0, 0)
		f.set(scheduled("a", 0))
		expect("a pod is scheduled", 1, 0, time.Second)
		f.set(scheduled("a", 3*time.Second))
		expect("its label is removed", 0, 0, 0)
		f.set(testPod("fixed"))
		expect("a pod that was created with its node", 0, 0, 0)
		other := withLabels(map[string]string{"app": "other"})
		f.set(scheduled("other", 0, other))
		expect("a pod that nothing selects", 0, 0, 0)
		time.Sleep(5 * time.Minute)
		f.set(testLocalService(func(ls *v1alpha1.LocalService) {
			ls.Name, ls.UID, ls.Spec.Selector, ls.CreationTimestamp = "other", "other", map[string]string{"app": "other"},
				metav1.Now()
		}))
		expect("it is selected later", 1, 0, time.Second)
		over := refuseUntil(f, "patch", "pods")
		f.set(scheduled("b", 0))
		expect("a label is refused", 0, 0, 0)
		over.Store(true)
		time.Sleep(time.Minute)
		expect("the label is not refused any more", 1, 10*time.Second, 12*time.Second)
	})
}
