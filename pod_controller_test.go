package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

var podKey = types.NamespacedName{Namespace: "default", Name: "p"}

func newPodFixture(t *testing.T, all bool, objects ...runtime.Object) (*fixture, *podController) {
	t.Helper()
	f := newFixture(t, objects...)
	f.deps.labelAllPods = all
	c, err := newPodController(f.deps)
	if err != nil {
		t.Fatal(err)
	}
	f.fill()
	return f, c
}

func TestPodsSyncWrites(t *testing.T) {
	label := func(value string) []string {
		return []string{fmt.Sprintf(`patch pods p {"metadata":{"labels":{"vm/rack":%q},"uid":"uid-p"}}`, value)}
	}
	long := strings.Repeat("n", 70)
	other := func(edit func(*v1alpha1.LocalService)) *v1alpha1.LocalService {
		return testLocalService(func(ls *v1alpha1.LocalService) { ls.Name = "other" }, edit)
	}
	for name, c := range map[string]struct {
		all     bool
		objects []runtime.Object
		writes  []string
	}{
		"scheduled and selected": {false, []runtime.Object{testLocalService(), testPod("p")}, label("node1")},
		"labelled already":       {false, []runtime.Object{testLocalService(), testPod("p", withLabels(map[string]string{"app": "demo", "vm/rack": "node1"}))}, nil},
		"a stale label of the template": {false, []runtime.Object{testLocalService(),
			testPod("p", withLabels(map[string]string{"app": "demo", "vm/rack": "node2"}))}, label("node1")},
		"not scheduled yet":               {false, []runtime.Object{testLocalService(), testPod("p", func(p *corev1.Pod) { p.Spec.NodeName = "" })}, nil},
		"not selected":                    {false, []runtime.Object{testLocalService(), testPod("p", withLabels(map[string]string{"app": "other"}))}, nil},
		"no labels":                       {false, []runtime.Object{testLocalService(), testPod("p", withLabels(nil))}, nil},
		"no labels, and all are labelled": {true, []runtime.Object{testPod("p", withLabels(nil))}, label("node1")},
		"selected in another namespace":   {false, []runtime.Object{testLocalService(func(ls *v1alpha1.LocalService) { ls.Namespace = "other" }), testPod("p")}, nil},
		"no LocalService":                 {false, []runtime.Object{testPod("p")}, nil},
		"all pods":                        {true, []runtime.Object{testPod("p", withLabels(map[string]string{"app": "other"}))}, label("node1")},
		"selected by the second of two":   {false, []runtime.Object{other(func(ls *v1alpha1.LocalService) { ls.Spec.Selector["tier"] = "x" }), testLocalService(), testPod("p")}, label("node1")},
		"only partly selected":            {false, []runtime.Object{testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.Selector["tier"] = "x" }), testPod("p")}, nil},
		"succeeded":                       {true, []runtime.Object{testPod("p", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}, nil},
		"failed":                          {true, []runtime.Object{testPod("p", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, nil},
		"terminating": {false, []runtime.Object{testLocalService(), testPod("p", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = new(metav1.Now()), []string{"x"}
		})}, label("node1")},
		"a node whose name is longer than a label": {true, []runtime.Object{testPod("p", func(p *corev1.Pod) { p.Spec.NodeName = long })},
			label(strings.Repeat("n", 52) + "-qudj3x2bm4")},
		"gone": {true, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f, controller := newPodFixture(t, c.all, c.objects...)
			if err := controller.sync(t.Context(), podKey); err != nil {
				t.Errorf("sync: %v", err)
			}
			if diff := cmp.Diff(c.writes, f.writes()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPodsEvents: which pods an event puts into the queue.
func TestPodsEvents(t *testing.T) {
	labelled := testPod("labelled", withLabels(map[string]string{"app": "demo", "vm/rack": "node1"}))
	mine, other := testPod("mine"), testPod("other", withLabels(map[string]string{"app": "other"}))
	elsewhere := testPod("elsewhere", func(p *corev1.Pod) { p.Namespace = "other" })
	for name, c := range map[string]struct {
		event func(f *fixture, c *podController)
		want  int
	}{
		"pod of a LocalService":     {func(f *fixture, c *podController) { c.podChanged(f.cached(mine).(*pod)) }, 1},
		"pod of none":               {func(f *fixture, c *podController) { c.podChanged(f.cached(other).(*pod)) }, 0},
		"pod that is labelled":      {func(f *fixture, c *podController) { c.podChanged(f.cached(labelled).(*pod)) }, 0},
		"LocalService that selects": {func(_ *fixture, c *podController) { c.localServiceChanged(testLocalService()) }, 1},
		"LocalService that does not": {func(_ *fixture, c *podController) {
			c.localServiceChanged(testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.Selector["app"] = "x" }))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f, controller := newPodFixture(t, false, testLocalService(), mine, other, labelled, elsewhere)
			c.event(f, controller)
			if got := controller.loop.Len(); got != c.want {
				t.Errorf("%d pods in the queue, want %d", got, c.want)
			}
		})
	}
}

func TestPodsErrors(t *testing.T) {
	pods := corev1.Resource("pods")
	otherUID := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil)
	otherUID.ErrStatus.Details.Causes = []metav1.StatusCause{{Field: "metadata.uid"}}
	for name, c := range map[string]struct {
		err   error
		fails string // what the error of sync says, "" for none
		event bool
	}{
		"gone":               {apierrors.NewNotFound(pods, "p"), "", false},
		"another pod by now": {otherUID, "", false},
		"somebody else was quicker, of which there is an event": {apierrors.NewConflict(pods, "p", errors.New("modified")), "", false},
		"refused by admission": {apierrors.NewForbidden(pods, "p", errors.New("labels are frozen")), "labels are frozen", true},
		"refused by a policy":  {apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil), "is invalid", true},
		"server in trouble":    {apierrors.NewInternalError(errors.New("etcd is slow")), "etcd is slow", false},
	} {
		t.Run(name, func(t *testing.T) {
			f, controller := newPodFixture(t, true, testPod("p"))
			f.kube.PrependReactor("patch", "pods", func(core.Action) (bool, runtime.Object, error) { return true, nil, c.err })
			err := controller.sync(t.Context(), podKey)
			if (err == nil) != (c.fails == "") || err != nil && !(strings.Contains(err.Error(), c.fails) && strings.Contains(err.Error(), "label pod default/p")) {
				t.Errorf("sync: %v, want %q and what was attempted", err, c.fails)
			}
			if got := f.recorded(); (len(got) == 1) != c.event {
				t.Errorf("events %v", got)
			}
		})
	}
}

// TestPodsTrim: a labelled pod takes little memory, one that is not keeps its labels, and trimming twice changes nothing.
func TestPodsTrim(t *testing.T) {
	trim := trimPod(v1alpha1.DefaultNodeLabelKey)
	for _, full := range []*corev1.Pod{
		testPod("p"), testPod("p", withLabels(map[string]string{"app": "demo", "vm/rack": "node1"})), testPod("p", func(p *corev1.Pod) { p.Spec.NodeName = "" }),
	} {
		once, err := trim(full.DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		twice, err := trim(once)
		if err != nil || twice != once {
			t.Errorf("trimmed twice: %v, %v", twice, err)
		}
		p := once.(*pod)
		if want := full.Labels["vm/rack"] == "node1"; p.labelled != want || (p.labels.Value() == "") != want || (p.uid == "") != want {
			t.Errorf("%q and UID %q of %v: labelled %v", p.labels.Value(), p.uid, full.Labels, p.labelled)
		}
	}
}

// TestPodsLabelledAtBinding: the controller finds out from the pods that are scheduled whether an admission policy labels them.
func TestPodsLabelledAtBinding(t *testing.T) {
	_, c := newPodFixture(t, false)
	see := func(want *bool, edit ...func(*corev1.Pod)) {
		t.Helper()
		trimmed, err := trimPod(c.nodeLabelKey)(testPod("p", edit...))
		if err != nil {
			t.Fatal(err)
		}
		c.podScheduled(trimmed.(*pod))
		if got := c.labelledAtBinding; (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("labelled at binding: %v, want %v", got, want)
		}
	}
	labelled := withLabels(map[string]string{"vm/rack": "node1"})
	see(nil, func(p *corev1.Pod) { p.Spec.NodeName = strings.Repeat("n", 70) }) // The policy leaves it to us.
	see(nil, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	see(new(true), labelled)
	see(new(true), labelled)
	see(new(false))
	see(new(true), labelled)
}
