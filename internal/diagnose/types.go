package diagnose

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion and Kind are those of a NodeList. No API server serves it; they tell scripts which fields to expect.
var GroupVersion = schema.GroupVersion{Group: "view.localservice.dev", Version: "v1alpha1"}

// Kind is the kind of a NodeList.
const Kind = "LocalServiceNodeList"

// Reason says, in a word for scripts, why nothing answers under the name of a node's Service, or less than should.
type Reason string

// The reasons, the most specific first: a node has the first that applies.
const (
	// NameConflict: the name of the Service is taken by a Service that the LocalService does not control.
	NameConflict Reason = "NameConflict"
	// ServiceMissing: there is no Service of the name.
	ServiceMissing Reason = "ServiceMissing"
	// ServiceTerminating: the Service is being deleted, or about to be, with an earlier LocalService of the same name.
	ServiceTerminating Reason = "ServiceTerminating"
	// ServiceOutdated: the Service does not select the pods that it should, or has lost its label or controller.
	ServiceOutdated Reason = "ServiceOutdated"
	// PodsOfOtherNode: the Service reaches pods on another node, because their node label is wrong.
	PodsOfOtherNode Reason = "PodsOfOtherNode"
	// PodsUnlabelled: pods are on the node, but their node label is missing or wrong.
	PodsUnlabelled Reason = "PodsUnlabelled"
	// PodsNotReady: pods are on the node, but not ready.
	PodsNotReady Reason = "PodsNotReady"
	// EndpointsNotPublished: pods are on the node and ready, but not (all) in the Service's EndpointSlices.
	EndpointsNotPublished Reason = "EndpointsNotPublished"
	// PodsTerminating: all pods on the node are being deleted.
	PodsTerminating Reason = "PodsTerminating"
	// PodsCompleted: all pods on the node have ended for good.
	PodsCompleted Reason = "PodsCompleted"
	// NoPods: the LocalService selects no pod on the node.
	NoPods Reason = "NoPods"
)

// NodeList is what is known of the nodes that a LocalService selects, by name.
type NodeList struct {
	metav1.TypeMeta `json:",inline"`

	// Namespace and LocalService are the names of what the list is about.
	Namespace    string `json:"namespace"`
	LocalService string `json:"localService"`
	// NodeLabels is how the LocalService's pods come by their node label.
	NodeLabels NodeLabels `json:"nodeLabels"`
	// Items are the nodes.
	Items []Node `json:"items"`
}

// LabelOrigin is how a pod came by its node label.
type LabelOrigin string

const (
	// AtBinding: an admission policy set it in the write that gave the pod its node.
	AtBinding LabelOrigin = "AtBinding"
	// ByController: the controller set it, in a write of its own.
	ByController LabelOrigin = "ByController"
)

// NodeLabels counts pods by how they came by their node label. Those of which that is not known are left out.
type NodeLabels struct {
	// Newest is how the pod did that was scheduled last: whether the admission policies work. "" if not known.
	Newest       LabelOrigin `json:"newest"`
	AtBinding    int         `json:"atBinding"`
	ByController int         `json:"byController"`
}

// Node is what is known of one node's Service.
type Node struct {
	// Node is the node's name.
	Node string `json:"node"`
	// Service is the name of the node's Service, also where it is missing or somebody else's.
	Service string `json:"service"`
	// DNSName is the name that the Service has in the cluster's DNS.
	DNSName string `json:"dnsName"`
	// Endpoints counts the endpoints that the Service's EndpointSlices hold.
	Endpoints Endpoints `json:"endpoints"`
	// Addresses are those of the ready endpoints.
	Addresses []string `json:"addresses"`
	// Pods are those on the node that the LocalService selects, by name.
	Pods []Pod `json:"pods"`
	// Reason and Message say what is wrong, in a word and in words. Both are empty if the Service has ready
	// endpoints and all is well.
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
}

// Endpoints counts endpoints. Each pod counts once, also with addresses of two families; one that terminates counts
// only while it is ready.
type Endpoints struct {
	Ready int `json:"ready"`
	Total int `json:"total"`
}

// Pod is what is known of a pod.
type Pod struct {
	Name string `json:"name"`
	// Ready says whether the pod is ready, running and not about to end.
	Ready bool `json:"ready"`
	// NodeLabel is the value of its node label, "" if it has none.
	NodeLabel string `json:"nodeLabel"`
	// Reason says why the pod is not ready, in a few words.
	Reason string `json:"reason"`
}

// HasService says whether the LocalService has a Service for the node.
func (n *Node) HasService() bool {
	return n.Reason != NameConflict && n.Reason != ServiceMissing
}
