package metrics

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
)

// Waits measures how long keys wait, from the first event until its work is done, over all retries and turns. The
// histograms of work queues restart with each of those. Waits holds only the keys that wait.
type Waits struct {
	histogram *metrics.Histogram

	mu    sync.Mutex
	since map[types.NamespacedName]time.Time
}

// NewWaits makes Waits that a histogram records.
func NewWaits(histogram *metrics.Histogram) *Waits {
	return &Waits{histogram: histogram, since: map[types.NamespacedName]time.Time{}}
}

// Begin starts the wait of a key, unless it already waits.
func (w *Waits) Begin(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, waits := w.since[key]; !waits {
		w.since[key] = time.Now()
	}
}

// Done ends the wait of a key, if that began before the sync that ends it: a sync may not have seen a later event.
func (w *Waits) Done(key types.NamespacedName, syncBegan time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if since, waits := w.since[key]; waits && !since.After(syncBegan) {
		w.histogram.Observe(time.Since(since).Seconds())
		delete(w.since, key)
	}
}

// Forget forgets a key whose object is gone.
func (w *Waits) Forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.since, key)
}
