package diagnose

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// The reasons: see Reasons.
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
)

// Reasons says what the reasons mean, in the order of the first rule for each.
var Reasons = []struct {
	Reason Reason
	Means  string
}{
	{NameConflict, "the name is taken by a Service of somebody else, or is that of another node or group"},
	{NodeWithoutName, "the node has no value of the label that spec.groupBy names"},
	{ServiceMissing, "there is no Service for the name, or with mode: Hostnames for its pods"},
	{ServiceOutdated, "the Service is being deleted, or differs from what the LocalService says"},
	{EndpointsOutdated, "what is published under the name is not what the pods are"},
	{PodsMislabelled, "pods have no node label, or that of another node"},
	{NodeNotReady, "the node is not ready, so that nothing on it answers"},
	{PodsNotReady, "pods on the node are not ready, or end again and again"},
	{PortsMissing, "no container of the pods has a port of the name that targetPort gives"},
	{PodsEnded, "all pods on the node are being deleted, or have ended"},
	{NodeUnschedulable, "no pod is on the node, which is cordoned, tainted, or left out by what makes the pods"},
	{NoPods, "no pod on the node has the labels of the LocalService's selector"},
}

// rule describes one thing that may be wrong with a name. It sees facts and changes nothing.
type rule struct {
	reason  Reason
	applies func(*name) bool
	find    func(*name) Finding // The cause is the same text for names with the same problem. The default state is Down.
}

// rules lists what may be wrong with a name, the most specific first. A name has the first rule that applies.
var rules = []rule{
	{NameConflict, func(n *name) bool { return n.rival != "" }, func(n *name) Finding {
		if groupBy := n.facts.LocalService.Spec.GroupBy; groupBy != "" {
			return Finding{Cause: "the name is that of value " + quoteForeign(n.rival),
				Act: "set the label " + groupBy + " to one value on the nodes of both"}
		}
		return Finding{Cause: "the name is that of node " + quoteForeign(n.rival), Act: "select only one of the two nodes"}
	}},
	{NodeWithoutName, func(n *name) bool { return n.result.Service == "" }, func(n *name) Finding {
		groupBy := n.facts.LocalService.Spec.GroupBy
		return Finding{State: Empty, Cause: "no value for label " + groupBy + " (spec.groupBy), so no name",
			Act: "set the label, or correct spec.groupBy: " + n.facts.Kubectl + " get nodes -L " + groupBy}
	}},
	serviceRule(NameConflict), serviceRule(ServiceMissing), serviceRule(ServiceOutdated),
	{EndpointsOutdated, func(n *name) bool {
		return n.facts.hostnames != nil && !n.facts.isPublished
	}, func(n *name) Finding {
		return unpublished(n, "the pods are not in EndpointSlices yet", plan.ServiceName(n.facts.LocalService.Name,
			plan.Source, ""))
	}},
	{EndpointsOutdated, func(n *name) bool { return n.facts.outdated.Has(n.result.Hostname) }, func(n *name) Finding {
		return untilWritten(n.facts, EndpointsOutdated, "the name is not up to date")
	}},
	{PodsMislabelled, func(n *name) bool { return len(n.mislabelled) > 0 }, whyMislabelled},
	{NodeNotReady, func(n *name) bool {
		return allNodes(n, func(node *corev1.Node) bool { return unreadiness(node) != nil }) &&
			(!n.result.Answers() || len(n.unready) > 0)
	}, func(n *name) Finding {
		f := Finding{Cause: theNodeIs(n) + "NotReady",
			About: since(unreadiness(n.on[0]).LastTransitionTime, n.facts.agesAt),
			Act:   fmt.Sprintf("see %s describe node %s", n.facts.Kubectl, n.on[0].Name)}
		if n.result.Endpoints.Total == 0 && len(n.pods) == 0 {
			f.State = Empty
		}
		return f
	}},
	{PodsNotReady, func(n *name) bool { return len(n.unready) > 0 }, func(n *name) Finding {
		return Finding{Cause: n.unready[0].cause, About: byCause(n.unready), Act: seePod(n, n.unready[0])}
	}},
	{EndpointsOutdated, func(n *name) bool { return len(n.unpublished) > 0 }, func(n *name) Finding {
		f := unpublished(n, "pods are ready, but not in the EndpointSlices", n.result.Service)
		f.About = each(n.unpublished, podName)
		return f
	}},
	{EndpointsOutdated, func(n *name) bool {
		return n.result.Endpoints.Ready < n.result.Endpoints.Total
	}, func(n *name) Finding {
		return Finding{Cause: fmt.Sprintf("%d of %d endpoints are ready, the others are of no pod here",
			n.result.Endpoints.Ready, n.result.Endpoints.Total), Act: fmt.Sprintf("see who manages their EndpointSlice: "+
			"%s get endpointslices -n %s -l kubernetes.io/service-name=%s --show-labels", n.facts.Kubectl,
			n.facts.LocalService.Namespace, n.result.Service)}
	}},
	{PortsMissing, func(n *name) bool { return len(n.missingPorts) > 0 }, func(n *name) Finding {
		var ports []string
		for _, port := range n.missingPorts {
			ports = append(ports, fmt.Sprintf("%q for port %s", port.TargetPort.StrVal, numbered(port.Port, port.Protocol)))
		}
		return Finding{Cause: "no container has a port named " + strings.Join(ports, ", "), About: namedPorts(n),
			Act: "correct targetPort, or name the container's port"}
	}},
	{ServiceOutdated, func(n *name) bool { return len(n.differs) > 0 && n.result.Answers() }, func(n *name) Finding {
		return untilWritten(n.facts, ServiceOutdated, "the Service differs from the LocalService in "+
			strings.Join(n.differs, ", "))
	}},
	{"", func(n *name) bool { return n.result.Answers() }, func(*name) Finding {
		return Finding{State: Healthy}
	}},
	{PodsEnded, func(n *name) bool { return len(n.terminating) > 0 }, func(n *name) Finding {
		return Finding{Cause: "only terminating pods", About: each(n.terminating, podName)}
	}},
	{PodsNotReady, func(n *name) bool { return len(n.waiting) > 0 }, func(n *name) Finding {
		return Finding{Cause: n.waiting[0].cause, About: byCause(n.waiting), Act: seePod(n, n.waiting[0])}
	}},
	{PodsEnded, func(n *name) bool { return len(n.pods) > 0 }, func(n *name) Finding {
		f := Finding{State: Empty, Cause: "only ended pods: " + n.pods[0].cause, About: byCause(n.pods)}
		if kind, _ := workloadOf(n.pods[0].object); kind == "Job" {
			f.Act = "a name needs pods that keep running, such as those of a Deployment or DaemonSet: a Job ends"
		}
		return f
	}},
	{NodeUnschedulable, func(n *name) bool {
		return allNodes(n, func(node *corev1.Node) bool { return n.facts.keepsOff(node) != "" })
	}, func(n *name) Finding { return noPod(n, theNodeIs(n)+n.facts.keepsOff(n.on[0])) }},
	{NoPods, func(*name) bool { return true }, func(n *name) Finding { return noPod(n, "") }},
}

// reported lists, by the reason of a name, the reasons of Ready about the same: the page has one line for both.
var reported = map[Reason][]string{
	NameConflict:      {v1alpha1.ReasonNameTaken},
	NodeWithoutName:   {v1alpha1.ReasonNoNodesSelected},
	ServiceMissing:    unwritten,
	ServiceOutdated:   unwritten,
	EndpointsOutdated: append([]string{v1alpha1.ReasonNoEndpointSlices}, unwritten...),
}

// findingOf returns what the first rule that applies to a name finds. The last one always applies.
func findingOf(n *name) Finding {
	r := &rules[slices.IndexFunc(rules, func(r rule) bool { return r.applies(n) })]
	found := r.find(n)
	found.Reason, found.State = r.reason, cmp.Or(found.State, Down)
	found.Message = words.Join("; ", found.CauseAbout(), found.Act)
	return found
}

// serviceRule returns the rule for a reason that compareService finds.
func serviceRule(reason Reason) rule {
	return rule{reason, func(n *name) bool { return n.service.Reason == reason },
		func(n *name) Finding { return n.service }}
}

// unpublished says why Kubernetes has not published the pods of a Service: in its own words, if there is an event. The
// name of the Service is also the beginning of those of its EndpointSlices.
func unpublished(n *name, problem, service string) Finding {
	message := n.facts.lastEvent(eventUnpublished, service, time.Time{})
	if message == "" {
		return Finding{Cause: problem + "; kube-controller-manager has not added them yet"}
	}
	message = regexp.MustCompile(`\b`+regexp.QuoteMeta(service)+`(-\w+)?`).ReplaceAllString(message, "…")
	return Finding{Cause: problem + "; " + quoteForeign(message), Act: "raise the quota, or correct what else that names"}
}

// whyMislabelled says which pods are on another node than their label says. Those of other nodes answer under the name.
func whyMislabelled(n *name) Finding {
	return Finding{Cause: "pods lack the label " + n.facts.nodeLabelKey + ", or have that of another node",
		About: each(n.mislabelled, func(p *pod) string {
			return p.Name + " on " + p.object.Spec.NodeName + " has " + cmp.Or(p.NodeLabel, "none")
		}),
		Act: cmp.Or(n.facts.idle, quoteForeign(n.facts.lastEvent(plan.EventNodeLabelRefused, n.facts.LocalService.Name,
			n.mislabelled[0].Created.Time)), "see whether the controller labels pods (-label-pods) and has all "+
			"permissions: "+n.facts.controllerLog())}
}

func podName(p *pod) string { return p.Name }

// each describes the first few pods.
func each(pods []*pod, describe func(*pod) string) string {
	texts := make([]string, len(pods)) // Thousands of pods may wait, for each of thousands of names.
	for i, p := range pods[:min(len(pods), maxListed)] {
		texts[i] = describe(p)
	}
	return first(texts)
}

// theNodeIs begins what is said of the node, or of the nodes of a group.
func theNodeIs(n *name) string {
	if len(n.on) > 1 {
		return "its nodes are "
	}
	return "the node is "
}

// byCause names the pods with the cause of the first one, and then the others with theirs.
func byCause(pods []*pod) string {
	isSame := func(p *pod) bool { return p.cause == pods[0].cause }
	others := only(pods, func(p *pod) bool { return !isSame(p) })
	return each(append(only(pods, isSame), others...), func(p *pod) string {
		if isSame(p) {
			return words.Join(": ", p.Name, p.note)
		}
		return p.Name + ": " + p.cause
	})
}

// seePod says what to do about a pod, or names the command that says more about what is wrong with it; "" for neither.
func seePod(n *name, p *pod) string {
	if p.more == "" || p.act != "" {
		return p.act
	}
	command := fmt.Sprintf("see %s %s -n %s %s", n.facts.Kubectl, p.more, p.object.Namespace, p.Name)
	if p.more == itsLog && p.Container != "" {
		command += " -c " + p.Container
	}
	if p.more == itsLog && p.Log == LogPrevious {
		command += " --previous"
	}
	return command
}

// namedPorts lists the ports that the pods name.
func namedPorts(n *name) string {
	named := sets.New[string]()
	for _, p := range n.pods {
		for _, port := range containerPorts(p.object) {
			if port.Name != "" {
				named.Insert(fmt.Sprintf("%q is %s", port.Name, numbered(port.ContainerPort, port.Protocol)))
			}
		}
	}
	return cmp.Or(first(sets.List(named)), "they name none")
}

// noPod says that no pod is on the node, and why.
func noPod(n *name, why string) Finding {
	f := Finding{State: Empty, Cause: words.Join("; ", "no matching pod here", why),
		About: labels.FormatLabels(n.facts.LocalService.Spec.Selector)}
	if why == "" {
		f.Act = tooFew(n.facts)
	}
	return f
}
