// Package diagnose finds out, for every name that a LocalService gives its nodes, or groups of nodes, what answers
// there and, if nothing does, why. It has no client: everything is a function of API objects, and none of them is
// changed.
package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// Input is what a view is made from: one LocalService, and the objects in its namespace.
type Input struct {
	LocalService *v1alpha1.LocalService
	// Nodes are the nodes that the LocalService selects, with their labels.
	Nodes map[string]labels.Set
	// AllNodes is false if Nodes may lack some, because the user may not list them.
	AllNodes bool
	// Services, EndpointSlices and Pods may hold those of others, too. The managedFields of pods are needed.
	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice
	Pods           []*corev1.Pod
	// PodsUnknown is true if Pods were not read.
	PodsUnknown bool
	// States are those of the nodes: what keeps pods off them.
	States map[string]NodeState
	// Controller is what the Lease of the controller shows.
	Controller Controller
	// Now is the time, for ages. Without it, messages have times, which stay the same.
	Now time.Time
	// SelectorKeys returns the keys in the selector of an object that controls pods in the namespace, nil if it is not
	// known. It is called only for the owners of pods with a wrong node label: to answer, it may read them. Without it,
	// no selector is known.
	SelectorKeys func(owner *metav1.OwnerReference) []string
	// ClusterDomain is the domain of the cluster's DNS.
	ClusterDomain string
}

// Nodes returns the state of every name of a LocalService.
func Nodes(in Input) *NodeList {
	v := newView(in)
	list := &NodeList{
		TypeMeta:     metav1.TypeMeta{APIVersion: "view.localservice.dev/v1alpha1", Kind: "LocalServiceNodeList"},
		Namespace:    in.LocalService.Namespace,
		LocalService: in.LocalService.Name,
		Mode:         cmp.Or(in.LocalService.Spec.Mode, v1alpha1.ModeServices),
		Items:        []Node{}, // [] in JSON, not null
	}
	if v.hostnames != nil {
		list.GroupBy = in.LocalService.Spec.GroupBy
	}
	if v.hostnames == nil {
		list.NodeLabels = v.nodeLabels()
	}
	names := v.names()
	if v.quota != nil && v.hostnames == nil {
		for _, n := range names {
			if n.rival == "" && v.services[plan.ServiceName(in.LocalService.Name, v.purpose, n.node)] == nil {
				v.quota.waiting++
			}
		}
	}
	for _, n := range names {
		list.Items = append(list.Items, v.node(&n))
	}
	list.Summary = summarize(in.LocalService, list.Items)
	switch stops := in.Controller.Stops(in.Now); {
	case stops != "":
		list.Controller = stops
	case v.waiting, IsUnobserved(in.LocalService):
		list.Controller = in.Controller.waits(in.LocalService.Namespace)
	}
	messages := v.foreignSlices()
	if why := v.message(list); why != "" {
		messages = append([]string{why}, messages...)
	}
	list.Message = strings.Join(messages, "\n")
	return list
}

// message is about all names, such as why there is none; "" if there is nothing to say.
func (v *view) message(list *NodeList) string {
	ls := v.LocalService
	switch ports := plan.TranslatedPorts(ls, v.numbers()); {
	case IsUnobserved(ls):
		return ""
	case len(list.Items) == 0:
		return v.whyNoItems()
	case len(v.Pods) == 0 && !v.PodsUnknown:
		message := fmt.Sprintf("No pod in namespace %s has the labels %s.", ls.Namespace, labels.Set(ls.Spec.Selector))
		if hint := plan.SelectorHint(ls); hint != "" {
			message += " " + title(hint) + "."
		}
		return message
	case ports != "":
		return title(ports) + "."
	}
	return ""
}

// IsUnobserved reports whether the controller has not acted on the spec of a LocalService yet.
func IsUnobserved(ls *v1alpha1.LocalService) bool {
	observed := ls.Status.ObservedGeneration
	return observed >= 0 && observed < ls.Generation
}

// whyNoItems says why no name is known.
func (v *view) whyNoItems() string {
	if v.hostnames != nil {
		unknown := v.node(&name{hostname: anyName})
		isKept := v.AllNodes && unknown.Reason == NameOutdated // because no node is selected
		if unknown.Reason != NoPods && !isKept {
			return unknown.Message
		}
	}
	if !v.AllNodes {
		return ""
	}
	return noNodes(v.LocalService, v.Services)
}

// KnownNodes returns the nodes that appear in the Services and EndpointSlices of the LocalService: all that can be
// known without the permission to list Nodes.
func KnownNodes(in Input) map[string]labels.Set {
	if in.LocalService.Spec.Mode == v1alpha1.ModeHostnames {
		return nodesWithHostname(in)
	}
	nodes := map[string]labels.Set{}
	for _, service := range in.Services {
		node := service.Annotations[v1alpha1.NodeAnnotationKey]
		if node != "" && metav1.IsControlledBy(service, in.LocalService) {
			nodes[node] = nil
		}
	}
	return nodes
}

// nodeLabelKey returns the key of the node label that the controller uses, from the selector of a Service of the
// LocalService; the default if there is none.
func nodeLabelKey(ls *v1alpha1.LocalService, services []*corev1.Service) string {
	for _, service := range services {
		node := service.Annotations[v1alpha1.NodeAnnotationKey]
		if node == "" || !metav1.IsControlledBy(service, ls) {
			continue
		}
		for key, value := range service.Spec.Selector {
			if _, own := ls.Spec.Selector[key]; !own && value == naming.NodeLabelValue(node) {
				return key
			}
		}
	}
	return v1alpha1.DefaultNodeLabelKey
}

// name is one that the LocalService gives, and what it is for.
type name struct {
	node     string   // or group of nodes
	nodes    []string // the node, or those of the group
	hostname string   // with mode Hostnames; "" for a node that has no name
	pods     []*corev1.Pod
	rival    string // the node that has the name that this one wants, "" for none
}

// names returns the names of the nodes, in order. Nodes without a name come last.
func (v *view) names() []name {
	var names []name
	groups := map[string]int{}
	for _, node := range slices.Sorted(maps.Keys(v.Nodes)) {
		n := name{node: node, nodes: []string{node}, pods: v.pods[node], rival: v.rivals[node]}
		if v.hostnames != nil {
			n.hostname = v.hostnames.Of(node)
		}
		if groupBy := v.LocalService.Spec.GroupBy; groupBy != "" && n.hostname != "" {
			n.node = v.Nodes[node][groupBy]
			if i, found := groups[n.node]; found {
				names[i].pods = slices.Concat(names[i].pods, n.pods)
				names[i].nodes = append(names[i].nodes, node)
				continue
			}
			groups[n.node] = len(names)
		}
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b name) int {
		if v.hostnames != nil && (a.hostname == "") != (b.hostname == "") {
			return cmp.Compare(b.hostname, a.hostname)
		}
		return Natural(a.node, b.node)
	})
	return names
}

func (v *view) node(name *name) Node {
	v.saidByStatus = false
	n := newNode(name.node, name.hostname)
	if name.rival == "" && (v.hostnames == nil || name.hostname != "") {
		n.Service = plan.ServiceName(v.LocalService.Name, v.purpose, name.node)
		n.DNSName = n.Name() + "." + v.LocalService.Namespace + ".svc." + v.ClusterDomain
	}
	for _, pod := range slices.SortedFunc(slices.Values(name.pods), byName) {
		why := v.whyNotReady(pod)
		n.Pods = append(n.Pods, Pod{Name: pod.Name, Ready: why.word == "", NodeLabel: pod.Labels[v.nodeLabelKey],
			Reason: why.word, Message: why.text})
	}
	switch {
	case name.rival != "":
		n.Reason, n.Message = NameConflict, "the name is that of node "+name.rival+
			": select only one of the two nodes"
	case n.Service != "":
		n.Reason, n.Message = v.serviceProblem(v.purpose, n.Node)
	default:
		n.Reason = NodeWithoutName
		n.Message = "the node has no label " + v.LocalService.Spec.GroupBy + ", so that it has no name"
	}
	missingLabel := v.missing[name.node]
	if service := v.services[n.Service]; missingLabel != "" && service != nil && !isServiceOf(service, name.node) {
		n.Service, n.DNSName = "", "" // They are those of the node that has the label.
	}
	if n.HasService() {
		n.Endpoints, n.Addresses = endpoints(v.endpoints[n.Name()])
		n.addService(v.services[n.Service])
	}
	if n.Reason == "" && v.hostnames != nil {
		n.Reason, n.Message = v.hostnameProblem(&n)
	}
	if n.Reason == "" {
		n.Reason, n.Message = v.podProblem(name, &n)
	}
	if missing := v.missingPorts(n.Name()); n.Reason == "" && len(missing) > 0 {
		n.Reason, n.Message = PortsMissing, v.portProblem(name, missing)
		if plan.HasClusterIPs(v.LocalService) { // A headless name resolves all the same.
			n.Endpoints.Ready, n.Addresses = 0, []string{}
		}
	}
	if n.Reason == "" && missingLabel != "" {
		n.Reason, n.Message = ServiceOutdated, v.whyWithheld("the Service stays as it was", missingLabel)
	}
	if v.saidByStatus {
		n.SharedCause = statusCause(v.LocalService, v.quota)
	}
	return n
}

func byName(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) }

// endpoints counts the endpoints of a name, and returns the addresses of the ready ones, sorted.
func endpoints(published []discoveryv1.Endpoint) (_ Endpoints, addresses []string) {
	all, ready := sets.New[string](), sets.New[string]() // of pods, or addresses where there is none
	addresses = []string{}
	for _, e := range published {
		if len(e.Addresses) == 0 || !plan.IsReady(&e) && e.Conditions.Terminating != nil && *e.Conditions.Terminating {
			continue
		}
		id := e.Addresses[0]
		if e.TargetRef != nil {
			id = e.TargetRef.Kind + "/" + e.TargetRef.Name
		}
		all.Insert(id)
		if plan.IsReady(&e) {
			ready.Insert(id)
			addresses = append(addresses, e.Addresses...)
		}
	}
	slices.Sort(addresses)
	return Endpoints{Ready: len(ready), Total: len(all)}, slices.Compact(addresses)
}
