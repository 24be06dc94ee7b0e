// Package status reports in the status and the events of a LocalService what was found and done. It has no client and
// no state: everything is a function of its arguments.
package status

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// report combines a plan, with what a sync found, and the outcome of the plan.
type report struct {
	*plan.Plan
	*Outcome
	failed    []error          // The writes that were refused, or failed otherwise.
	contested sets.Set[string] // The fields that something else sets in the writes.
	undone    []*ContestedError
}

func reportOf(p *plan.Plan, outcome *Outcome) *report {
	r := &report{Plan: p, Outcome: outcome, failed: slices.Clone(outcome.Failed), contested: sets.Set[string]{}}
	for _, err := range outcome.Refused {
		switch contested, is := errors.AsType[*ContestedError](err); {
		case is && contested.IsUndone:
			r.undone = append(r.undone, contested)
		case is:
			r.contested.Insert(contested.Fields...)
		default:
			r.failed = append(r.failed, err)
		}
	}
	return r
}

// hasFailed reports whether a write was refused or failed, or cannot be made.
func (r *report) hasFailed() bool { return len(r.failed)+len(r.Changes[plan.Blocked]) > 0 }

// isWriting reports whether writes are pending that were not refused.
func (r *report) isWriting() bool {
	isContested := len(r.contested)+len(r.undone) > 0
	return !r.hasFailed() && (r.More || r.Denied || len(r.Stale) > 0 || r.Copies.BeingPublished() && !isContested)
}

// IsWriting reports whether the status of a LocalService reports that Services are being written for its spec.
func IsWriting(ls *v1alpha1.LocalService) bool {
	c := meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionProgressing)
	return c != nil && c.ObservedGeneration == ls.Generation && c.Status == metav1.ConditionTrue &&
		c.Reason == v1alpha1.ReasonWritingServices
}

// IsMiddle reports whether a turn is neither the first nor the last for this spec: another turn follows, and the
// status of the LocalService already reports the reason.
func IsMiddle(ls *v1alpha1.LocalService, p *plan.Plan, outcome *Outcome) bool {
	before := meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionProgressing)
	return outcome.More && before != nil && before.ObservedGeneration == ls.Generation &&
		before.Status == metav1.ConditionTrue && before.Reason == reportOf(p, outcome).progressing("").Reason
}

// IsFight reports whether a turn only updated Services while something else undoes updates.
func IsFight(outcome *Outcome) bool {
	return len(outcome.Made) == 1 && outcome.Made[plan.Update] != nil && len(reportOf(&plan.Plan{}, outcome).undone) > 0
}

// isUnpublished reports whether Kubernetes has not yet published the pods to which mode Hostnames gives names.
func (r *report) isUnpublished() bool {
	return r.IsHostnames && r.Copies.Sources == 0 && len(r.Changes[plan.Conflict]) == 0
}

// Of returns the status of a LocalService that follows from a plan and its outcome. If nothing has changed, it equals
// the previous status, including timestamps. lacking lists the fields of a spec that the API server did not know when
// the controller started.
func Of(ls *v1alpha1.LocalService, p *plan.Plan, outcome *Outcome, lacking ...string) v1alpha1.LocalServiceStatus {
	status, r := *ls.Status.DeepCopy(), reportOf(p, outcome)
	status.Nodes = int32(r.Nodes)
	status.Services = int32(r.InPlace + r.Stored())
	status.ReadyNodes = int32(r.Ready)
	status.Ready = fmt.Sprintf("%d/%d", r.Ready, r.Nodes)
	ready := r.ready(ls)
	ready.Message += dropped(lacking)
	set(ls, &status, ready, r.progressing(ready.Reason), r.conflictedCondition(ls), r.contestedCondition())
	return status
}

// OfInvalid returns the status of a LocalService whose spec cannot be turned into Services. The numbers stay, because
// nothing was observed.
func OfInvalid(ls *v1alpha1.LocalService, invalid error, lacking ...string) v1alpha1.LocalServiceStatus {
	status, r := *ls.Status.DeepCopy(), reportOf(&plan.Plan{}, &Outcome{})
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonInvalidSpec, Message: invalid.Error() + dropped(lacking)}
	progressing := metav1.Condition{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonInvalidSpec, Message: "no Service is written until the spec is corrected"}
	var others []metav1.Condition
	for _, c := range []metav1.Condition{r.conflictedCondition(ls), r.contestedCondition()} {
		if meta.FindStatusCondition(status.Conditions, c.Type) == nil {
			others = append(others, c)
		}
	}
	set(ls, &status, ready, progressing, others...)
	return status
}

// set sets the conditions of a status. By convention, Stalled is present only while it is True. Ready is always
// present.
func set(ls *v1alpha1.LocalService, status *v1alpha1.LocalServiceStatus, ready, progressing metav1.Condition,
	others ...metav1.Condition) {
	status.ObservedGeneration = ls.Generation
	conditions := append([]metav1.Condition{ready, progressing}, others...)
	if isStalled(&ready, &progressing) {
		stalled := ready
		stalled.Type, stalled.Status = v1alpha1.ConditionStalled, metav1.ConditionTrue
		conditions = append(conditions, stalled)
	} else {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionStalled)
	}
	for _, c := range conditions {
		c.ObservedGeneration = ls.Generation
		meta.SetStatusCondition(&status.Conditions, c)
	}
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.LastTransitionTime.IsZero() { // The API server refuses to store it once more.
			c.LastTransitionTime = ls.CreationTimestamp
		}
	}
}

// ready returns the condition Ready.
func (r *report) ready(ls *v1alpha1.LocalService) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	switch {
	case slices.ContainsFunc(r.failed, isNotPermitted):
		c.Reason, c.Message = v1alpha1.ReasonHostnamesNotPermitted, notPermitted
	case r.hasFailed():
		c.Reason = v1alpha1.ReasonWriteFailed
		c.Message = words.Join(". ", summarizeFailed(r.failed), summarizeBlocked(r.Changes[plan.Blocked]))
	case r.isWriting():
		c.Reason, c.Message = v1alpha1.ReasonWritingServices, "Services are being written"
	case len(r.Changes[plan.Conflict]) > 0:
		c.Reason, c.Message = v1alpha1.ReasonNameTaken, summarizeConflicts(ls, r.Changes[plan.Conflict])
	case r.contestedCondition().Status == metav1.ConditionTrue:
		c.Reason, c.Message = v1alpha1.ReasonContested, r.contestedCondition().Message
	case len(r.Changes[plan.Wait]) > 0:
		c.Reason = v1alpha1.ReasonWaiting
		c.Message = fmt.Sprintf("waiting for the deletion of %s with a name that is needed: if that takes long, "+
			"look for finalizers with kubectl get service -o yaml", words.Count(len(r.Changes[plan.Wait]), "Service"))
	case r.SelectsNothing:
		c.Reason, c.Message = v1alpha1.ReasonNoNodesSelected, r.noNodesSelected(ls)
	case r.isUnpublished():
		c.Reason = v1alpha1.ReasonNoEndpointSlices
		c.Message = "Kubernetes has not published the pods in EndpointSlices yet: is kube-controller-manager running?"
	case r.Copies.Count(plan.Wait) > 0:
		c.Reason = v1alpha1.ReasonWaiting
		c.Message = fmt.Sprintf("waiting for the deletion of %s with a name that is needed: of an earlier Service, "+
			"which Kubernetes deletes, or managed by somebody else, as kubectl get endpointslices --show-labels says",
			words.Count(r.Copies.Count(plan.Wait), "EndpointSlice"))
	case r.Nodes == 0:
		c.Reason, c.Message = v1alpha1.ReasonNoNodesSelected, r.noNodesSelected(ls)
	case r.IsHostnames:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonHostnamesInPlace
		c.Message = "every name is published" + r.answering(ls, "name") + r.ungrouped(ls) + r.translating(ls)
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonServicesInPlace
		c.Message = "every selected node has its Service" + r.answering(ls, "node") + r.translating(ls)
	}
	if c.Status == metav1.ConditionTrue && r.Ready == 0 {
		c.Reason = v1alpha1.ReasonNoneAnswering
	}
	return c
}

// answering reports how many names answer, and how to find out why others do not: the controller does not watch pods
// for that. Ready is True all the same, because the controller is not responsible for the pods.
func (r *report) answering(ls *v1alpha1.LocalService, noun string) string {
	saysWhy := fmt.Sprintf("kubectl localservice nodes -n %s %s says why", ls.Namespace, ls.Name)
	if ls.Spec.PublishNotReadyAddresses {
		saysWhy += "; pods that are not ready are published all the same (publishNotReadyAddresses)"
	}
	switch pods := labels.FormatLabels(ls.Spec.Selector); {
	case r.Ready >= r.Nodes:
		return ""
	case r.Ready > 0:
		return fmt.Sprintf(", and %d of %s answer: %s", r.Ready, words.Count(r.Nodes, noun), saysWhy)
	case len(pods) <= causeLength:
		saysWhy = fmt.Sprintf("kubectl get pods -n %s -l %s -o wide shows the pods, and %s", ls.Namespace, pods,
			saysWhy)
	}
	if hint := words.SelectorHint(ls); hint != "" {
		saysWhy += "; " + hint
	}
	return ", and none answers: " + saysWhy
}

// ungrouped reports how many nodes have no part in the name of a group.
func (r *report) ungrouped(ls *v1alpha1.LocalService) string {
	if ls.Spec.GroupBy == "" || r.Nameless == 0 {
		return ""
	}
	return fmt.Sprintf("; no name for %s on which the label %s (spec.groupBy) is missing or empty",
		words.Count(r.Nameless, "node"), ls.Spec.GroupBy)
}

// translating reports which ports no pod has, and on which other ports clients reach the pods.
func (r *report) translating(ls *v1alpha1.LocalService) string {
	text := ""
	if unknown := unknownPorts(ls, r.PortNumbers); r.Ready > 0 && len(unknown) > 0 {
		text = fmt.Sprintf("; no container has a port named %s, which targetPort names: the names lead "+
			"to the pods, but have no such port", words.List(unknown, namesInMessage))
	}
	if ports := words.TranslatedPorts(ls, r.PortNumbers); ports != "" {
		text += "; " + ports
	}
	return text
}

// unknownPorts returns the names in targetPort, each with its protocol, that no ready pod of a headless LocalService
// has: its names resolve all the same, but no process listens. named is nil if no targetPort is a name.
func unknownPorts(ls *v1alpha1.LocalService, named plan.PortNumbers) (names []string) {
	if plan.HasClusterIPs(ls) || named == nil {
		return nil
	}
	for _, port := range ls.Spec.Ports {
		name := fmt.Sprintf("%s (%s)", port.TargetPort.StrVal, cmp.Or(port.Protocol, corev1.ProtocolTCP))
		if _, isKnown := named[port.Name]; !isKnown && port.TargetPort.StrVal != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// dropped reports which fields the API server drops from LocalServices, since its CustomResourceDefinition is older
// than the controller: what follows from such a field is not what the user wanted.
func dropped(lacking []string) string {
	if len(lacking) == 0 {
		return ""
	}
	return fmt.Sprintf("; when the controller started, the CustomResourceDefinition was older than it, so that the "+
		"API server may have dropped %s from this LocalService: install crd.yaml of the release, and set "+
		"them again", words.List(lacking, namesInMessage))
}

// noNodesSelected explains why a LocalService selects no node, and what stays for that reason.
func (r *report) noNodesSelected(ls *v1alpha1.LocalService) string {
	switch {
	case !r.SelectsNothing && ls.Spec.GroupBy != "":
		return fmt.Sprintf("no node has a value of the label %s (spec.groupBy), so there is no name to publish",
			ls.Spec.GroupBy)
	case !r.SelectsNothing:
		return "the cluster has no node"
	}
	message := "no node matches " + nodeSelection(ls)
	switch {
	case r.IsHostnames && r.InPlace+r.Stored() > 0:
		message += ", so no name is removed: every node has its name"
	case r.Held == 0:
		message += ", so there is nothing to create"
	}
	if r.Held > 0 {
		message += fmt.Sprintf(", so the Services of nodes that exist are kept, and their names still work (%d)",
			r.Held)
	}
	return message + ". Correct that or the labels of the nodes (kubectl get nodes --show-labels)"
}

// longestSelection limits the description of a node selection, in bytes.
const longestSelection = 512

// nodeSelection describes for people which nodes a LocalService selects. It cuts a very long description.
func nodeSelection(ls *v1alpha1.LocalService) string {
	var parts []string
	if len(ls.Spec.NodeSelector) > 0 {
		parts = append(parts, fmt.Sprintf("spec.nodeSelector %q", labels.FormatLabels(ls.Spec.NodeSelector)))
	}
	if len(ls.Spec.NodeSelectorTerms) > 0 {
		terms, _ := json.Marshal(ls.Spec.NodeSelectorTerms) // Strings always have a JSON form.
		parts = append(parts, "spec.nodeSelectorTerms "+words.Printable(string(terms)))
	}
	return words.Cut(strings.Join(parts, " and "), longestSelection)
}

// isStalled reports whether the reason of Ready persists until somebody edits something. A write that the API server
// refuses may succeed the next time, and a new node may soon get its labels, so these do not count. A write that cannot
// be made is not tried.
func isStalled(ready, progressing *metav1.Condition) bool {
	switch ready.Reason {
	case v1alpha1.ReasonWriteFailed:
		return progressing.Status == metav1.ConditionFalse
	case v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonHostnamesNotPermitted, v1alpha1.ReasonNameTaken,
		v1alpha1.ReasonContested:
		return true
	}
	return false
}

// progressing returns the condition Progressing. While nothing is being written, it has the reason of Ready.
func (r *report) progressing(reason string) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: reason,
		Message: "nothing is being written"}
	switch {
	case r.isWriting() || len(r.Changes[plan.Wait]) > 0 ||
		!r.hasFailed() && !r.SelectsNothing && (r.isUnpublished() || r.Copies.Count(plan.Wait) > 0):
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonWritingServices
		c.Message = "Services are being created, changed or deleted"
	case len(r.failed) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonWriteFailed, "failed writes are tried "+
			"again"
	}
	return c
}

// conflictedCondition returns the condition Conflicted.
func (r *report) conflictedCondition(ls *v1alpha1.LocalService) metav1.Condition {
	if len(r.Changes[plan.Conflict]) == 0 {
		return metav1.Condition{Type: v1alpha1.ConditionConflicted, Status: metav1.ConditionFalse,
			Reason: v1alpha1.ReasonNoConflict, Message: "no name is taken by a Service of somebody else"}
	}
	return metav1.Condition{Type: v1alpha1.ConditionConflicted, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonNameTaken, Message: summarizeConflicts(ls, r.Changes[plan.Conflict])}
}

// contestedCondition returns the condition Contested.
func (r *report) contestedCondition() metav1.Condition {
	message := words.Join(". ", summarizeAdmission(sets.List(r.contested)), summarizeUndone(r.undone))
	if message == "" {
		return metav1.Condition{Type: v1alpha1.ConditionContested, Status: metav1.ConditionFalse,
			Reason: v1alpha1.ReasonNotContested, Message: "nothing else sets what the controller writes"}
	}
	return metav1.Condition{Type: v1alpha1.ConditionContested, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonContested, Message: message}
}

const notPermitted = "mode Hostnames needs the permission to write EndpointSlices, which the controller does " +
	"not have. The cluster's administrator grants it: with Helm by hostnames.enabled=true, otherwise by " +
	"hostnames.yaml of the release. The names are published within two minutes. Or recreate this " +
	"LocalService with mode: Services"

// isNotPermitted reports whether a write was refused because the controller lacks the permission to write
// EndpointSlices. An admission policy refuses with the same code, but in other words.
func isNotPermitted(err error) bool {
	e, ok := errors.AsType[*WriteError](err)
	return ok && e.Kind == EndpointSliceKind && IsDenied(e.Err) &&
		strings.Contains(e.Err.Error(), " cannot "+strings.ToLower(string(e.Action))+" resource ")
}

// Changed returns the conditions whose status or reason differs from before. It ignores messages, which may change
// with every Service, or with every answer of the API server.
func Changed(before, after []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(after), func(condition metav1.Condition) bool {
		old := meta.FindStatusCondition(before, condition.Type)
		return old != nil && old.Status == condition.Status &&
			(old.Reason == condition.Reason || isInPlace(old) && isInPlace(&condition))
	})
}

// isInPlace reports whether the names are in place, answering or not.
func isInPlace(c *metav1.Condition) bool {
	switch c.Reason {
	case v1alpha1.ReasonServicesInPlace, v1alpha1.ReasonHostnamesInPlace, v1alpha1.ReasonNoneAnswering:
		return true
	}
	return false
}

// Warnings returns the conditions that begin to need attention, or need it for another reason.
func Warnings(before, after []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(Changed(before, after), func(c metav1.Condition) bool { return !needsAttention(&c) })
}

// Recovered returns the conditions that no longer need attention.
func Recovered(before, after []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(after), func(c metav1.Condition) bool {
		old := meta.FindStatusCondition(before, c.Type)
		return old == nil || !needsAttention(old) || needsAttention(&c)
	})
}

func needsAttention(c *metav1.Condition) bool {
	switch c.Type {
	case v1alpha1.ConditionConflicted, v1alpha1.ConditionContested:
		return c.Status == metav1.ConditionTrue
	case v1alpha1.ConditionReady:
		return slices.Contains([]string{v1alpha1.ReasonWriteFailed, v1alpha1.ReasonInvalidSpec,
			v1alpha1.ReasonHostnamesNotPermitted, v1alpha1.ReasonNoNodesSelected}, c.Reason)
	}
	return false
}
