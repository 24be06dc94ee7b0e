package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/app"
	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/internal/testing/simulation"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// testPod returns a pod on node1 that has no node label yet.
func testPod(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	return objects.Edit(objects.Pod(name, "node1", objects.Unlabelled), edit...)
}

func selecting(app string) func(*v1alpha1.LocalService) {
	return func(ls *v1alpha1.LocalService) { ls.Spec.Selector["app"] = app }
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

// TestPodsLeft: a label with another value is left to the pod's controller if that selects by it, or may do so: it
// would release the pod and make another one, again and again. That is reported, and so are answers of the API server
// that will stay the same.
func TestPodsLeft(t *testing.T) {
	selecting := func(keys ...string) func(*cluster) {
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "owner"},
			Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{}}}}
		for _, key := range keys {
			set.Spec.Selector.MatchLabels[key] = "rack1"
		}
		return func(c *cluster) { c.create(set) }
	}
	answers := func(verb, resource string, err error) func(*cluster) {
		return func(c *cluster) { c.answer(verb, resource, func(string) error { return err }) }
	}
	invalid := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil)
	changed := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", field.ErrorList{
		field.Forbidden(field.NewPath("spec"), "pod updates may not change fields other than the image")})
	otherUID := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil)
	otherUID.ErrStatus.Details.Causes = []metav1.StatusCause{{Field: "metadata.uid"}}
	for name, test := range map[string]struct {
		apiVersion, kind string // of its controller
		prepare          func(*cluster)
		event            string // part of it, "" for none
		isWritten        bool
	}{
		"ReplicaSet":               {"apps/v1", "ReplicaSet", selecting("app"), "", true},
		"ReplicaSet, by the label": {"apps/v1", "ReplicaSet", selecting("app", "vm/rack"), "owner selects", false},
		"a kind that is not known": {"example.com/v1", "CloneSet", nil, "(example.com/v1) may select", false},
		"an escape":                {"example.com/v1", "\x1b[31mRed\nX", nil, `another: \x1b[31mRed\nX owner`, false},
		"adopted while the owner is read": {"apps/v1", "ReplicaSet", func(c *cluster) {
			selecting("app")(c)
			c.answer("get", "replicasets", func(string) error {
				edit(c, "p", func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "example.com/v1" })
				return nil
			})
		}, "(example.com/v1) may select", false},
		"the owner is gone": {"apps/v1", "ReplicaSet", nil, "not found", false},
		"the owner cannot be read": {"apps/v1", "ReplicaSet", answers("get", "replicasets",
			apierrors.NewForbidden(appsv1.Resource("replicasets"), "owner", nil)), "forbidden", false},
		"refused by a policy": {"v1", "Node", answers("patch", "pods", invalid), "is invalid", false},
		"a policy changes more": {"v1", "Node", answers("patch", "pods", changed), "changes the pod in the same request",
			false},
		"a webhook that is down": {"v1", "Node", answers("patch", "pods",
			apierrors.NewInternalError(errors.New("failed calling webhook"))), "failed calling webhook", false},
		"another pod by now": {"v1", "Node", answers("patch", "pods", otherUID), "", false},
		"server in trouble": {"v1", "Node", answers("patch", "pods",
			apierrors.NewServiceUnavailable("etcd is slow")), "", false},
		"stored as another": {"v1", "Node", func(c *cluster) {
			c.server.Admit(func(object simulation.Object) { object.SetLabels(map[string]string{"vm/rack": "frozen"}) })
		}, `("frozen"): exempt`, true},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *cluster) {
				uid := types.UID("uid-owner")
				if test.prepare != nil {
					test.prepare(c)
				}
				if set := get[*appsv1.ReplicaSet](c, "owner"); set != nil {
					uid = set.UID
				}
				c.options.LabelAllPods = true
				c.create(testPod("p", func(p *corev1.Pod) {
					p.Labels["vm/rack"] = "rack1"
					p.OwnerReferences = objects.ControlledBy(test.apiVersion, test.kind, "owner")
					p.OwnerReferences[0].UID = uid
				}))
				c.startPods()
				events, writes := strings.Join(c.recorded(), "\n"), c.writes()
				if !strings.Contains(events, test.event) || (events == "") != (test.event == "") ||
					strings.Contains(events, "\x1b") {
					t.Errorf("events %q, want %q, without escapes", events, test.event)
				}
				if (len(writes) > 0) != test.isWritten {
					t.Errorf("writes %v, want one: %t", writes, test.isWritten)
				}
			})
		})
	}
}

// TestPodsAll: with -label-all-pods, pods that no LocalService selects are labelled, too. The name of a node that is
// longer than a label is shortened.
func TestPodsAll(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.options.LabelAllPods = true
		c.startPods()
		c.create(testPod("p", objects.Labelled(), func(p *corev1.Pod) { p.Spec.NodeName = strings.Repeat("n", 70) }))
		settle()
		if got, want := c.labelOf("p"), strings.Repeat("n", 52)+"-qudj3x2bm4"; got != want {
			t.Errorf("label %q, want %q", got, want)
		}
	})
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
		const refused = "Warning NodeLabelRefused The label vm/rack of pods"
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
	}, append(pods, testLocalService(), testLocalService(objects.Named("second")))...)
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

// TestPodsChangedAgain: a label that something else changes each time is corrected at once the first time, and then less
// and less often, which is reported once. When that stops, the label is right within two minutes. A new pod of the same
// name does not wait.
func TestPodsChangedAgain(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.startPods()
		expect(t, "events of the first write", nil, c.recorded())
		c.writes()
		spoil := func(p *corev1.Pod) { p.Labels["vm/rack"] = "x" }
		edit(c, "p", spoil)
		time.Sleep(200 * time.Millisecond)
		expect(t, "at once", []string{"update pods p"}, c.writes())
		for range 198 {
			edit(c, "p", spoil)
			time.Sleep(100 * time.Millisecond)
		}
		if got := len(c.writes()); got != 3 {
			t.Errorf("%d more writes in 20 s, want 3", got)
		}
		if events := c.recorded(); len(events) != 1 ||
			!strings.Contains(events[0], "something else sets vm/rack after the controller has set it") {
			t.Errorf("events %q", events)
		}
		time.Sleep(2 * time.Minute)
		if c.labelOf("p") != "node1" {
			t.Error("not right two minutes after it has stopped")
		}
		edit(c, "p", spoil)
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
	mine, other := testPod("mine"), testPod("other", objects.Labelled("app=other"))
	labelled := objects.Pod("labelled", "node1")
	elsewhere := testPod("elsewhere", func(p *corev1.Pod) { p.Namespace = "other" })
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	ended := func(phase corev1.PodPhase) *corev1.Pod {
		return testPod(strings.ToLower(string(phase)), func(p *corev1.Pod) { p.Status.Phase = phase })
	}
	ls, named := testLocalService(), objects.Named("second")
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
		"pod that is recreated on another node meanwhile": {[]simulation.Object{ls}, func(c *cluster) {
			var once sync.Once
			c.answer("patch", "pods", func(string) error {
				once.Do(func() {
					c.remove(mine)
					c.create(testPod("mine", func(p *corev1.Pod) { p.Spec.NodeName = "node2" }))
				})
				return nil
			})
			c.create(mine)
		}, []string{"mine"}},
		"label edited by hand": {[]simulation.Object{ls, labelled}, func(c *cluster) {
			edit(c, "labelled", func(p *corev1.Pod) { p.Labels["vm/rack"] = "x" })
		}, []string{"labelled"}},
		"pod in mode Hostnames": {[]simulation.Object{testLocalService(hostnamesMode)},
			func(c *cluster) { c.create(mine) }, nil},
		"LocalService created": {[]simulation.Object{namespace, mine, other, elsewhere, labelled},
			func(c *cluster) { c.create(ls) }, []string{"mine"}},
		"LocalService created for pods that have ended": {
			[]simulation.Object{ended(corev1.PodSucceeded), ended(corev1.PodFailed)},
			func(c *cluster) { c.create(ls) }, nil},
		"LocalService that selects others now": {
			[]simulation.Object{namespace, testLocalService(selecting("x")), mine, other, elsewhere, labelled},
			func(c *cluster) { edit(c, "demo", selecting("demo")) }, []string{"mine"}},
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
		c.create(scheduled("other", 0, objects.Labelled("app=other")))
		expect("a pod that nothing selects", 0, 0, 0)
		time.Sleep(5 * time.Minute)
		c.create(testLocalService(objects.Named("other"), selecting("other")))
		expect("it is selected later", 1, 0, time.Second)
		over := c.refuseUntil("patch", "pods")
		c.create(scheduled("b", 0))
		expect("a label is refused", 0, 0, 0)
		over()
		time.Sleep(time.Minute)
		expect("the label is not refused any more", 1, 10*time.Second, 12*time.Second)
	}, testLocalService())
}
