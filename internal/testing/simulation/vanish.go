package simulation

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// vanish deletes everything in one of four histories. Then no Service of a LocalService may exist.
func (w *world) vanish() {
	if w.guard.hasFailed() || w.history.Seed%4 > 0 {
		return
	}
	w.story.add("everything is deleted")
	for _, ls := range List[*v1alpha1.LocalService](w.server) {
		_ = w.remove(ls)
	}
	time.Sleep(3 * time.Minute)
	for _, service := range List[*corev1.Service](w.server) {
		if ref := metav1.GetControllerOf(service); ref != nil && ref.Kind == v1alpha1.Kind {
			w.guard.fail("a Service of a LocalService that is gone", "%s", keyOf(service))
		}
	}
	if w.history.Replicas == 1 { // Each second of an election costs as much as a change.
		w.forget()
	}
}

// memorable is how long a replica may remember something about objects that are gone.
const memorable = 30 * time.Minute

// forget deletes the rest, too. Then the replicas must not remember anything about it for long.
func (w *world) forget() {
	w.server.mu.Lock()
	for _, name := range []string{"replicasets", "clonesets", "pods", "services", "nodes"} {
		for _, e := range w.server.tables[name].sorted() {
			_ = w.server.delete(userName, w.server.tables[name], keyOf(e.object),
				&metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		}
	}
	w.server.mu.Unlock()
	time.Sleep(memorable)
	for _, r := range w.replicas {
		for _, what := range r.remembers(w.guard.seen) {
			w.guard.fail("something is remembered of what is gone", "%s: %s", r.name, what)
		}
	}
}
