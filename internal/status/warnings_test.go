package status

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestWarnings: a condition that begins to need attention, or needs it for another reason, causes an event. Another
// message does not.
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
		"fails in other words": {ready(v1alpha1.ReasonWriteFailed, "3 × x"),
			ready(v1alpha1.ReasonWriteFailed, "4 × y"), false},
		"fails for another reason": {ready(v1alpha1.ReasonWriteFailed, "x"),
			ready(v1alpha1.ReasonInvalidSpec, "x"), true},
		"another name is taken": {conflicted("demo-node1"), conflicted("demo-node2"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Warnings([]metav1.Condition{c.before}, []metav1.Condition{c.after}); (len(got) == 1) != c.want {
				t.Errorf("warnings %v, want one: %v", got, c.want)
			}
		})
	}
}
