package diagnose

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// The reasons: see Reasons. NameGone is the last one that a watch reports for a name.
const (
	NodeWithoutName   Reason = "NodeWithoutName"
	NameConflict      Reason = "NameConflict"
	ServiceMissing    Reason = "ServiceMissing"
	ServiceOutdated   Reason = "ServiceOutdated"
	EndpointsOutdated Reason = "EndpointsOutdated"
	PodsMislabelled   Reason = "PodsMislabelled"
	NodeNotReady      Reason = "NodeNotReady"
	PodsNotReady      Reason = "PodsNotReady"
	PortsMissing      Reason = "PortsMissing"
	PodsEnded         Reason = "PodsEnded"
	NodeUnschedulable Reason = "NodeUnschedulable"
	NoPods            Reason = "NoPods"
	NameGone          Reason = "NameGone"
)

// Reasons says what the reasons mean, in the order of the first rule for each.
var Reasons = []struct {
	Reason Reason
	Means  string
}{
	{NameConflict, "the name is taken by a Service of somebody else, or is that of another node"},
	{NodeWithoutName, "the node has no value of the label that spec.groupBy names"},
	{ServiceMissing, "there is no Service for the name, or with mode: Hostnames for its pods"},
	{ServiceOutdated, "the Service is being deleted, or differs from what the LocalService says"},
	{EndpointsOutdated, "what is published under the name is not what the pods are"},
	{PodsMislabelled, "pods have no node label, or that of another node"},
	{NodeNotReady, "the node is not ready, so that nothing on it answers"},
	{PodsNotReady, "pods on the node are not ready"},
	{PortsMissing, "no container of the pods has a port of the name that targetPort gives"},
	{PodsEnded, "all pods on the node are being deleted, or have ended"},
	{NodeUnschedulable, "no pod is on the node, which is cordoned or has a taint that no pod tolerates"},
	{NoPods, "no pod on the node has the labels of the LocalService's selector"},
}

// nameGone is the cause of NameGone.
const nameGone = "gone: the LocalService does not give this name any more"

// rule describes one thing that may be wrong with a name. It sees facts and changes nothing.
type rule struct {
	reason Reason
	// state is that of the name while nothing answers.
	state   State
	applies func(*name) bool
	// cause says what is wrong, in words that names with the same problem share; about names what it is about, such as
	// pods; act says what to do.
	cause func(*name) string
	about func(*name) []string
	act   func(*name) string
	// status are the reasons of the condition Ready that are about the same: the page has one line for both.
	status []string
	// waits is true if the controller is to change this, unless its status says why it does not.
	waits bool
}

// rules lists what may be wrong with a name, the most specific first. A name has the first rule that applies.
var rules = []rule{
	{reason: NameConflict, state: Down, applies: func(n *name) bool { return n.rival != "" },
		cause:  func(n *name) string { return "the name is that of node " + own(n.rival) },
		act:    always("select only one of the two nodes"),
		status: []string{v1alpha1.ReasonNameTaken}},
	{reason: NodeWithoutName, state: Empty, applies: func(n *name) bool { return n.serviceName == "" },
		cause: whyNoName, status: []string{v1alpha1.ReasonNoNodesSelected}},
	{reason: NameConflict, state: Down, applies: serviceIs(taken), cause: whyTaken, about: theService, act: howToFree,
		status: []string{v1alpha1.ReasonNameTaken}},
	{reason: ServiceMissing, state: Down, applies: serviceIs(missing),
		cause:  func(n *name) string { return untilWritten(n, ifTwo("no Service", "%s is missing", n)) },
		status: unwritten, waits: true},
	{reason: ServiceOutdated, state: Down, applies: serviceIs(earlier), cause: func(n *name) string {
		return ifTwo("the Service", "%s", n) + " is one of an earlier LocalService " + n.LocalService.Name +
			", and is deleted with that"
	}, status: unwritten},
	{reason: ServiceOutdated, state: Down, applies: serviceIs(terminating),
		cause: func(n *name) string { return ifTwo("the Service", "%s", n) + " is being deleted" }, status: unwritten},
	{reason: ServiceOutdated, state: Down, applies: serviceIs(differs), cause: whyOutdated, about: inServicesSelector,
		status: unwritten, waits: true},
	{reason: EndpointsOutdated, state: Down,
		applies: func(n *name) bool { return n.hostnames != nil && !n.hostnames.isPublished },
		cause:   always(manager + " has not published the pods in EndpointSlices yet"),
		status:  []string{v1alpha1.ReasonNoEndpointSlices}},
	{reason: EndpointsOutdated, state: Down,
		applies: func(n *name) bool { return n.hostnames != nil && n.hostnames.outdated.Has(n.hostname) },
		cause:   whyCopyOutdated, about: func(n *name) []string { return n.stale }, status: unwritten, waits: true},
	{reason: PodsMislabelled, state: Down, applies: func(n *name) bool { return len(strays(n)) > 0 },
		cause: func(n *name) string { return "pods on another node have the label " + labelOf(n) },
		about: func(n *name) []string {
			return each(strays(n), func(p *pod) string { return p.Name + " on " + p.object.Spec.NodeName })
		}, act: always(seeOwner), waits: true},
	{reason: PodsMislabelled, state: Down, applies: func(n *name) bool { return len(mislabelled(n)) > 0 },
		cause: func(n *name) string { return "the label " + n.nodeLabelKey + " of pods is not their node" },
		about: func(n *name) []string {
			return each(mislabelled(n), func(p *pod) string { return p.Name + ": " + p.NodeLabel })
		}, act: always(seeOwner), waits: true},
	{reason: PodsMislabelled, state: Down, applies: func(n *name) bool { return len(unlabelled(n)) > 0 },
		cause: func(n *name) string { return "pods have no label " + n.nodeLabelKey },
		about: func(n *name) []string { return each(unlabelled(n), podName) }, act: seeEvents, waits: true},
	{reason: EndpointsOutdated, state: Down, applies: func(n *name) bool { return len(n.stale) > 0 },
		cause: always("the name leads to addresses that no pod has any more; " + manager + " has not removed them yet"),
		about: func(n *name) []string { return n.stale }},
	{reason: NodeNotReady, state: Down, applies: func(n *name) bool {
		return n.state.notReady && (n.published.Ready == 0 || len(unready(n)) > 0)
	}, cause: func(n *name) string { return theNode(n, "is", "are") + " NotReady" }, about: sinceNotReady},
	{reason: PodsNotReady, state: Down, applies: func(n *name) bool { return len(unready(n)) > 0 },
		cause: func(n *name) string { return unready(n)[0].cause }, about: aboutUnready, act: howToStart},
	{reason: EndpointsOutdated, state: Down, applies: func(n *name) bool { return len(n.unpublished) > 0 },
		cause: always("pods are ready, but not in the EndpointSlices; " + manager + " has not added them yet"),
		about: func(n *name) []string { return each(n.unpublished, podName) }},
	{reason: EndpointsOutdated, state: Down, applies: func(n *name) bool { return n.published.Ready < n.published.Total },
		cause: func(n *name) string {
			return fmt.Sprintf("%d of %d endpoints are ready, the others are of no pod here; their EndpointSlice is "+
				"managed by %s", n.published.Ready, n.published.Total, own(n.manager))
		}},
	{reason: PortsMissing, state: Down, applies: func(n *name) bool { return len(n.missingPorts) > 0 },
		cause: whyNoPort, about: declaredPorts},
	{reason: "", state: Healthy, applies: func(n *name) bool { return n.published.Ready > 0 }},
	{reason: PodsEnded, state: Down, applies: func(n *name) bool { return len(terminatingPods(n)) > 0 },
		cause: always("only terminating pods"),
		about: func(n *name) []string { return each(terminatingPods(n), podName) }},
	{reason: PodsEnded, state: Empty, applies: func(n *name) bool { return len(n.pods) > 0 },
		cause: always("only ended pods"),
		about: func(n *name) []string {
			return each(n.pods, func(p *pod) string { return p.Name + ": " + p.Reason })
		}},
	{reason: NodeUnschedulable, state: Empty, applies: func(n *name) bool { return n.state.cordoned },
		cause: func(n *name) string { return noPod(n) + "; " + theNode(n, "is", "are") + " cordoned" }, about: pending},
	{reason: NodeUnschedulable, state: Empty, applies: func(n *name) bool { return len(n.state.taints) > 0 },
		cause: func(n *name) string {
			return noPod(n) + "; its pods do not tolerate the taint " + n.state.taints[0].ToString() + " of " +
				theNode(n, "", "")
		}, about: pending},
	{reason: NoPods, state: Empty, applies: func(*name) bool { return true }, cause: whyNoPod, about: pending},
}

// manager writes what Kubernetes publishes.
const manager = "kube-controller-manager"

const seeOwner = "the controller corrects it, unless the pods' owner selects them by it: then give that another " +
	"selector (the pods' events say which)"

func always(text string) func(*name) string { return func(*name) string { return text } }

func podName(p *pod) string { return p.Name }

// each describes pods.
func each(pods []*pod, describe func(*pod) string) (texts []string) {
	for _, p := range pods {
		texts = append(texts, describe(p))
	}
	return texts
}

// podsThat returns the pods of a name for which something is true.
func podsThat(pods []*pod, is func(*pod) bool) []*pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *pod) bool { return !is(p) })
}

func runs(p *pod) bool { return !p.ended && !p.terminating }

func terminatingPods(n *name) []*pod {
	return podsThat(n.pods, func(p *pod) bool { return p.terminating && !p.ended })
}

func unready(n *name) []*pod {
	return podsThat(n.pods, func(p *pod) bool { return runs(p) && !p.Ready })
}

func mislabelled(n *name) []*pod {
	return podsThat(n.pods, func(p *pod) bool { return runs(p) && !p.isLabelled && p.hasLabel })
}

func unlabelled(n *name) []*pod {
	return podsThat(n.pods, func(p *pod) bool { return runs(p) && !p.isLabelled && !p.hasLabel })
}

// strays returns the pods on other nodes that have the label of this one.
func strays(n *name) []*pod { return n.facts.strays[naming.NodeLabelValue(n.node)] }

func labelOf(n *name) string { return n.nodeLabelKey + "=" + naming.NodeLabelValue(n.node) }

// theNode names the node, or the nodes of a group, with a verb.
func theNode(n *name, is, are string) string {
	if n.LocalService.Spec.GroupBy != "" {
		return strings.TrimSpace("its nodes " + are)
	}
	return strings.TrimSpace("the node " + is)
}

func serviceIs(problem serviceProblem) func(*name) bool {
	return func(n *name) bool { return n.service.problem == problem }
}

// purposes say what the Services of mode Hostnames are for.
var purposes = map[plan.Purpose]string{plan.Published: "publishes the names", plan.Source: "finds the pods"}

// ifTwo says something of the Service of a name. In mode Hostnames, it says of which of the two.
func ifTwo(one, two string, n *name) string {
	if n.service.purpose == plan.ForNode {
		return one
	}
	return fmt.Sprintf(two, fmt.Sprintf("Service %s, which %s,", n.service.name, purposes[n.service.purpose]))
}

// untilWritten adds to a problem why the controller has not written what it needs: its status says so, or it has not
// acted yet.
func untilWritten(n *name, problem string) string {
	switch {
	case n.LocalService.DeletionTimestamp != nil:
		return problem + "; the LocalService is being deleted"
	case n.refusal != "":
		return problem + "; " + words.Printable(n.refusal)
	}
	return problem + "; the controller has not written it yet"
}

func whyNoName(n *name) string {
	groupBy := n.LocalService.Spec.GroupBy
	if known := n.nodes[n.node]; known != nil && known.labels.Has(groupBy) {
		return "the label " + groupBy + " (spec.groupBy) of the node is empty, and its value would be the name"
	}
	return "the node has no label " + groupBy + " (spec.groupBy), and so no name"
}

func whyTaken(n *name) string {
	name := ifTwo("the name", "the name of %s", n)
	if n.service.controller == (plan.Controller{}) {
		return name + " is taken by a Service without an owner"
	}
	return name + " is taken by a Service of " + own(n.service.controller.Description())
}

func theService(n *name) []string { return []string{n.service.name} }

func howToFree(n *name) string {
	if n.service.controller == (plan.Controller{}) {
		return "if nothing uses it, delete it; if the app needs it, create this LocalService under another name"
	}
	return "create this LocalService under another name: deleting the Service does not help, as its owner would " +
		"create it again"
}

func whyOutdated(n *name) string {
	service := ifTwo("the Service", "%s", n)
	switch n.service.field {
	case "owner":
		return untilWritten(n, service+" has lost its owner")
	case "selector":
		return untilWritten(n, service+" has another selector than the LocalService says")
	}
	return untilWritten(n, fmt.Sprintf("%s has the %s %q instead of %q", service, n.service.field, own(n.service.have),
		n.service.want))
}

// inServicesSelector says what a selector is, and what it should be.
func inServicesSelector(n *name) []string {
	if n.service.field != "selector" {
		return nil
	}
	return []string{fmt.Sprintf("%q instead of %q", own(n.service.have), n.service.want)}
}

func whyCopyOutdated(n *name) string {
	switch {
	case len(n.stale) > 0:
		return untilWritten(n, "the name leads to addresses where no pod is ready any more")
	case n.published.Total > 0:
		return untilWritten(n, "the endpoints of the name are out of date")
	}
	return untilWritten(n, "the name is not published")
}

func seeEvents(n *name) string {
	if n.Controller.Stopped {
		return ""
	}
	return "the pods' events say whether it was refused"
}

func sinceNotReady(n *name) []string {
	if text := since(n.state.since, n.Now, n.Stable); text != "" {
		return []string{text}
	}
	return nil
}

// aboutUnready names the pods with the cause of the first one, and then the others with theirs.
func aboutUnready(n *name) (same []string) {
	var others []string
	for _, p := range unready(n) {
		switch text := strings.TrimSuffix(p.Name+": "+p.note, ": "); {
		case p.cause == unready(n)[0].cause:
			same = append(same, text)
		default:
			others = append(others, p.Name+": "+p.cause)
		}
	}
	return append(same, others...)
}

func howToStart(n *name) string {
	waits := func(p *pod) bool { return p.waitsForItself }
	if n.published.Ready == 0 && !n.LocalService.Spec.PublishNotReadyAddresses &&
		slices.ContainsFunc(unready(n), waits) {
		return "if it waits for its own name, which it gets only when it is ready, set publishNotReadyAddresses: " +
			"true in the LocalService"
	}
	return ""
}

func whyNoPort(n *name) string {
	var targets, ports []string
	for i := range n.missingPorts {
		port := &n.missingPorts[i]
		target := fmt.Sprintf("%q", port.TargetPort.StrVal)
		if port.Protocol != "" && port.Protocol != corev1.ProtocolTCP {
			target += " for " + string(port.Protocol)
		}
		targets, ports = append(targets, target), append(ports, fmt.Sprint(port.Port))
	}
	return fmt.Sprintf("no container has a port named %s: nothing listens behind port %s", strings.Join(targets, ", "),
		strings.Join(ports, ", "))
}

// declaredPorts says which ports the first ready pod names.
func declaredPorts(n *name) []string {
	for _, p := range n.pods {
		if named := namedPorts(p.object); p.Ready && len(named) > 0 {
			return []string{p.Name + " has " + first(named)}
		} else if p.Ready {
			return []string{p.Name + " names no port"}
		}
	}
	return nil
}

func noPod(n *name) string {
	return fmt.Sprintf("no pod with %s here", labels.FormatLabels(n.LocalService.Spec.Selector))
}

// pending counts the pods that no node has yet.
func pending(n *name) []string {
	if waiting := len(n.facts.pods[""]); waiting > 0 {
		return []string{fmt.Sprintf("%d not scheduled yet", waiting)}
	}
	return nil
}

func whyNoPod(n *name) string {
	if waiting := n.facts.pods[""]; len(waiting) > 0 {
		return noPod(n) + "; " + waiting[0].cause
	}
	return noPod(n)
}
