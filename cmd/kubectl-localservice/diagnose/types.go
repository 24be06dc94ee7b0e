package diagnose

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Reason says, in a word for scripts, why nothing answers under a name, or less than should.
type Reason string

// The reasons, the most specific first: a node has the first that applies. `kubectl localservice nodes -h` says what
// each of them means.
const (
	NodeWithoutName       Reason = "NodeWithoutName"
	NameConflict          Reason = "NameConflict"
	ServiceMissing        Reason = "ServiceMissing"
	ServiceTerminating    Reason = "ServiceTerminating"
	ServiceOutdated       Reason = "ServiceOutdated"
	SourceMissing         Reason = "SourceMissing"
	NameOutdated          Reason = "NameOutdated"
	PodsOfOtherNode       Reason = "PodsOfOtherNode"
	PodsSelectedByLabel   Reason = "PodsSelectedByLabel"
	PodsMislabelled       Reason = "PodsMislabelled"
	PodsUnlabelled        Reason = "PodsUnlabelled"
	NodeNotReady          Reason = "NodeNotReady"
	PodsNotReady          Reason = "PodsNotReady"
	EndpointsNotPublished Reason = "EndpointsNotPublished"
	PortsMissing          Reason = "PortsMissing"
	PodsTerminating       Reason = "PodsTerminating"
	PodsCompleted         Reason = "PodsCompleted"
	NodeCordoned          Reason = "NodeCordoned"
	NodeTainted           Reason = "NodeTainted"
	NoPods                Reason = "NoPods"
	// NameGone is the last reason that a watch reports for a name: the LocalService no longer gives it.
	NameGone Reason = "NameGone"
)

// NodeList is what is known about the nodes that a LocalService selects, by name, or with groupBy about their groups.
// No API server serves it: its apiVersion and kind let scripts know which fields to expect.
type NodeList struct {
	metav1.TypeMeta `json:",inline"`

	Namespace    string        `json:"namespace"`
	LocalService string        `json:"localService"`
	Mode         v1alpha1.Mode `json:"mode"`
	// GroupBy is spec.groupBy: the node label by whose values the nodes are grouped, "" for none.
	GroupBy string  `json:"groupBy"`
	Summary Summary `json:"summary"`
	// Message says what concerns all names, such as why none is known: a line for each cause.
	Message string `json:"message"`
	// Controller says that the controller does not seem to run, or has not acted on the LocalService; "" if it has.
	Controller string     `json:"controller"`
	NodeLabels NodeLabels `json:"nodeLabels"`
	// DNS is the server that was asked for the names, nil if none was.
	DNS   *DNSServer `json:"dns,omitempty"`
	Items []Node     `json:"items"`
}

// LabelOrigin is how a pod got its node label.
type LabelOrigin string

const (
	// AtBinding: an admission policy set it in the write that gave the pod its node.
	AtBinding LabelOrigin = "AtBinding"
	// ByController: the controller set it, in a write of its own.
	ByController LabelOrigin = "ByController"
)

// NodeLabels counts pods by how they got their node label. Pods for which that is not known are left out.
type NodeLabels struct {
	// Newest is how the last scheduled pod got it, which shows whether the admission policies work. "" if not known.
	Newest       LabelOrigin `json:"newest"`
	AtBinding    int         `json:"atBinding"`
	ByController int         `json:"byController"`
}

// Node is what is known about the name of one node, or with groupBy of a group of nodes.
type Node struct {
	// Node is the name of the node, or the value of the label that spec.groupBy names.
	Node string `json:"node"`
	// Service is the name of the Service, even if it is missing or somebody else's; "" for a node without a name.
	Service string `json:"service"`
	// Hostname is the name within the Service, with mode Hostnames.
	Hostname string `json:"hostname"`
	// DNSName is the name in the cluster's DNS, "" for a node without one.
	DNSName string `json:"dnsName"`
	// Endpoints counts the endpoints that the EndpointSlices of the name hold.
	Endpoints Endpoints `json:"endpoints"`
	// Addresses are those of the ready endpoints.
	Addresses []string `json:"addresses"`
	// DNSAddresses are those that the cluster's DNS should answer for DNSName: the cluster IPs of the Service or, if it
	// is headless, the addresses of the ready endpoints.
	DNSAddresses []string `json:"dnsAddresses"`
	// Ports are those of the Service.
	Ports []Port `json:"ports"`
	// LoadBalancer has the addresses, or names, at which a load balancer answers for the Service.
	LoadBalancer []string `json:"loadBalancer"`
	// Pods are those on the node, or nodes, that the LocalService selects, by name.
	Pods []Pod `json:"pods"`
	// Reason and Message say what is wrong, in a word and in words. Both are empty if the name has ready
	// endpoints and all is well.
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
	// DNS is what the cluster's DNS answers, nil if it was not asked.
	DNS *DNSAnswer `json:"dns,omitempty"`

	// SharedCause is what names with the same problem share, if that is more than Reason says.
	SharedCause string `json:"-"`
}

// HasService reports whether the LocalService has a Service with the name.
func (n *Node) HasService() bool {
	return n.Service != "" && n.Reason != NameConflict && n.Reason != ServiceMissing && n.Reason != NameGone
}

// Name returns the name within the namespace: that of the Service, or <hostname>.<service>.
func (n *Node) Name() string {
	if n.Hostname == "" {
		return n.Service
	}
	return n.Hostname + "." + n.Service
}

// Endpoints counts endpoints. Each pod counts once, even with addresses of two families; a terminating one counts only
// while it is ready.
type Endpoints struct {
	Ready int `json:"ready"`
	Total int `json:"total"`
}

// Port is a port of a Service. A headless Service does not translate it: clients connect to the pods' own.
type Port struct {
	Name     string          `json:"name"`
	Protocol corev1.Protocol `json:"protocol"`
	Port     int32           `json:"port"`
	// NodePort is the port on every node of the cluster that leads to the Service, 0 for none.
	NodePort int32 `json:"nodePort"`
}

// Pod is what is known about a pod.
type Pod struct {
	Name string `json:"name"`
	// Ready is whether the pod is ready, running and not about to end.
	Ready bool `json:"ready"`
	// NodeLabel is the value of its node label, "" if it has none.
	NodeLabel string `json:"nodeLabel"`
	// Reason says why the pod is not ready, in a few words that stay the same while the cause does.
	Reason string `json:"reason"`
	// Message says so in words for people.
	Message string `json:"message"`
}
