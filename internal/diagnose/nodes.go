// Package diagnose tells, for every node that a LocalService selects, what answers under the name of the node's
// Service, and if nothing does, why. It has no client in it: everything is a function of API objects, and none of them
// is changed.
package diagnose

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// DefaultClusterDomain is the domain of the cluster's DNS, unless it was set up with another one.
const DefaultClusterDomain = "cluster.local"

// Input is what a view is made of: one LocalService, and what there is in its namespace.
type Input struct {
	LocalService *v1alpha1.LocalService
	// Nodes may hold nodes that the LocalService does not select.
	Nodes []*metav1.PartialObjectMetadata
	// Services are those that have the label owner=<localservice>. They need not belong to the LocalService.
	Services []*corev1.Service
	// OtherServices are Services that may have taken a name that Services does not have: see MissingServices.
	OtherServices []*metav1.PartialObjectMetadata
	// EndpointSlices are those with the same label as Services: slices have the labels of their Service.
	EndpointSlices []*discoveryv1.EndpointSlice
	// Pods may hold pods that the LocalService does not select. NodeLabels needs their managedFields.
	Pods []*corev1.Pod
	// NodeLabelKey is the key of the node label: see NodeLabelKey.
	NodeLabelKey string
	// ClusterDomain is the domain of the cluster's DNS.
	ClusterDomain string
}

// Nodes makes the view.
func Nodes(in Input) *NodeList {
	v := newView(&in)
	list := &NodeList{
		Namespace:    in.LocalService.Namespace,
		LocalService: in.LocalService.Name,
		NodeLabels:   v.nodeLabels(),
		Items:        []Node{}, // [] in JSON, not null
	}
	list.SetGroupVersionKind(GroupVersion.WithKind(Kind))
	for _, node := range selectedNodes(&in) {
		list.Items = append(list.Items, v.node(node))
	}
	return list
}

// MissingServices are the names of selected nodes' Services that in.Services does not have. If there are any, what
// else has such a name belongs into OtherServices.
func MissingServices(in Input) []string {
	have := make(map[string]bool, len(in.Services))
	for _, service := range in.Services {
		have[service.Name] = true
	}
	var missing []string
	for _, node := range selectedNodes(&in) {
		if name := naming.ServiceName(in.LocalService.Name, node); !have[name] {
			missing = append(missing, name)
		}
	}
	return missing
}

// selectedNodes are the names of the nodes that the LocalService selects, sorted.
func selectedNodes(in *Input) []string {
	var names []string
	for _, node := range in.Nodes {
		if plan.Selects(in.LocalService, labels.Set(node.Labels)) {
			names = append(names, node.Name)
		}
	}
	slices.Sort(names)
	return names
}

// NodesOfServices are the nodes that have a Service of the LocalService, as far as the Services tell: all that can be
// known without permission to list Nodes.
func NodesOfServices(ls *v1alpha1.LocalService, services []*corev1.Service) []*metav1.PartialObjectMetadata {
	var nodes []*metav1.PartialObjectMetadata
	for _, service := range services {
		if name := service.Annotations[v1alpha1.NodeAnnotationKey]; name != "" && metav1.IsControlledBy(service, ls) {
			// It would have no Service if it were not selected.
			nodes = append(nodes, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name,
				Labels: ls.Spec.NodeSelector}})
		}
	}
	return nodes
}

// NodeLabelKey is the key of the node label that the controller uses, as the selectors of the LocalService's Services
// tell; the default if there are none.
func NodeLabelKey(ls *v1alpha1.LocalService, services []*corev1.Service) string {
	votes := map[string]int{}
	for _, service := range services {
		node := service.Annotations[v1alpha1.NodeAnnotationKey]
		if node == "" || !metav1.IsControlledBy(service, ls) {
			continue
		}
		for key, value := range service.Spec.Selector {
			if _, own := ls.Spec.Selector[key]; !own && value == naming.NodeLabelValue(node) {
				votes[key]++
			}
		}
	}
	best := v1alpha1.DefaultNodeLabelKey
	for _, key := range slices.Sorted(maps.Keys(votes)) {
		if votes[key] > votes[best] {
			best = key
		}
	}
	return best
}

// view is the input, indexed.
type view struct {
	*Input
	services map[string]*corev1.Service               // by name
	others   map[string]*metav1.PartialObjectMetadata // by name
	slices   map[string][]*discoveryv1.EndpointSlice  // by name of the Service
	pods     map[string][]*corev1.Pod                 // by node; "" for those without
	strays   map[string][]*corev1.Pod                 // on another node, by value of the node label
}

func newView(in *Input) *view {
	v := &view{
		Input:    in,
		services: make(map[string]*corev1.Service, len(in.Services)),
		others:   make(map[string]*metav1.PartialObjectMetadata, len(in.OtherServices)),
		slices:   make(map[string][]*discoveryv1.EndpointSlice, len(in.EndpointSlices)),
		pods:     make(map[string][]*corev1.Pod, len(in.Nodes)),
		strays:   map[string][]*corev1.Pod{},
	}
	for _, service := range in.Services {
		v.services[service.Name] = service
	}
	for _, service := range in.OtherServices {
		v.others[service.Name] = service
	}
	for _, slice := range in.EndpointSlices {
		name := slice.Labels[discoveryv1.LabelServiceName]
		v.slices[name] = append(v.slices[name], slice)
	}
	for _, pod := range sortedPods(in.Pods) {
		if !plan.SelectsPod(in.LocalService, labels.Set(pod.Labels)) {
			continue
		}
		node := pod.Spec.NodeName
		v.pods[node] = append(v.pods[node], pod)
		if value := pod.Labels[in.NodeLabelKey]; value != "" && node != "" && value != naming.NodeLabelValue(node) &&
			!ended(pod) {
			v.strays[value] = append(v.strays[value], pod)
		}
	}
	return v
}

func sortedPods(pods []*corev1.Pod) []*corev1.Pod {
	return slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
}

func (v *view) node(name string) Node {
	service := naming.ServiceName(v.LocalService.Name, name)
	n := Node{
		Node:      name,
		Service:   service,
		DNSName:   service + "." + v.LocalService.Namespace + ".svc." + v.ClusterDomain,
		Addresses: []string{},
		Pods:      []Pod{},
	}
	for _, pod := range v.pods[name] {
		n.Pods = append(n.Pods, v.pod(pod))
	}
	problem := v.serviceProblem(name, service)
	if problem.reason != NameConflict && problem.reason != ServiceMissing {
		n.Endpoints, n.Addresses = endpoints(v.slices[service])
	}
	if problem.reason == "" {
		problem = v.podProblem(name, n.Endpoints)
	}
	n.Reason, n.Message = problem.reason, problem.message
	return n
}

func (v *view) pod(pod *corev1.Pod) Pod {
	reason := whyNotReady(pod)
	return Pod{Name: pod.Name, Ready: reason == "", NodeLabel: pod.Labels[v.NodeLabelKey], Reason: reason}
}

// endpoints counts the endpoints in a Service's slices, and returns the addresses of the ready ones, sorted.
func endpoints(endpointSlices []*discoveryv1.EndpointSlice) (count Endpoints, addresses []string) {
	ready := map[string]bool{} // by pod, or address where there is none
	addresses = []string{}
	for _, slice := range endpointSlices {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			// Unknown means ready, says the API.
			isReady := e.Conditions.Ready == nil || *e.Conditions.Ready
			if len(e.Addresses) == 0 || !isReady && e.Conditions.Terminating != nil && *e.Conditions.Terminating {
				continue
			}
			id := "address/" + e.Addresses[0]
			if e.TargetRef != nil {
				id = e.TargetRef.Kind + "/" + e.TargetRef.Name
			}
			ready[id] = ready[id] || isReady
			if isReady {
				addresses = append(addresses, e.Addresses...)
			}
		}
	}
	count.Total = len(ready)
	for _, isReady := range ready {
		if isReady {
			count.Ready++
		}
	}
	slices.Sort(addresses)
	return count, slices.Compact(addresses)
}
