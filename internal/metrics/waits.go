package metrics

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
)

// Waits measures how long keys of a queue wait, from the first event until what it asks for is done. It holds the keys
// that wait, and no others.
type Waits struct {
	histogram *metrics.Histogram

	mu    sync.Mutex
	since map[types.NamespacedName]time.Time
}

// NewWaits makes Waits that a histogram observes.
func NewWaits(histogram *metrics.Histogram) *Waits {
	return &Waits{histogram: histogram, since: map[types.NamespacedName]time.Time{}}
}

// Begin has a key wait, unless it does already.
func (w *Waits) Begin(key types.NamespacedName, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, waits := w.since[key]; !waits {
		w.since[key] = now
	}
}

// Take takes the wait of a key out, so that an event that comes while it is worked on begins another one. If that work
// is not done, Return puts it back.
func (w *Waits) Take(key types.NamespacedName) *Wait {
	w.mu.Lock()
	defer w.mu.Unlock()
	wait := &Wait{waits: w, key: key, since: w.since[key]}
	delete(w.since, key)
	return wait
}

// Wait is one of Waits; an empty one of a key that does not wait.
type Wait struct {
	waits *Waits
	key   types.NamespacedName
	since time.Time
}

// Done ends the wait.
func (w *Wait) Done(now time.Time) {
	if !w.since.IsZero() {
		w.waits.histogram.Observe(now.Sub(w.since).Seconds())
		w.since = time.Time{}
	}
}

// Return has the key wait on, since when it did, unless the wait has ended.
func (w *Wait) Return() {
	if w.since.IsZero() {
		return
	}
	w.waits.mu.Lock()
	defer w.waits.mu.Unlock()
	w.waits.since[w.key] = w.since
}
