package diagnose

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// podsInMessage is how many pods a message names before it only counts.
const podsInMessage = 3

// purposes say what the Services of mode Hostnames are for.
var purposes = map[plan.Purpose]string{
	plan.Published: "publishes the names",
	plan.Source:    "finds the pods",
}

// whyTerminating is why a pod that is being deleted is not ready.
const whyTerminating = "Terminating"

// serviceProblem finds what is wrong with a Service itself. node is "" unless the purpose is plan.ForNode.
func (v *view) serviceProblem(purpose plan.Purpose, node string) (Reason, string) {
	ls, serviceName := v.LocalService, plan.ServiceName(v.LocalService.Name, purpose, node)
	about, taken := "the Service", "the name "+serviceName
	if purpose != plan.ForNode { // Which of the two?
		about = fmt.Sprintf("Service %s, which %s,", serviceName, purposes[purpose])
		taken = fmt.Sprintf("the name %s of the Service that %s", serviceName, purposes[purpose])
	}
	service := v.services[serviceName]
	unwritten := v.whyUnwritten
	switch label := v.missing[node]; {
	case label != "" && !isServiceOf(service, node):
		return ServiceMissing, v.whyWithheld("no Service", label)
	case label != "":
		unwritten = func(problem, _ string) string { return v.whyWithheld(problem, label) }
	}
	if service == nil && v.quota != nil {
		v.saidByStatus = true
		return ServiceMissing, v.quota.message()
	}
	if service == nil {
		if purpose == plan.ForNode {
			return ServiceMissing, v.whyUnwritten("no Service", "created it")
		}
		return ServiceMissing, v.whyUnwritten(about+" is missing", "created it")
	}
	var selector labels.Set
	switch purpose {
	case plan.ForNode:
		selector = labels.Merge(ls.Spec.Selector, labels.Set{v.nodeLabelKey: naming.NodeLabelValue(node)})
	case plan.Source:
		selector = ls.Spec.Selector
	}
	groupBy := service.Annotations[v1alpha1.GroupByAnnotationKey]
	switch holder := plan.HolderOf(ls, purpose, node, v.nodeLabelKey, plan.FromAPI(service, v.nodeLabelKey)); {
	case holder == plan.Predecessor:
		return ServiceTerminating, fmt.Sprintf("%s is one of an earlier LocalService %s, and is deleted with that",
			about, ls.Name)
	case holder == plan.Foreign:
		return NameConflict, taken + conflict(service)
	case service.DeletionTimestamp != nil:
		return ServiceTerminating, about + " is being deleted"
	case holder == plan.Orphan:
		return ServiceOutdated, unwritten(about+" has lost its owner", "adopted it")
	case service.Labels[v1alpha1.OwnerLabelKey] != ls.Name:
		return ServiceOutdated, unwritten(fmt.Sprintf("%s has lost its label %s=%s", about,
			v1alpha1.OwnerLabelKey, ls.Name), "corrected it")
	case !labels.Equals(service.Spec.Selector, selector):
		return ServiceOutdated, unwritten(fmt.Sprintf("%s selects %s instead of %s", about,
			labels.Set(service.Spec.Selector), selector), "corrected it")
	case purpose == plan.Published && groupBy != ls.Spec.GroupBy:
		return ServiceOutdated, unwritten(fmt.Sprintf("%s has groupBy %q instead of %q", about, groupBy,
			ls.Spec.GroupBy), "corrected it")
	}
	return "", ""
}

// isServiceOf reports whether a Service, nil for none, is that of a node.
func isServiceOf(service *corev1.Service, node string) bool {
	return service != nil && service.Annotations[v1alpha1.NodeAnnotationKey] == node
}

// missingLabels returns the nodes that lack a label that their Services need, with the key of the label.
func missingLabels(in Input) map[string]string {
	if readyOf(in.LocalService).Reason == v1alpha1.ReasonInvalidSpec {
		return nil // A key may be none.
	}
	missing := map[string]string{}
	for node, set := range in.Nodes {
		if label := plan.MissingLabel(in.LocalService, set); set != nil && label != "" {
			missing[node] = label
		}
	}
	return missing
}

// whyWithheld says that a node lacks a label that its Service needs.
func (v *view) whyWithheld(problem, label string) string {
	v.saidByStatus = readyOf(v.LocalService).Reason == v1alpha1.ReasonNodeLabelMissing
	return fmt.Sprintf("%s; the node has no label %s, for which spec.serviceMetadata has a variable: label the node, or "+
		"correct the key", problem, label)
}

// whyUnwritten says why the controller has not written what a problem needs, as far as the LocalService's status says:
// its write was refused, or it has not acted yet.
func (v *view) whyUnwritten(problem, written string) string {
	ready := readyOf(v.LocalService)
	switch {
	case v.LocalService.DeletionTimestamp != nil:
		return problem + "; the LocalService is being deleted"
	case isRefused(v.LocalService), ready.Reason == v1alpha1.ReasonWritingServices:
		v.saidByStatus = true
		return problem + "; " + ready.Message
	}
	v.waiting = true
	v.saidByStatus = ready.Reason == v1alpha1.ReasonWaitingForController
	return problem + "; the controller has not " + written + " yet"
}

// isRefused reports whether the status says why something is not written, for the current spec.
func isRefused(ls *v1alpha1.LocalService) bool {
	ready := readyOf(ls)
	if ready.Status != metav1.ConditionFalse || ls.Status.ObservedGeneration < ls.Generation {
		return false
	}
	switch ready.Reason {
	case v1alpha1.ReasonWriteFailed, v1alpha1.ReasonHostnamesNotPermitted, v1alpha1.ReasonInvalidSpec,
		v1alpha1.ReasonContested, v1alpha1.ReasonWaiting, v1alpha1.ReasonNodeLabelMissing:
		return true
	}
	return false
}

// conflict says who controls a Service whose name a LocalService needs.
func conflict(service *corev1.Service) string {
	controller := plan.ControllerOf(service)
	if controller == (plan.Controller{}) {
		return " is taken by a Service without an owner: if nothing uses it, delete it; if the app needs it, " +
			"create this LocalService under another name"
	}
	return " is taken by a Service of " + controller.Description() + ": create this LocalService under another name"
}

// podProblem finds what is wrong with the pods of a name, given its endpoints in the EndpointSlices.
func (v *view) podProblem(name *name, n *Node) (Reason, string) {
	value, published := naming.NodeLabelValue(name.node), n.Endpoints
	label := v.nodeLabelKey + "=" + value
	pods := map[Reason][]string{} // "" for those that are ready, and not published
	var mislabelled []*corev1.Pod // or unlabelled
	addresses := sets.New(n.Addresses...)
	for _, pod := range v.strays[value] {
		pods[PodsOfOtherNode] = append(pods[PodsOfOtherNode], fmt.Sprintf("%s (%s)", pod.Name, pod.Spec.NodeName))
	}
	for _, pod := range name.pods {
		why := v.whyNotReady(pod)
		switch {
		case completed(pod):
			pods[PodsCompleted] = append(pods[PodsCompleted], fmt.Sprintf("%s (%s)", pod.Name, why.word))
		case pod.DeletionTimestamp != nil:
			pods[PodsTerminating] = append(pods[PodsTerminating], pod.Name)
		case v.hostnames == nil && pod.Labels[v.nodeLabelKey] != value:
			mislabelled = append(mislabelled, pod)
		case why.word != "":
			pods[PodsNotReady] = append(pods[PodsNotReady], pod.Name+": "+why.text)
		case !hasAddress(pod, addresses):
			pods[""] = append(pods[""], pod.Name)
		}
	}
	const manager = "kube-controller-manager" // writes what Kubernetes publishes
	switch {
	case len(pods[PodsOfOtherNode]) > 0:
		return PodsOfOtherNode, fmt.Sprintf("labelled %s, but on another node: %s; %s", label,
			firstOf(pods[PodsOfOtherNode]), v.whyStray(v.strays[value][0]))
	case len(mislabelled) > 0:
		return v.labelProblem(label, value, mislabelled)
	case len(v.stale[n.Name()]) > 0:
		return EndpointsNotPublished, fmt.Sprintf("the name leads to %s, where no pod is any more: "+manager+
			" has not removed it", firstOf(v.stale[n.Name()]))
	case v.notReady(name) != "" && (published.Ready == 0 || len(pods[PodsNotReady]) > 0):
		return NodeNotReady, v.notReady(name)
	case len(pods[PodsNotReady]) > 0 && (published.Ready == 0 || !v.LocalService.Spec.PublishNotReadyAddresses):
		return PodsNotReady, strings.Join(someOf(pods[PodsNotReady]), "; ")
	case len(pods[""]) > 0:
		return EndpointsNotPublished, fmt.Sprintf("ready, but not in the EndpointSlices: %s; "+manager+
			" has not added it yet", firstOf(pods[""]))
	case published.Ready < published.Total:
		return EndpointsNotPublished, fmt.Sprintf("%d of %d endpoints are ready, although all pods are; "+manager+
			" has not corrected it yet", published.Ready, published.Total)
	case published.Ready > 0:
		return "", ""
	case len(pods[PodsTerminating]) > 0:
		return PodsTerminating, "only terminating pods: " + firstOf(pods[PodsTerminating])
	case len(pods[PodsCompleted]) > 0:
		return PodsCompleted, "only ended pods: " + firstOf(pods[PodsCompleted])
	}
	return v.whyNoPod(name)
}

// whyNoPod says why a name has no pod, as far as nodes and pods show.
func (v *view) whyNoPod(name *name) (Reason, string) {
	message := fmt.Sprintf("no pod with %s here", labels.Set(v.LocalService.Spec.Selector))
	if waiting := len(v.pods[""]); waiting > 0 {
		message += fmt.Sprintf(" (%d not scheduled yet)", waiting)
	}
	theNode, are := "the node", " is"
	if v.LocalService.Spec.GroupBy != "" {
		theNode, are = "its nodes", " are"
	}
	if v.cordoned(name) {
		return NodeCordoned, message + "; " + theNode + are + " cordoned"
	}
	if taint := v.untolerated(name); taint != "" {
		return NodeTainted, message + "; its pods do not tolerate the taint " + taint + " of " + theNode
	}
	return NoPods, message
}

// someOf returns the first few items, and how many more there are.
func someOf(items []string) []string {
	if more := len(items) - podsInMessage; more > 0 {
		return append(items[:podsInMessage:podsInMessage], fmt.Sprintf("%d more", more))
	}
	return items
}

// firstOf lists the first few items, and counts the rest.
func firstOf(items []string) string { return strings.Join(someOf(items), ", ") }
