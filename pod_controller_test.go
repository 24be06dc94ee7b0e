package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	core "k8s.io/client-go/testing"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/app"
	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/testing/simulation"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

var podKey = types.NamespacedName{Namespace: "default", Name: "p"}

// newPods makes a controller with filled caches.
func (f *fixture) newPods() *podController {
	f.t.Helper()
	c := newPodController(f.deps)
	f.fill(c.loop)
	return c
}

func testPod(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name),
			ResourceVersion: "1", Labels: map[string]string{"app": "demo"}},
		Spec:   corev1.PodSpec{NodeName: "node1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, e := range edit {
		e(p)
	}
	return p
}

func withLabels(labels map[string]string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = maps.Clone(labels) }
}

// TestPodsSyncWrites: a sync writes the label if a LocalService, or the flag, asks for it.
func TestPodsSyncWrites(t *testing.T) {
	label := func(value string) []string {
		return []string{fmt.Sprintf(`patch pods p {"metadata":{"labels":{"vm/rack":%q},"uid":"uid-p"}}`, value)}
	}
	corrected := []string{
		`patch pods p {"metadata":{"labels":{"vm/rack":"node1"},"resourceVersion":"1","uid":"uid-p"}}`}
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
				f := newFixture(t, c.all, c.objects...)
				controller := f.newPods()
				if err := controller.sync(t.Context(), podKey); err != nil {
					t.Errorf("sync: %v", err)
				}
				expect(t, "writes", c.writes, f.writes())
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
		"an escape":                {"example.com/v1", "\x1b[31mRed\nX", nil, false, `because \x1b[31mRed\nX owner`},
		"a Node, of a static pod":  {"v1", "Node", nil, false, ""},
		"the owner is gone":        {"apps/v1", "ReplicaSet", nil, false, "not found"},
		"the owner cannot be read": {"apps/v1", "ReplicaSet", replicaSet(selector()), true, "forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, true, testPod("p", func(p *corev1.Pod) {
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
				if err := f.newPods().sync(t.Context(), podKey); err != nil {
					t.Error(err)
				}
				events, writes := strings.Join(f.recorded(), "\n"), f.writes()
				isTold := strings.Contains(events, c.event) && strings.Contains(events, "rack1") &&
					strings.Contains(events, words.Printable(c.kind)+" owner") &&
					strings.Contains(events, "-node-label-key") && !strings.Contains(events, "\x1b")
				if c.event == "" && (events != "" || len(writes) != 1) ||
					c.event != "" && (!isTold || len(writes) > 0) {
					t.Errorf("writes %v, events %q", writes, events)
				}
			})
		})
	}
}

// TestPodsAnswers: what becomes of an answer of the API server. Admission may store another label than it is asked to.
// How often it is tried again then is shown by the histories node-label-changed-by-admission and
// node-label-stripped-by-admission.
func TestPodsAnswers(t *testing.T) {
	pods := corev1.Resource("pods")
	otherUID := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil)
	otherUID.ErrStatus.Details.Causes = []metav1.StatusCause{{Field: "metadata.uid"}}
	for name, c := range map[string]struct {
		err    error
		stored string // the label in the answer, if there is no error
		fails  string // part of the error of sync, "" for none
		event  string // part of it, "" for none
	}{
		"gone":                      {apierrors.NewNotFound(pods, "p"), "", "", ""},
		"another pod by now":        {otherUID, "", "", ""},
		"somebody else was quicker": {apierrors.NewConflict(pods, "p", errors.New("modified")), "", "modified", ""},
		"refused by admission": {apierrors.NewForbidden(pods, "p", errors.New("labels are frozen")), "", "",
			"labels are frozen"},
		"refused by a policy": {apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p",
			nil), "", "", "is invalid"},
		"a webhook that is down": {apierrors.NewInternalError(errors.New("failed calling webhook")), "", "",
			"failed calling webhook"},
		"server in trouble":    {apierrors.NewServiceUnavailable("etcd is slow"), "", "etcd is slow", ""},
		"stored":               {nil, "node1", "", ""},
		"stored as another":    {nil, "frozen", "", `("frozen"): exempt`},
		"stored without value": {nil, "", "", `(""): exempt`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, true, testPod("p"))
				f.kube.PrependReactor("patch", "pods", func(core.Action) (bool, runtime.Object, error) {
					return true, testPod("p", withLabels(map[string]string{"vm/rack": c.stored})), c.err
				})
				err := f.newPods().sync(t.Context(), podKey)
				if message := fmt.Sprint(err); (err == nil) != (c.fails == "") || err != nil &&
					(!strings.Contains(message, c.fails) ||
						!strings.Contains(message, "set the label vm/rack of pod default/p")) {
					t.Errorf("sync: %v, want %q and what was attempted", err, c.fails)
				}
				got := strings.Join(f.recorded(), "\n")
				if (got == "") != (c.event == "") || !strings.Contains(got, c.event) {
					t.Errorf("events %q, want %q", got, c.event)
				}
			})
		})
	}
}

// startPods runs the controller of pods.
func (c *cluster) startPods() {
	c.t.Helper()
	c.run(func(deps app.Dependencies) func(context.Context) {
		pods := newPodController(deps)
		return func(ctx context.Context) { pods.loop.Run(ctx, 4, pods.keys) }
	})
}

// labelOf returns the node label of a pod as the API server has it.
func (c *cluster) labelOf(pod string) string {
	return get[*corev1.Pod](c, pod).Labels[v1alpha1.DefaultNodeLabelKey]
}

// TestPodsRefusedForOneCause: however many pods are refused for one cause, and how often, one event of their
// LocalService says so, and one line of the log. Another cause is another event.
func TestPodsRefusedForOneCause(t *testing.T) {
	var pods []simulation.Object
	for i := range 200 {
		pods = append(pods, testPod(fmt.Sprintf("p%d", i)))
	}
	inCluster(t, func(t *testing.T, c *cluster) {
		var isOther atomic.Bool
		c.answer("patch", "pods", func(name string) error {
			cause := errors.New("quota")
			if isOther.Load() {
				cause = errors.New("frozen")
			}
			return apierrors.NewForbidden(corev1.Resource("pods"), name, cause)
		})
		var errs atomic.Int64 // in the log
		c.run(func(deps app.Dependencies) func(context.Context) {
			pods := newPodController(deps)
			log := funcr.New(func(_, line string) {
				if strings.Contains(line, `"error"=`) {
					errs.Add(1)
				}
			}, funcr.Options{})
			return func(ctx context.Context) { pods.loop.Run(klog.NewContext(ctx, log), 4, pods.keys) }
		})
		time.Sleep(4 * time.Minute)
		const refused = "Warning NodeLabelRefused Pods cannot be reached"
		events := c.recorded()
		if len(events) != 1 || !strings.HasPrefix(events[0], refused) || !strings.HasSuffix(events[0], `pods "…" is `+
			`forbidden: quota`) {
			t.Errorf("events %q", events)
		}
		if n := errs.Load(); n != 1 {
			t.Errorf("%d errors in the log", n)
		}
		if got := c.sent("pods"); got < 4*len(pods) {
			t.Errorf("only %d writes", got)
		}
		isOther.Store(true)
		time.Sleep(3 * time.Minute)
		if events := c.recorded(); len(events) != 1 || !strings.HasSuffix(events[0], "frozen") {
			t.Errorf("events of another cause %q", events)
		}
	}, append(pods, testLocalService(), testLocalService(func(ls *v1alpha1.LocalService) { ls.Name = "second" }))...)
}

// TestPodsNotFound: a pod that is in the cache, and of which a webhook says that something is not found, is tried
// again.
func TestPodsNotFound(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		over := c.answerUntil("patch", "pods", func(string) error {
			return apierrors.NewNotFound(corev1.Resource("tenants"), "x")
		})
		c.startPods()
		time.Sleep(time.Minute)
		if got := c.sent("pods"); got < 2 || got > 4 {
			t.Errorf("%d writes in a minute", got)
		}
		over()
		time.Sleep(2 * time.Minute)
		if c.labelOf("p") != "node1" {
			t.Error("not labelled")
		}
	}, testLocalService(), testPod("p"))
}

// TestPodsChangedAgain: a label that something else changes as often as it is written is written once a second, and
// that is reported. A new pod of the same name does not wait.
func TestPodsChangedAgain(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.startPods()
		expect(t, "events of the first write", nil, c.recorded())
		c.writes()
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			edit(c, "p", func(p *corev1.Pod) { p.Labels["vm/rack"] = "x" })
		}
		if got := len(c.writes()); got < 9 || got > 11 {
			t.Errorf("%d writes in 10 s, want one a second", got)
		}
		if events := c.recorded(); len(events) != 1 || !strings.Contains(events[0], "NodeLabelContested") {
			t.Errorf("events %q", events)
		}
		settle()
		edit(c, "p", func(p *corev1.Pod) { p.Labels["vm/rack"] = "x" })
		time.Sleep(100 * time.Millisecond)
		c.recorded()
		c.remove(testPod("p"))
		c.create(testPod("p"))
		time.Sleep(100 * time.Millisecond)
		expect(t, "events of its successor", nil, c.recorded())
		if c.labelOf("p") != "node1" {
			t.Error("its successor waits")
		}
	}, testLocalService(), testPod("p"))
}

// TestPodsEvents: an event causes one write for each pod that needs a label.
func TestPodsEvents(t *testing.T) {
	mine, other := testPod("mine"), testPod("other", withLabels(map[string]string{"app": "other"}))
	labelled := testPod("labelled", withLabels(map[string]string{"app": "demo", "vm/rack": "node1"}))
	elsewhere := testPod("elsewhere", func(p *corev1.Pod) { p.Namespace = "other" })
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	selecting := func(app string) func(*v1alpha1.LocalService) {
		return func(ls *v1alpha1.LocalService) { ls.Spec.Selector["app"] = app }
	}
	ended := func(phase corev1.PodPhase) *corev1.Pod {
		return testPod(strings.ToLower(string(phase)), func(p *corev1.Pod) { p.Status.Phase = phase })
	}
	ls, named := testLocalService(), func(ls *v1alpha1.LocalService) { ls.Name = "second" }
	for name, test := range map[string]struct {
		before []simulation.Object
		event  func(c *cluster)
		want   []string
	}{
		"pod of a LocalService": {[]simulation.Object{ls}, func(c *cluster) { c.create(mine) }, []string{"mine"}},
		"pod of two LocalServices": {[]simulation.Object{ls, testLocalService(named)},
			func(c *cluster) { c.create(mine) }, []string{"mine"}},
		"pod of none":          {[]simulation.Object{ls}, func(c *cluster) { c.create(other) }, nil},
		"pod that is labelled": {[]simulation.Object{ls}, func(c *cluster) { c.create(labelled) }, nil},
		"label edited by hand": {[]simulation.Object{ls, labelled}, func(c *cluster) {
			edit(c, "labelled", func(p *corev1.Pod) { p.Labels["vm/rack"] = "x" })
		}, []string{"labelled"}},
		"pod deleted": {[]simulation.Object{ls, labelled}, func(c *cluster) { c.remove(labelled) }, nil},
		"LocalService created": {[]simulation.Object{namespace, mine, other, elsewhere, labelled},
			func(c *cluster) { c.create(ls) }, []string{"mine"}},
		"LocalService created for pods that have ended": {
			[]simulation.Object{ended(corev1.PodSucceeded), ended(corev1.PodFailed)},
			func(c *cluster) { c.create(ls) }, nil},
		"LocalService that selects others now": {
			[]simulation.Object{namespace, testLocalService(selecting("x")), mine, other, elsewhere, labelled},
			func(c *cluster) { edit(c, "demo", selecting("demo")) }, []string{"mine"}},
		"LocalService deleted": {[]simulation.Object{testLocalService(selecting("x")), mine},
			func(c *cluster) { c.remove(ls) }, nil},
		"the LocalService of a labelled pod deleted": {[]simulation.Object{ls, labelled},
			func(c *cluster) { c.remove(ls) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *cluster) {
				c.startPods()
				expect(t, "writes at rest", nil, c.writes())
				test.event(c)
				settle()
				var want []string
				for _, pod := range test.want {
					want = append(want, "update pods "+pod)
				}
				expect(t, "writes", want, c.writes())
			}, test.before...)
		})
	}
}

// TestPodLabelIsMeasured: the time from the scheduling of a pod until its label is written is measured, also if that
// takes several attempts; for a new LocalService, from its creation. A label that is corrected does not count.
func TestPodLabelIsMeasured(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		scheduled := func(name string, age time.Duration, edit ...func(*corev1.Pod)) *corev1.Pod {
			return testPod(name, append(edit, func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue,
					LastTransitionTime: metav1.NewTime(time.Now().Add(-age))}}
			})...)
		}
		time.Sleep(time.Hour)
		c.create(scheduled("before", time.Hour))
		expect := measured(t, metrics.PodLabel)
		c.startPods()
		expect("the start", 0, 0, 0)
		c.create(scheduled("a", 0))
		expect("a pod is scheduled", 1, 0, time.Second)
		edit(c, "a", func(p *corev1.Pod) { delete(p.Labels, "vm/rack") })
		expect("its label is removed", 0, 0, 0)
		c.create(testPod("fixed"))
		expect("a pod that was created with its node", 0, 0, 0)
		other := map[string]string{"app": "other"}
		c.create(scheduled("other", 0, withLabels(other)))
		expect("a pod that nothing selects", 0, 0, 0)
		time.Sleep(5 * time.Minute)
		c.create(testLocalService(func(ls *v1alpha1.LocalService) { ls.Name, ls.Spec.Selector = "other", other }))
		expect("it is selected later", 1, 0, time.Second)
		over := c.refuseUntil("patch", "pods")
		c.create(scheduled("b", 0))
		expect("a label is refused", 0, 0, 0)
		over()
		time.Sleep(time.Minute)
		expect("the label is not refused any more", 1, 10*time.Second, 12*time.Second)
	}, testLocalService())
}
