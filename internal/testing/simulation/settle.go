package simulation

import (
	"strings"
	"time"
)

// settle waits until everything is as it should be, which must not take longer than the last retry of a refused write,
// or than a wait for caches if nothing was refused.
func (w *world) settle() {
	var found []problem
	looked, healed := -1, time.Now()
	quiet := func() time.Time { return w.quiet(namespaces...) }
	deadline := quiet().Add(quiet().Sub(healed))
	for ; time.Now().Before(deadline) || w.idle(namespaces...) < w.guard.reaction(); time.Sleep(2 * time.Second) {
		w.removeMisfits() // One may have lost its previous owner only now.
		w.server.mu.Lock()
		if written := w.server.written; written != looked && time.Now().After(quiet().Add(-retryTime)) {
			looked = written
			found = problems(w.server)
		}
		w.server.mu.Unlock()
		if time.Since(healed) > relabelTime && w.history.Replicas == 1 && !w.guard.isSlow() {
			w.checkLabels(found)
		}
		if isDone := looked >= 0 && len(found) == 0; isDone || w.guard.hasFailed() {
			break
		}
	}
	for _, p := range found {
		w.guard.fail("never: "+p.kind, "%s", p.what)
	}
	if left := max(time.Until(quiet()), time.Until(healed.Add(retryTime))); left > 0 {
		time.Sleep(left) // What was refused is tried again.
	}
}

// checkLabels checks that the node labels of pods are right sooner than all else.
func (w *world) checkLabels(found []problem) {
	for _, p := range found {
		if p.kind == unlabelled {
			w.guard.fail("late: "+p.kind, "%s after nothing has gone wrong: %s", relabelTime, p.what)
		}
	}
}

// rest checks that nothing is done when there is nothing to do: in one of four histories for longer.
func (w *world) rest() {
	since := time.Now()
	switch {
	case w.history.Replicas > 1:
		time.Sleep(time.Minute) // Each second of an election costs as much as a change.
	case w.history.Seed%4 > 0:
		time.Sleep(retryTime) // Most of what is done at rest is done within the longest backoff.
	default:
		time.Sleep(10 * time.Minute)
	}
	reads := w.readsAtRest(time.Since(since))
	for _, r := range w.replicas {
		for _, request := range r.endpoint.Requests(since) {
			// client-go retries events, and ends their series.
			if reads[request.What]--; reads[request.What] < 0 && !strings.Contains(request.What, " leases") &&
				!strings.Contains(request.What, " events") {
				w.guard.fail("a request at rest", "%s: %s", r.name, request.What)
			}
		}
	}
	for _, e := range w.endpoints() {
		w.guard.checkRate(e)
	}
}
