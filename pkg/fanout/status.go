package fanout

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// namesInMessage is how many names a condition's message lists before it only counts.
	namesInMessage = 5
	// errorsInMessage is how many different errors a condition's message holds, and errorLength how many characters
	// of each.
	errorsInMessage = 3
	errorLength     = 512
)

// Outcome is what is known of a LocalService's Services at some moment of a sync.
type Outcome struct {
	// Nodes is the number of selected nodes, and InPlace that of Services in place and up to date.
	Nodes, InPlace int
	// ReadyNodes is the number of selected nodes whose Service has a ready endpoint.
	ReadyNodes int
	// Conflicts are the names that are taken by Services of others, sorted.
	Conflicts []string
	// Waiting is the number of Services whose predecessor is still being deleted.
	Waiting int
	// Held is what limits have kept from being done.
	Held Held
	// Capacity is how many Services there are and can be.
	Capacity Capacity
	// Writing is true while writes are under way.
	Writing bool
	// Errors are the writes that failed.
	Errors []error
	// Invalid says why the spec cannot be turned into Services, if it cannot.
	Invalid error
}

// Status is the status that tells an outcome. It is old itself, timestamps included, where nothing has changed.
func Status(old v1alpha1.LocalServiceStatus, generation int64, outcome Outcome) v1alpha1.LocalServiceStatus {
	status := *old.DeepCopy()
	status.ObservedGeneration = generation
	if outcome.Invalid == nil { // Otherwise nothing was looked at.
		status.Nodes = int32(outcome.Nodes)
		status.Services = int32(outcome.InPlace)
		status.ReadyNodes = int32(outcome.ReadyNodes)
		status.Ready = fmt.Sprintf("%d/%d", outcome.ReadyNodes, outcome.Nodes)
	}
	for _, c := range []metav1.Condition{outcome.ready(), outcome.progressing(), outcome.conflicted(), outcome.Capacity.condition()} {
		c.ObservedGeneration = generation
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

func (o *Outcome) ready() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	heldReason, heldMessage := o.Held.reason()
	switch {
	case o.Invalid != nil:
		c.Reason, c.Message = v1alpha1.ReasonInvalidSpec, o.Invalid.Error()
	case len(o.Errors) > 0:
		c.Reason, c.Message = v1alpha1.ReasonWriteFailed, SummarizeErrors(o.Errors)
	case o.Writing:
		c.Reason, c.Message = v1alpha1.ReasonWritingServices, "Services are being written"
	case heldReason != "":
		c.Reason, c.Message = heldReason, heldMessage
	case len(o.Conflicts) > 0:
		c.Reason, c.Message = v1alpha1.ReasonNameTaken, SummarizeConflicts(o.Conflicts)
	case o.Waiting > 0:
		c.Reason, c.Message = v1alpha1.ReasonWaiting, fmt.Sprintf("%d Services are being deleted before their names can be used again", o.Waiting)
	case o.Nodes == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonNoNodes, "no node matches spec.nodeSelector, so there is no Service to make"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonServicesInPlace, "every selected node has its Service"
	}
	return c
}

func (o *Outcome) progressing() metav1.Condition {
	if o.Writing || o.Waiting > 0 {
		return metav1.Condition{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue,
			Reason: v1alpha1.ReasonWritingServices, Message: "Services are being created, changed or deleted"}
	}
	c := metav1.Condition{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonServicesInPlace, Message: "there is nothing left to write"}
	switch {
	case o.Invalid != nil:
		c.Reason, c.Message = v1alpha1.ReasonInvalidSpec, "nothing is written until the spec is corrected"
	case len(o.Errors) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonWriteFailed, "failed writes are tried again"
	}
	return c
}

func (o *Outcome) conflicted() metav1.Condition {
	if len(o.Conflicts) == 0 {
		return metav1.Condition{Type: v1alpha1.ConditionConflicted, Status: metav1.ConditionFalse,
			Reason: v1alpha1.ReasonNoConflict, Message: "no name is taken by a Service of somebody else"}
	}
	return metav1.Condition{Type: v1alpha1.ConditionConflicted, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonNameTaken, Message: SummarizeConflicts(o.Conflicts)}
}

// SummarizeConflicts names the first few of the Services that stand in the way, counts them, and says what to do.
func SummarizeConflicts(names []string) string {
	list := strings.Join(names[:min(len(names), namesInMessage)], ", ")
	if more := len(names) - namesInMessage; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%d Service names are taken by Services that this LocalService does not control: %s. Delete or rename those, "+
		"or give this LocalService another name", len(names), list)
}

// SummarizeErrors tells the first few different errors, and counts them all.
func SummarizeErrors(errs []error) string {
	var messages []string
	for _, err := range errs {
		message := err.Error()
		if len(message) > errorLength {
			message = message[:errorLength] + "…"
		}
		if len(messages) == errorsInMessage {
			break
		}
		if !slices.Contains(messages, message) {
			messages = append(messages, message)
		}
	}
	return fmt.Sprintf("%d writes failed: %s", len(errs), strings.Join(messages, "; "))
}
