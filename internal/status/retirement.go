package status

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// setRetiring sets the condition that shows since when the Services of the previous mode are not needed any more. A
// change of the spec resets it. Pods that come and go do not: they do not get both names at the same moment.
func (r *Report) setRetiring(status *v1alpha1.LocalServiceStatus, generation int64) {
	if r.Invalid != nil {
		return
	}
	current := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionRetiring)
	if current != nil && (r.Retirement.Services == 0 || current.ObservedGeneration != generation) {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionRetiring)
	}
	if r.Retirement.Services == 0 {
		return
	}
	c := metav1.Condition{Type: v1alpha1.ConditionRetiring, Status: metav1.ConditionFalse,
		ObservedGeneration: generation, Reason: v1alpha1.ReasonChangingMode}
	switch {
	case r.Unselected != nil, r.IsHostnames && r.Nodes == 0:
		c.Message = "the Services of the previous mode stay while no node is selected, or none has a name"
	case r.Retirement.Unanswered == 0, meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionRetiring):
		c.Status = metav1.ConditionTrue
		c.Message = fmt.Sprintf("the new names answer; the Services of the previous mode are deleted after %s, "+
			"once negative DNS caches have expired", plan.RetireAfter)
	case r.Retirement.Unanswered > 0:
		c.Message = fmt.Sprintf("the Services of the previous mode stay, because only they have the pods of %s",
			Count(r.Retirement.Unanswered, "node"))
	default:
		c.Message = "the Services of the previous mode stay until all new names are published"
	}
	meta.SetStatusCondition(&status.Conditions, c)
}
