package metrics

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
)

// TestWaits: a wait lasts from the first event until the work on it is done; what comes while it is worked on begins
// another one; and nothing is kept of keys that do not wait.
func TestWaits(t *testing.T) {
	histogram := metrics.NewHistogram(&metrics.HistogramOpts{Name: "localservice_test_seconds", Help: "Test.",
		Buckets: []float64{1, 10}})
	registry := metrics.NewKubeRegistry()
	registry.MustRegister(histogram)
	waits := NewWaits(histogram)
	key, began := types.NamespacedName{Name: "demo"}, time.Now()
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	observed := func() (count uint64, sum float64) {
		h := gather(t, registry)[0].GetMetric()[0].GetHistogram()
		return h.GetSampleCount(), h.GetSampleSum()
	}

	waits.Take(key).Done(at(1)) // It did not wait.
	waits.Begin(key, at(0))
	waits.Begin(key, at(2))
	wait := waits.Take(key)
	waits.Begin(key, at(3)) // while it is worked on
	wait.Return()           // which fails
	wait = waits.Take(key)
	waits.Begin(key, at(5))
	wait.Done(at(7))
	wait.Return() // as the deferred call does
	if count, sum := observed(); count != 1 || sum != 7 {
		t.Errorf("%d waits, %g s, want one of 7 s", count, sum)
	}
	waits.Take(key).Done(at(8))
	if count, sum := observed(); count != 2 || sum != 7+3 {
		t.Errorf("%d waits, %g s, want another one of 3 s", count, sum)
	}
	if len(waits.since) > 0 {
		t.Errorf("kept: %v", waits.since)
	}
}
