package diagnose

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

const (
	// podsInMessage is how many pods a message names before it only counts.
	podsInMessage = 3
	// statusLength is how many characters of a condition's message are repeated.
	statusLength = 200
)

// problem is why a node's Service does not answer. Its zero value is none.
type problem struct {
	reason  Reason
	message string
}

// serviceProblem finds what is wrong with a node's Service itself.
func (v *view) serviceProblem(node, name string) problem {
	service, labelled := v.services[name]
	if !labelled {
		other, found := v.others[name]
		if !found {
			return problem{ServiceMissing, "no such Service: " + v.whyMissing()}
		}
		service = &corev1.Service{ObjectMeta: other.ObjectMeta}
	}
	holder := plan.HolderOf(v.LocalService, node, v.NodeLabelKey, plan.FromAPI(service, v.NodeLabelKey))
	if !labelled && holder == plan.Ours {
		return problem{ServiceOutdated, fmt.Sprintf("the Service has lost its label %s=%s: is the controller running?",
			v1alpha1.OwnerLabelKey, v.LocalService.Name)}
	}
	want := maps.Clone(v.LocalService.Spec.Selector)
	if want == nil {
		want = map[string]string{}
	}
	want[v.NodeLabelKey] = naming.NodeLabelValue(node)
	switch {
	case holder == plan.Predecessor:
		return problem{ServiceTerminating, "the Service is one of an earlier LocalService " +
			"" + v.LocalService.Name + ", and will be deleted with that"}
	case holder == plan.Foreign:
		return problem{NameConflict, Conflict(service)}
	case service.DeletionTimestamp != nil:
		return problem{ServiceTerminating, "the Service is being deleted"}
	case holder == plan.Orphan:
		return problem{ServiceOutdated, "nothing controls the Service any more: is the controller running, to " +
			"adopt it?"}
	case !maps.Equal(service.Spec.Selector, want):
		return problem{ServiceOutdated, fmt.Sprintf("the Service selects %s instead of %s: is the controller running?",
			labels.Set(service.Spec.Selector), labels.Set(want))}
	}
	return problem{}
}

// whyMissing says why the controller has not made a Service, as far as the LocalService's status tells.
func (v *view) whyMissing() string {
	ls := v.LocalService
	ready := meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ls.DeletionTimestamp != nil:
		return "the LocalService is being deleted"
	case ready == nil:
		return "the controller has not seen the LocalService yet: is it running?"
	case ls.Status.ObservedGeneration < ls.Generation:
		return "the controller has not seen the LocalService's last change yet: is it running?"
	case ready.Status == metav1.ConditionTrue:
		return "the controller has not noticed yet: is it running?"
	}
	return fmt.Sprintf("the controller says %s: %s", ready.Reason, shorten(ready.Message, statusLength))
}

// Conflict says who controls a Service whose name a LocalService needs.
func Conflict(service metav1.Object) string {
	controller := plan.ControllerOf(service)
	if controller == (plan.Controller{}) {
		return "the name is taken by a Service that nothing controls: delete or rename it"
	}
	return "the name is taken by a Service of " + controller.Description()
}

// podProblem finds what is wrong with the pods of a node, given what its Service's EndpointSlices hold.
func (v *view) podProblem(node string, published Endpoints) problem {
	value := naming.NodeLabelValue(node)
	label := v.NodeLabelKey + "=" + value
	pods := v.sortOut(v.pods[node], value)
	switch strays := v.strays[value]; {
	case len(strays) > 0:
		return problem{PodsOfOtherNode, fmt.Sprintf("labelled %s, but on another node: %s; is the controller running?",
			label, describe(strays, func(pod *corev1.Pod) string { return pod.Spec.NodeName }))}
	case len(pods.unlabelled) > 0:
		return problem{PodsUnlabelled, fmt.Sprintf("no label %s: %s; is the controller running, or was the label "+
			"refused (see the pod's events)?",
			label, describe(pods.unlabelled, v.wrongLabel))}
	case len(pods.notReady) > 0 && (published.Ready == 0 || !v.LocalService.Spec.PublishNotReadyAddresses):
		return problem{PodsNotReady, "not ready: " + describe(pods.notReady, whyNotReady)}
	case published.Ready < len(pods.ready), published.Ready < published.Total:
		return problem{EndpointsNotPublished, fmt.Sprintf("%d of %d ready pods are in the EndpointSlices: is "+
			"kube-controller-manager running?",
			published.Ready, max(len(pods.ready), published.Total))}
	case published.Ready > 0:
		return problem{}
	case len(pods.terminating) > 0:
		return problem{PodsTerminating, "only terminating pods: " + describe(pods.terminating, nil)}
	case len(pods.completed) > 0:
		return problem{PodsCompleted, "only ended pods: " + describe(pods.completed, whyNotReady)}
	}
	message := fmt.Sprintf("no pod with %s here", labels.Set(v.LocalService.Spec.Selector))
	if waiting := len(v.pods[""]); waiting > 0 {
		message += fmt.Sprintf(" (%d not scheduled yet)", waiting)
	}
	return problem{NoPods, message}
}

// wrongLabel says what a pod has for its node label, "" for none.
func (v *view) wrongLabel(pod *corev1.Pod) string {
	if value, found := pod.Labels[v.NodeLabelKey]; found {
		return fmt.Sprintf("has %q", value)
	}
	return ""
}

// sorted are the pods of a node.
type sorted struct {
	ready, notReady, unlabelled, terminating, completed []*corev1.Pod
}

func (v *view) sortOut(pods []*corev1.Pod, labelValue string) sorted {
	var s sorted
	for _, pod := range pods {
		switch {
		case completed(pod):
			s.completed = append(s.completed, pod)
		case pod.DeletionTimestamp != nil:
			s.terminating = append(s.terminating, pod)
		case pod.Labels[v.NodeLabelKey] != labelValue:
			s.unlabelled = append(s.unlabelled, pod)
		case whyNotReady(pod) != "":
			s.notReady = append(s.notReady, pod)
		default:
			s.ready = append(s.ready, pod)
		}
	}
	return s
}

// describe names the first few pods, each with some words about it, and counts the rest.
func describe(pods []*corev1.Pod, about func(*corev1.Pod) string) string {
	var list []string
	for _, pod := range pods[:min(len(pods), podsInMessage)] {
		item := pod.Name
		if about != nil && about(pod) != "" {
			item += " (" + about(pod) + ")"
		}
		list = append(list, item)
	}
	if more := len(pods) - podsInMessage; more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}

func shorten(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
