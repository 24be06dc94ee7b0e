package diagnose

import "cmp"

// State is the state of a name, at a glance.
type State string

const (
	// Healthy: all is well.
	Healthy State = "Healthy"
	// Degraded: something answers, but not all is well.
	Degraded State = "Degraded"
	// Down: nothing answers, although something should.
	Down State = "Down"
	// Empty: nothing answers, and nothing should, because there is no pod that could, or no name.
	Empty State = "Empty"
)

// State sums up the reason and the endpoints.
func (n *Node) State() State {
	switch {
	case n.Reason == "":
		return Healthy
	case n.Endpoints.Ready > 0:
		return Degraded
	case n.Reason == NoPods, n.Reason == NodeCordoned, n.Reason == NodeTainted, n.Reason == PodsCompleted,
		n.Reason == NodeWithoutName, n.Reason == NameGone, n.Reason == NodeNotReady && len(n.Pods) == 0:
		return Empty
	}
	return Down
}

// causes are the texts for the reasons. Other reasons speak for themselves.
var causes = map[Reason]string{
	NodeWithoutName:       "no label that spec.groupBy names",
	NameConflict:          "name taken by another Service or node",
	ServiceMissing:        "no Service",
	ServiceTerminating:    "Service is being deleted",
	ServiceOutdated:       "Service out of date",
	SourceMissing:         "no Service that selects the pods",
	NameOutdated:          "name out of date",
	PodsOfOtherNode:       "label of another node on pods",
	PodsSelectedByLabel:   "pods selected by the node label",
	PodsMislabelled:       "wrong node label on pods",
	PodsUnlabelled:        "no node label on pods",
	NodeNotReady:          "node is NotReady",
	PodsNotReady:          "pods not ready",
	EndpointsNotPublished: "not in the EndpointSlices",
	PortsMissing:          "no container has the port",
	PodsTerminating:       "pods are being deleted",
	PodsCompleted:         "pods have ended",
	NodeCordoned:          "no pod: node is cordoned",
	NodeTainted:           "no pod: taint that it does not tolerate",
	NoPods:                "no pod",
}

// Cause returns a text that names with the same problem share, "" if all is well. If pods are not ready, it is what
// `kubectl get pods` shows for the first one, such as CrashLoopBackOff.
func (n *Node) Cause() string {
	if n.SharedCause != "" {
		return n.SharedCause
	}
	for _, pod := range n.Pods {
		if n.Reason == PodsNotReady && !pod.Ready && pod.Reason != whyTerminating {
			return cmp.Or(pod.Reason, causes[PodsNotReady])
		}
	}
	return cmp.Or(causes[n.Reason], string(n.Reason))
}
