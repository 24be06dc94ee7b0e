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
}
