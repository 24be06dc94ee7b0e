// Package diagnose tells, for every node that a LocalService selects, what answers under the name of the node's
// Service, and if nothing does, why. It has no client in it: everything is a function of API objects, and none of them
// is changed.
package diagnose

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// Input is what a view is made of: one LocalService, and what there is in its namespace.
type Input struct {
	LocalService *v1alpha1.LocalService
	// Nodes are the names of the nodes that the LocalService selects.
	Nodes []string
	// Services, EndpointSlices and Pods may hold those of others, too. Of the pods, managedFields are looked at.
	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice
	Pods           []*corev1.Pod
	// ClusterDomain is the domain of the cluster's DNS.
	ClusterDomain string
}

// Nodes makes the view.
func Nodes(in Input) *NodeList {
	v := newView(in)
	list := &NodeList{
		TypeMeta:     metav1.TypeMeta{APIVersion: "view.localservice.dev/v1alpha1", Kind: "LocalServiceNodeList"},
		Namespace:    in.LocalService.Namespace,
		LocalService: in.LocalService.Name,
		NodeLabels:   v.nodeLabels(),
		Items:        []Node{}, // [] in JSON, not null
	}
	for _, node := range slices.Sorted(slices.Values(in.Nodes)) {
		list.Items = append(list.Items, v.node(node))
	}
	return list
}

// NodesOfServices are the nodes that have a Service of the LocalService: all that can be known without permission to
// list Nodes.
func NodesOfServices(ls *v1alpha1.LocalService, services []*corev1.Service) []string {
	var nodes []string
	for _, service := range services {
		node := service.Annotations[v1alpha1.NodeAnnotationKey]
		if node != "" && metav1.IsControlledBy(service, ls) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// nodeLabelKey is the key of the node label that the controller uses, as the selector of a Service of the LocalService
// tells; the default if there is none.
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

// view is the input, indexed.
type view struct {
	Input        // Pods are only those that the LocalService selects, by name.
	nodeLabelKey string
	services     map[string]*corev1.Service              // by name
	slices       map[string][]*discoveryv1.EndpointSlice // by name of the Service
	pods         map[string][]*corev1.Pod                // by node; "" for those without
	strays       map[string][]*corev1.Pod                // on another node, by value of the node label
}

func newView(in Input) *view {
	v := &view{
		Input:        in,
		nodeLabelKey: nodeLabelKey(in.LocalService, in.Services),
		services:     map[string]*corev1.Service{},
		slices:       map[string][]*discoveryv1.EndpointSlice{},
		pods:         map[string][]*corev1.Pod{},
		strays:       map[string][]*corev1.Pod{},
	}
	for _, service := range in.Services {
		v.services[service.Name] = service
	}
	for _, slice := range in.EndpointSlices {
		service := slice.Labels[discoveryv1.LabelServiceName]
		v.slices[service] = append(v.slices[service], slice)
	}
	v.Pods = slices.DeleteFunc(slices.Clone(in.Pods), func(pod *corev1.Pod) bool {
		return !plan.SelectsPod(in.LocalService, labels.Set(pod.Labels))
	})
	slices.SortFunc(v.Pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	for _, pod := range v.Pods {
		node, label := pod.Spec.NodeName, pod.Labels[v.nodeLabelKey]
		v.pods[node] = append(v.pods[node], pod)
		if node != "" && label != naming.NodeLabelValue(node) && !completed(pod) && pod.DeletionTimestamp == nil {
			v.strays[label] = append(v.strays[label], pod)
		}
	}
	return v
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
		why := whyNotReady(pod)
		n.Pods = append(n.Pods, Pod{Name: pod.Name, Ready: why == "", NodeLabel: pod.Labels[v.nodeLabelKey],
			Reason: why})
	}
	n.Reason, n.Message = v.serviceProblem(name, v.services[service])
	if n.HasService() {
		n.Endpoints, n.Addresses = endpoints(v.slices[service])
	}
	if n.Reason == "" {
		n.Reason, n.Message = v.podProblem(name, n.Endpoints)
	}
	return n
}

// endpoints counts the endpoints in a Service's slices, and returns the addresses of the ready ones, sorted.
func endpoints(endpointSlices []*discoveryv1.EndpointSlice) (count Endpoints, addresses []string) {
	ready := map[string]bool{} // by pod, or address where there is none
	addresses = []string{}
	for _, slice := range endpointSlices {
		for _, e := range slice.Endpoints {
			// Unknown means ready, says the API.
			isReady := e.Conditions.Ready == nil || *e.Conditions.Ready
			if len(e.Addresses) == 0 || !isReady && e.Conditions.Terminating != nil && *e.Conditions.Terminating {
				continue
			}
			id := e.Addresses[0]
			if e.TargetRef != nil {
				id = e.TargetRef.Kind + "/" + e.TargetRef.Name
			}
			ready[id] = ready[id] || isReady
			if isReady {
				addresses = append(addresses, e.Addresses...)
			}
		}
	}
	for _, isReady := range ready {
		count.Total++
		if isReady {
			count.Ready++
		}
	}
	slices.Sort(addresses)
	return count, slices.Compact(addresses)
}
