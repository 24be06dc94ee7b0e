package main

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	core "k8s.io/client-go/testing"
	componentmetrics "k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// latencies are waits of a test, and what tests those that have ended since the last call, once everything has settled:
// their number, and the time that they took together.
func latencies(t *testing.T) (*metrics.Waits, func(what string, wantCount uint64, least, most time.Duration)) {
	histogram := componentmetrics.NewHistogram(&componentmetrics.HistogramOpts{Name: "test_seconds", Help: "Test."})
	registry := componentmetrics.NewKubeRegistry()
	registry.MustRegister(histogram)
	var counted uint64
	var summed float64
	return metrics.NewWaits(histogram, clock.RealClock{}), func(what string, wantCount uint64, least, most time.Duration) {
		t.Helper()
		settle()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		h := families[0].GetMetric()[0].GetHistogram()
		count, sum := h.GetSampleCount()-counted, time.Duration((h.GetSampleSum()-summed)*float64(time.Second))
		counted, summed = h.GetSampleCount(), h.GetSampleSum()
		if count != wantCount || sum < least || sum > most {
			t.Errorf("%s: %d measured, %s together; want %d, %s to %s", what, count, sum, wantCount, least, most)
		}
	}
}

// refuseUntil has the API server refuse writes of a resource until the test says otherwise.
func refuseUntil(f *fixture, verb, resource string) *atomic.Bool {
	var over atomic.Bool
	f.kube.PrependReactor(verb, resource, func(a core.Action) (bool, runtime.Object, error) {
		return !over.Load(), nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "x", errors.New("quota"))
	})
	return &over
}

// TestNodeFanoutIsMeasured: from the event that a node is selected until its Service is written, also if that takes
// several attempts; and nothing else is.
func TestNodeFanoutIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ssd := testLocalService(func(ls *v1alpha1.LocalService) {
			ls.Name, ls.UID, ls.Spec.NodeSelector = "ssd", "uid-ssd", map[string]string{"disk": "ssd"}
		})
		names := testLocalService(func(ls *v1alpha1.LocalService) {
			ls.Name, ls.UID, ls.Spec.Mode = "names", "uid-names", v1alpha1.ModeHostnames
		})
		f := newFixture(t, testLocalService(), ssd, names, testNode("node0"))
		c := f.newLocalServices()
		var expect func(what string, wantCount uint64, least, most time.Duration)
		c.nodeWaits, expect = latencies(t)
		f.watch()
		f.run(c.Run)
		expect("the start", 0, 0, 0)
		f.set(testNode("node1"))
		expect("a node joins", 1, batchPeriod, 2*batchPeriod)
		f.set(testNode("node1", "disk=ssd"))
		expect("a node is selected by another LocalService", 1, batchPeriod, 2*batchPeriod)
		f.set(testNode("node1", "disk=ssd", "zone=a"))
		expect("another label", 0, 0, 0)
		f.remove(testNode("node0"))
		expect("a node leaves", 0, 0, 0)
		over := refuseUntil(f, "create", "services")
		f.set(testNode("node2"))
		expect("a node joins, and its Service is refused", 0, 0, 0)
		over.Store(true)
		time.Sleep(time.Minute)
		expect("the Service is not refused any more", 1, 10*time.Second, 15*time.Second)
		f.remove(testLocalService())
		f.set(testNode("node3"))
		expect("a LocalService is gone", 0, 0, 0)
	})
}

// TestPodLabelIsMeasured: from the event that a pod is scheduled until its label is written, also if that takes several
// attempts; and not of those that have been there.
func TestPodLabelIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, testLocalService(), testPod("before"))
		c, err := newPodController(f.deps)
		if err != nil {
			t.Fatal(err)
		}
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
		// The backoff is that of a pod, and not of its name.
		expect("the labels are not refused any more", 2, 20*time.Second, 21*time.Second)
	})
}
