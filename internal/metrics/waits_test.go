package metrics

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
)

// TestWaits: a wait lasts from the first event until the end of a sync that began after it. An event during a sync
// waits for the next sync. Keys that do not wait take no memory.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		histogram := metrics.NewHistogram(&metrics.HistogramOpts{Name: "localservice_test_seconds", Help: "Test.",
			Buckets: []float64{1, 10}})
		registry := metrics.NewKubeRegistry()
		registry.MustRegister(histogram)
		waits := NewWaits(histogram)
		key := types.NamespacedName{Name: "demo"}
		expect := func(when string, count uint64, sum float64) {
			t.Helper()
			h := gather(t, registry)[0].GetMetric()[0].GetHistogram()
			if h.GetSampleCount() != count || h.GetSampleSum() != sum {
				t.Errorf("%s: %d waits, %g s; want %d, %g s", when, h.GetSampleCount(), h.GetSampleSum(), count, sum)
			}
		}

		waits.Done(key, time.Now())
		expect("nothing waits", 0, 0)
		waits.Begin(key)
		time.Sleep(2 * time.Second)
		waits.Begin(key)
		time.Sleep(time.Second)
		began := time.Now()
		time.Sleep(4 * time.Second)
		waits.Done(key, began)
		expect("two events, one sync", 1, 7)
		began = time.Now()
		time.Sleep(time.Second)
		waits.Begin(key)
		waits.Done(key, began)
		expect("an event during the sync", 1, 7)
		time.Sleep(time.Second)
		waits.Done(key, time.Now())
		expect("the next sync", 2, 8)
		waits.Begin(key)
		waits.Forget(key)
		waits.Done(key, time.Now())
		expect("the object is gone", 2, 8)
		if len(waits.since) > 0 {
			t.Errorf("kept: %v", waits.since)
		}
	})
}
