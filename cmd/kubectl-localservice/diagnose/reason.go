package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// podsInMessage is how many pods a message names before it only counts.
const podsInMessage = 3

// whatFor says what the Services of mode Hostnames are for.
var whatFor = map[plan.Purpose]string{
	plan.Published: "which publishes the names",
	plan.Source:    "which finds the pods",
}

// whyTerminating is why a pod that is being deleted is not ready.
const whyTerminating = "Terminating"

// serviceProblem finds what is wrong with a Service itself. node is "" unless the purpose is plan.ForNode.
func (v *view) serviceProblem(purpose plan.Purpose, node string) (reason Reason, message string) {
	ls := v.LocalService
	if purpose != plan.ForNode {
		defer func() {
			if reason != "" { // Which of the two?
				message = fmt.Sprintf("Service %s, %s: %s", plan.ServiceName(ls.Name, purpose, ""),
					whatFor[purpose], message)
			}
		}()
	}
	service := v.services[plan.ServiceName(ls.Name, purpose, node)]
	if service == nil {
		return ServiceMissing, "no such Service: " + whyMissing(ls)
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
		return ServiceTerminating, fmt.Sprintf("the Service is one of an earlier LocalService %s, and will be "+
			"deleted with that", ls.Name)
	case holder == plan.Foreign:
		return NameConflict, conflict(service)
	case service.DeletionTimestamp != nil:
		return ServiceTerminating, "the Service is being deleted"
	case holder == plan.Orphan:
		return ServiceOutdated, "nothing controls the Service any more: is the controller running, to adopt it?"
	case service.Labels[v1alpha1.OwnerLabelKey] != ls.Name:
		return ServiceOutdated, fmt.Sprintf("the Service has lost its label %s=%s: is the controller running?",
			v1alpha1.OwnerLabelKey, ls.Name)
	case !labels.Equals(service.Spec.Selector, selector):
		return ServiceOutdated, fmt.Sprintf("the Service selects %s instead of %s: is the controller running?",
			labels.Set(service.Spec.Selector), selector)
	case purpose == plan.Published && groupBy != ls.Spec.GroupBy:
		return ServiceOutdated, fmt.Sprintf("the names go by groupBy: %q instead of %q: is the controller running?",
			groupBy, ls.Spec.GroupBy)
	}
	return "", ""
}

// whyMissing says why the controller has not made a Service, as far as the LocalService's status says.
func whyMissing(ls *v1alpha1.LocalService) string {
	ready := meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ls.DeletionTimestamp != nil:
		return "the LocalService is being deleted"
	case ready == nil, ready.Status == metav1.ConditionTrue, ls.Status.ObservedGeneration < ls.Generation:
		return "the controller has not noticed yet: is it running, and does it watch this namespace (-namespaces)?"
	}
	return "the controller says " + ready.Reason + ": " + ready.Message
}

// conflict says who controls a Service whose name a LocalService needs.
func conflict(service *corev1.Service) string {
	controller := plan.ControllerOf(service)
	if controller == (plan.Controller{}) {
		return "the name is taken by a Service without an owner: if nothing uses it, delete it; if the app needs it, " +
			"create this LocalService under another name"
	}
	return "the name is taken by a Service of " + controller.Description() +
		": create this LocalService under another name"
}

// podProblem finds what is wrong with the pods of a name, given its endpoints in the EndpointSlices.
func (v *view) podProblem(name *name, published Endpoints) (Reason, string) {
	value := naming.NodeLabelValue(name.node)
	label := v.nodeLabelKey + "=" + value
	pods := map[Reason][]string{} // "" for those that are ready
	var mislabelled []*corev1.Pod // or unlabelled
	add := func(reason Reason, pod *corev1.Pod, about string) {
		item := pod.Name
		if about != "" {
			item += " (" + about + ")"
		}
		pods[reason] = append(pods[reason], item)
	}
	for _, pod := range v.strays[value] {
		add(PodsOfOtherNode, pod, pod.Spec.NodeName)
	}
	for _, pod := range name.pods {
		switch why := whyNotReady(pod); {
		case completed(pod):
			add(PodsCompleted, pod, why)
		case pod.DeletionTimestamp != nil:
			add(PodsTerminating, pod, "")
		case v.hostnames == nil && pod.Labels[v.nodeLabelKey] != value:
			mislabelled = append(mislabelled, pod)
		case why != "":
			add(PodsNotReady, pod, why)
		default:
			add("", pod, "")
		}
	}
	ready := len(pods[""])
	switch {
	case len(pods[PodsOfOtherNode]) > 0:
		return PodsOfOtherNode, fmt.Sprintf("labelled %s, but on another node: %s; %s", label,
			firstOf(pods[PodsOfOtherNode]), v.whyStray(v.strays[value][0]))
	case len(mislabelled) > 0:
		return v.labelProblem(label, value, mislabelled)
	case len(pods[PodsNotReady]) > 0 && (published.Ready == 0 || !v.LocalService.Spec.PublishNotReadyAddresses):
		return PodsNotReady, "not ready: " + firstOf(pods[PodsNotReady])
	case published.Ready < max(ready, published.Total):
		return EndpointsNotPublished, fmt.Sprintf("%d of %d ready pods are in the EndpointSlices: is "+
			"kube-controller-manager running?", published.Ready, max(ready, published.Total))
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
	switch {
	case name.cordoned && v.LocalService.Spec.GroupBy != "":
		return NodeCordoned, message + "; its nodes are cordoned"
	case name.cordoned:
		return NodeCordoned, message + "; the node is cordoned"
	}
	return NoPods, message
}

// firstOf lists the first few items, and counts the rest.
func firstOf(items []string) string {
	if more := len(items) - podsInMessage; more > 0 {
		items = append(items[:podsInMessage:podsInMessage], fmt.Sprintf("%d more", more))
	}
	return strings.Join(items, ", ")
}

// whyNotReady says in a few words why a pod is not ready, much as `kubectl get pods` does; "" if it is.
func whyNotReady(pod *corev1.Pod) string {
	ready := podCondition(pod, corev1.PodReady)
	switch {
	case completed(pod):
		return cmp.Or(pod.Status.Reason, string(pod.Status.Phase)) // Evicted
	case pod.DeletionTimestamp != nil:
		return whyTerminating
	case ready.Status == corev1.ConditionTrue:
		return ""
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			return c.State.Waiting.Reason // CrashLoopBackOff, ImagePullBackOff, ContainerCreating
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
			return cmp.Or(c.State.Terminated.Reason, "Error") // OOMKilled
		}
	}
	// Probes and readiness gates are in the condition's message. Pods of a lost node are just not ready.
	return cmp.Or(ready.Message, pod.Status.Reason, "is its node down?")
}

// completed reports whether all containers of a pod have ended for good.
func completed(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// podCondition returns a condition of a pod, the zero value if it is not there.
func podCondition(pod *corev1.Pod, conditionType corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == conditionType {
			return c
		}
	}
	return corev1.PodCondition{}
}
