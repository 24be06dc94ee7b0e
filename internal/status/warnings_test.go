package status

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestWarnings: a condition that begins to need attention, or changes while it does, causes an event. Changed numbers
// do not.
func TestWarnings(t *testing.T) {
	ready := func(reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason,
			Message: message}
	}
	conflicted := func(message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionConflicted, Status: metav1.ConditionTrue,
			Reason: v1alpha1.ReasonNameTaken, Message: message}
	}
	for name, c := range map[string]struct {
		before, after metav1.Condition
		want          bool
	}{
		"fails":      {metav1.Condition{}, ready(v1alpha1.ReasonWriteFailed, "x"), true},
		"is writing": {metav1.Condition{}, ready(v1alpha1.ReasonWritingServices, "x"), false},
		"fails as before": {ready(v1alpha1.ReasonWriteFailed, "3 × x"),
			ready(v1alpha1.ReasonWriteFailed, "4 × x"), false},
		"fails more often": {ready(v1alpha1.ReasonWriteFailed, "9 × x"),
			ready(v1alpha1.ReasonWriteFailed, "10 × x"), false},
		"fails for another reason": {ready(v1alpha1.ReasonWriteFailed, "3 × x"),
			ready(v1alpha1.ReasonWriteFailed, "3 × y"), true},
		"fails for another Service": {
			ready(v1alpha1.ReasonWriteFailed, "1 write failed: replace Service default/demo-a: no"),
			ready(v1alpha1.ReasonWriteFailed, "1 write failed: replace Service default/demo-b: no"), false},
		"fails for several Services": {
			ready(v1alpha1.ReasonWriteFailed, "1 write failed: create Service default/demo-a: no"),
			ready(v1alpha1.ReasonWriteFailed, "12 writes failed: 12 × create Service: no"), false},
		"fails for several Services that the answer names": {
			ready(v1alpha1.ReasonWriteFailed, `1 write failed: create Service default/demo-a: services "demo-a" no`),
			ready(v1alpha1.ReasonWriteFailed, `2 writes failed: 2 × create Service: services "…" no`), false},
		"fails for several reasons": {
			ready(v1alpha1.ReasonWriteFailed, "2 writes failed: 2 × create Service: no"),
			ready(v1alpha1.ReasonWriteFailed,
				"2 writes failed: 1 × create Service: no; 1 × update Service: no"), true},
		"another name is taken":  {conflicted("demo-node1"), conflicted("demo-node2"), true},
		"the same name is taken": {conflicted("demo-node1"), conflicted("demo-node1"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Warnings([]metav1.Condition{c.before}, []metav1.Condition{c.after}); (len(got) == 1) != c.want {
				t.Errorf("warnings %v, want one: %v", got, c.want)
			}
		})
	}
}
