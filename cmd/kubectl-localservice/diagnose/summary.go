package diagnose

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Summary holds columns of `kubectl get localservices`. Nodes and Answering are counted from the items of the list,
// whereas kubectl shows what the controller last reported.
type Summary struct {
	// Nodes is the number of names: one for each selected node, or group of nodes.
	Nodes int `json:"nodes"`
	// Answering is the number of those names with at least one ready endpoint.
	Answering int `json:"answering"`
	// Status is the reason of the condition Ready, "" until the controller has set it.
	Status string `json:"status"`
	// Problem is the message of the condition Ready while that is False, "" otherwise.
	Problem string `json:"problem"`
	// Cause is what names with that problem have as Cause, "" if there is none.
	Cause string `json:"-"`
}

// readyOf returns the condition Ready of a LocalService, the zero value until the controller has set it.
func readyOf(ls *v1alpha1.LocalService) metav1.Condition {
	return ptr.Deref(meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionReady), metav1.Condition{})
}

func summarize(ls *v1alpha1.LocalService, items []Node) Summary {
	s := Summary{}
	ready := readyOf(ls)
	s.Status = ready.Reason
	if ready.Status != metav1.ConditionTrue {
		s.Problem, s.Cause = ready.Message, statusCause(ls, quotaOf(ls))
	}
	for i := range items {
		if items[i].Reason != NodeWithoutName {
			s.Nodes++
		}
		if items[i].Endpoints.Ready > 0 {
			s.Answering++
		}
	}
	return s
}

// noNodes says why a LocalService has no name: which selector matched nothing, and what is still there.
func noNodes(ls *v1alpha1.LocalService, services []*corev1.Service) string {
	if !plan.HasNodeSelector(ls) {
		return "There is no node."
	}
	message := "No node matches " + plan.NodeSelection(ls)
	kept := 0
	for _, service := range services {
		if metav1.IsControlledBy(service, ls) {
			kept++
		}
	}
	switch {
	case kept > 0 && ls.Spec.Mode == v1alpha1.ModeHostnames:
		message += ", and the controller removes no published name"
	case kept > 0:
		message += fmt.Sprintf(", and the controller keeps %s of nodes that exist, whose names still work",
			status.Count(kept, "Service"))
	}
	return message + ". Correct that or the labels of the nodes: kubectl get nodes --show-labels"
}

// statusCause is the cause of a problem that the status is about: in the words for a name that is taken, or for the
// quota; otherwise the reason of the condition Ready.
func statusCause(ls *v1alpha1.LocalService, q *quota) string {
	ready := readyOf(ls)
	switch {
	case q != nil:
		return q.cause()
	case ready.Reason == v1alpha1.ReasonNameTaken:
		return causes[NameConflict]
	}
	return ready.Reason
}
