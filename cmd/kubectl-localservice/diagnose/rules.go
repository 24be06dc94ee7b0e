package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

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
	reason  Reason
	applies func(*name) bool
	// find says what is wrong. The cause is in words that names with the same problem share. Without a state, the name
	// is Down.
	find func(*name) Finding
	// status are the reasons of the condition Ready that are about the same: the page has one line for both.
	status []string
}

// rules lists what may be wrong with a name, the most specific first. A name has the first rule that applies.
var rules = []rule{
	{NameConflict, func(n *name) bool { return n.rival != "" }, func(n *name) Finding {
		return Finding{Cause: "the name is that of node " + own(n.rival), Act: "select only one of the two nodes"}
	}, nameTaken},
	{NodeWithoutName, func(n *name) bool { return n.Service == "" }, whyNoName,
		[]string{v1alpha1.ReasonNoNodesSelected}},
	{NameConflict, serviceIs(NameConflict), theService, nameTaken},
	{ServiceMissing, serviceIs(ServiceMissing), theService, unwritten},
	{ServiceOutdated, serviceIs(ServiceOutdated), theService, unwritten},
	{EndpointsOutdated, func(n *name) bool { return n.hostnames != nil && !n.isPublished }, func(*name) Finding {
		return Finding{Cause: manager + " has not published the pods in EndpointSlices yet"}
	}, []string{v1alpha1.ReasonNoEndpointSlices}},
	{EndpointsOutdated, func(n *name) bool { return n.outdated.Has(n.Hostname) }, whyCopyOutdated, unwritten},
	{PodsMislabelled, some(strays), func(n *name) Finding {
		return Finding{Cause: "pods on another node have the label " + n.nodeLabelKey + "=" +
			naming.NodeLabelValue(n.Node.Node), Act: seeOwner, Waits: true,
			About: each(strays(n), func(p *pod) string { return p.Name + " on " + p.object.Spec.NodeName })}
	}, nil},
	{PodsMislabelled, some(mislabelled), func(n *name) Finding {
		return Finding{Cause: "the label " + n.nodeLabelKey + " of pods is not their node", Act: seeOwner, Waits: true,
			About: each(mislabelled(n), func(p *pod) string { return p.Name + ": " + p.NodeLabel })}
	}, nil},
	{PodsMislabelled, some(unlabelled), func(n *name) Finding {
		found := Finding{Cause: "pods have no label " + n.nodeLabelKey, About: each(unlabelled(n), podName), Waits: true}
		if !n.Controller.Stopped {
			found.Act = "the pods' events say whether it was refused"
		}
		return found
	}, nil},
	{EndpointsOutdated, func(n *name) bool { return len(n.stale) > 0 }, func(n *name) Finding {
		return Finding{Cause: "the name leads to addresses that no pod has any more; " + manager +
			" has not removed them yet", About: first(n.stale)}
	}, nil},
	{NodeNotReady, func(n *name) bool {
		isNotReady := func(node *corev1.Node) bool { return unreadiness(node) != nil }
		return are(n, isNotReady) && (n.Endpoints.Ready == 0 || len(unready(n)) > 0)
	}, func(n *name) Finding {
		return Finding{Cause: theNode(n, "is", "are") + " NotReady", About: sinceNotReady(n)}
	}, nil},
	{PodsNotReady, some(unready), whyUnready, nil},
	{EndpointsOutdated, func(n *name) bool { return len(n.unpublished) > 0 }, func(n *name) Finding {
		return Finding{Cause: "pods are ready, but not in the EndpointSlices; " + manager + " has not added them yet",
			About: each(n.unpublished, podName)}
	}, nil},
	{EndpointsOutdated, func(n *name) bool { return n.Endpoints.Ready < n.Endpoints.Total }, func(n *name) Finding {
		return Finding{Cause: fmt.Sprintf("%d of %d endpoints are ready, the others are of no pod here; their "+
			"EndpointSlice is managed by %s", n.Endpoints.Ready, n.Endpoints.Total, own(n.manager))}
	}, nil},
	{PortsMissing, func(n *name) bool { return len(n.missingPorts) > 0 }, whyNoPort, nil},
	{"", func(n *name) bool { return n.Endpoints.Ready > 0 }, func(*name) Finding {
		return Finding{State: Healthy}
	}, nil},
	{PodsEnded, some(terminating), func(n *name) Finding {
		return Finding{Cause: "only terminating pods", About: each(terminating(n), podName)}
	}, nil},
	{PodsEnded, func(n *name) bool { return len(n.pods) > 0 }, func(n *name) Finding {
		return Finding{State: Empty, Cause: "only ended pods",
			About: each(n.pods, func(p *pod) string { return p.Name + ": " + p.Reason })}
	}, nil},
	{NodeUnschedulable, func(n *name) bool {
		return are(n, func(node *corev1.Node) bool { return node.Spec.Unschedulable })
	}, func(n *name) Finding { return noPod(n, theNode(n, "is", "are")+" cordoned") }, nil},
	{NodeUnschedulable, func(n *name) bool {
		return are(n, func(node *corev1.Node) bool { return n.keepsOff(node) != "" })
	}, func(n *name) Finding {
		return noPod(n, "its pods do not tolerate the taint "+n.keepsOff(n.on[0])+" of "+theNode(n, "", ""))
	}, nil},
	{NoPods, func(*name) bool { return true }, func(n *name) Finding {
		for _, waiting := range n.facts.pods[""] {
			return noPod(n, waiting.cause)
		}
		return noPod(n, "")
	}, nil},
}

// findingOf returns the first rule that applies to a name, and what that finds. The last one always does.
func findingOf(n *name) (*rule, Finding) {
	r := &rules[slices.IndexFunc(rules, func(r rule) bool { return r.applies(n) })]
	f := r.find(n)
	f.Reason, f.State = r.reason, cmp.Or(f.State, Down)
	f.Message = joined(f.CauseAbout(), f.Act)
	return r, f
}

// manager writes what Kubernetes publishes.
const manager = "kube-controller-manager"

const seeOwner = "the controller corrects it, unless the pods' owner selects them by it: then give that another " +
	"selector (the pods' events say which)"

var nameTaken = []string{v1alpha1.ReasonNameTaken}

func podName(p *pod) string { return p.Name }

// each describes the first few pods.
func each(pods []*pod, describe func(*pod) string) string {
	var texts []string
	for _, p := range pods {
		texts = append(texts, describe(p))
	}
	return first(texts)
}

func some(pods func(*name) []*pod) func(*name) bool {
	return func(n *name) bool { return len(pods(n)) > 0 }
}

func terminating(n *name) []*pod {
	return only(n.pods, func(p *pod) bool { return !p.runs && !p.ended })
}

func unready(n *name) []*pod {
	return only(n.pods, func(p *pod) bool { return p.runs && !p.Ready })
}

func mislabelled(n *name) []*pod {
	return only(n.pods, func(p *pod) bool { return p.runs && !p.isLabelled && hasLabel(n, p) })
}

func unlabelled(n *name) []*pod {
	return only(n.pods, func(p *pod) bool { return p.runs && !p.isLabelled && !hasLabel(n, p) })
}

func hasLabel(n *name, p *pod) bool { return labels.Set(p.object.Labels).Has(n.nodeLabelKey) }

// strays returns the pods on other nodes that have the label of this one.
func strays(n *name) []*pod { return n.facts.strays[naming.NodeLabelValue(n.Node.Node)] }

// theNode names the node, or the nodes of a group, with a verb.
func theNode(n *name, is, are string) string {
	if n.LocalService.Spec.GroupBy != "" {
		return strings.TrimSpace("its nodes " + are)
	}
	return strings.TrimSpace("the node " + is)
}

func serviceIs(reason Reason) func(*name) bool {
	return func(n *name) bool { return n.service.Reason == reason }
}

func theService(n *name) Finding { return n.service }

func whyNoName(n *name) Finding {
	groupBy := n.LocalService.Spec.GroupBy
	if labels.Set(n.on[0].Labels).Has(groupBy) {
		return Finding{State: Empty, Cause: "the label " + groupBy + " (spec.groupBy) of the node is empty, and its " +
			"value would be the name"}
	}
	return Finding{State: Empty, Cause: "the node has no label " + groupBy + " (spec.groupBy), and so no name"}
}

func whyCopyOutdated(n *name) Finding {
	problem := "the name is not published"
	switch {
	case len(n.stale) > 0:
		problem = "the name leads to addresses where no pod is ready any more"
	case n.Endpoints.Total > 0:
		problem = "the endpoints of the name are out of date"
	}
	f := untilWritten(n.facts, EndpointsOutdated, problem)
	f.About = first(n.stale)
	return f
}

func sinceNotReady(n *name) string {
	var latest metav1.Time
	for _, node := range n.on {
		if began := unreadiness(node).LastTransitionTime; latest.Before(&began) {
			latest = began
		}
	}
	return since(latest, n.Now, n.Stable)
}

// whyUnready says why the first pod is not ready. It names the pods with that cause, and then the others with theirs.
func whyUnready(n *name) Finding {
	pods, others := unready(n), []string(nil)
	var same []string
	f := Finding{Cause: pods[0].cause}
	for _, p := range pods {
		if p.cause == f.Cause {
			same = append(same, strings.TrimSuffix(p.Name+": "+p.note, ": "))
		} else {
			others = append(others, p.Name+": "+p.cause)
		}
		if p.Reason == ProbeFails && namesItself(p.object, n.LocalService.Name) && n.Endpoints.Ready == 0 &&
			!n.LocalService.Spec.PublishNotReadyAddresses {
			f.Act = "if it waits for its own name, which it gets only when it is ready, set " +
				"publishNotReadyAddresses: true in the LocalService"
		}
	}
	f.About = first(append(same, others...))
	return f
}

func whyNoPort(n *name) Finding {
	var targets, ports []string
	for i := range n.missingPorts {
		port := &n.missingPorts[i]
		target := fmt.Sprintf("%q", port.TargetPort.StrVal)
		if port.Protocol != "" && port.Protocol != corev1.ProtocolTCP {
			target += " for " + string(port.Protocol)
		}
		targets, ports = append(targets, target), append(ports, fmt.Sprint(port.Port))
	}
	f := Finding{Cause: fmt.Sprintf("no container has a port named %s: nothing listens behind port %s",
		strings.Join(targets, ", "), strings.Join(ports, ", "))}
	for _, p := range only(n.pods, func(p *pod) bool { return p.Ready }) {
		var named []string
		for i := range p.object.Spec.Containers {
			for _, port := range p.object.Spec.Containers[i].Ports {
				if port.Name != "" {
					named = append(named, fmt.Sprintf("%s: %d/%s", port.Name, port.ContainerPort,
						cmp.Or(port.Protocol, corev1.ProtocolTCP)))
				}
			}
		}
		if len(named) == 0 {
			f.About = p.Name + " names no port"
		} else {
			f.About = p.Name + " has " + first(named)
		}
		break
	}
	return f
}

// noPod says why no pod is on the node, and counts those that no node has yet.
func noPod(n *name, why string) Finding {
	f := Finding{State: Empty, Cause: fmt.Sprintf("no pod with %s here", labels.FormatLabels(n.LocalService.Spec.Selector))}
	if why != "" {
		f.Cause += "; " + why
	}
	if waiting := len(n.facts.pods[""]); waiting > 0 {
		f.About = fmt.Sprintf("%d not scheduled yet", waiting)
	}
	return f
}
