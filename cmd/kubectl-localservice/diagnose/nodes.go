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
		list.Controller = in.Controller.waits(in.LocalService)
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

// view is the input, indexed.
type view struct {
	Input                     // Pods are only those that the LocalService selects, by name.
	purpose      plan.Purpose // of the Services with the names: ForNode or Published
	nodeLabelKey string
	services     map[string]*corev1.Service        // by name
	endpoints    map[string][]discoveryv1.Endpoint // by Node.Name
	// ports are those that are published for ready endpoints, of each EndpointSlice, by Node.Name.
	ports map[string][][]discoveryv1.EndpointPort
	pods  map[string][]*corev1.Pod // by node; "" for those without
	// strays are pods on another node than their node label says, by its value, in mode Services.
	strays map[string][]*corev1.Pod
	// hostnames is about mode Hostnames, nil for another mode.
	hostnames *hostnames
	// stale has, by Node.Name, the addresses that are published as ready although no pod has them.
	stale map[string][]string
	// quota keeps Services from being written, nil if none does.
	quota *quota
	// tolerated has the taints that some pod tolerates, or none.
	tolerated map[corev1.Taint]bool
	// waiting is whether something waits for the controller, and its status does not say why.
	waiting bool
	// rivals are the nodes whose name another one has, and which.
	rivals map[string]string
	// saidByStatus is whether the problem of the current name is the one that the status is about.
	saidByStatus bool
}

func newView(in Input) *view {
	v := &view{
		Input:        in,
		nodeLabelKey: nodeLabelKey(in.LocalService, in.Services),
		services:     map[string]*corev1.Service{},
		endpoints:    map[string][]discoveryv1.Endpoint{},
		ports:        map[string][][]discoveryv1.EndpointPort{},
		pods:         map[string][]*corev1.Pod{},
		strays:       map[string][]*corev1.Pod{},
		stale:        map[string][]string{},
		tolerated:    map[corev1.Taint]bool{},
		quota:        quotaOf(in.LocalService),
		rivals:       plan.Rivals(in.LocalService, slices.Collect(maps.Keys(in.Nodes))),
	}
	for _, service := range in.Services {
		v.services[service.Name] = service
	}
	isHostnames := in.LocalService.Spec.Mode == v1alpha1.ModeHostnames
	if isHostnames {
		v.purpose = plan.Published
	}
	for _, slice := range in.EndpointSlices {
		if IsForeign(slice) {
			continue
		}
		for _, e := range slice.Endpoints {
			name := Node{Service: slice.Labels[discoveryv1.LabelServiceName]}
			if isHostnames && e.Hostname != nil {
				name.Hostname = *e.Hostname
			}
			v.endpoints[name.Name()] = append(v.endpoints[name.Name()], e)
			if plan.IsReady(&e) {
				v.ports[name.Name()] = append(v.ports[name.Name()], slice.Ports)
			}
		}
	}
	v.Pods = slices.DeleteFunc(slices.Clone(in.Pods), func(pod *corev1.Pod) bool {
		return !plan.SelectsPod(in.LocalService, labels.Set(pod.Labels))
	})
	slices.SortFunc(v.Pods, byName)
	for _, pod := range v.Pods {
		node, label := pod.Spec.NodeName, pod.Labels[v.nodeLabelKey]
		v.pods[node] = append(v.pods[node], pod)
		if !isHostnames && node != "" && label != naming.NodeLabelValue(node) && !completed(pod) &&
			pod.DeletionTimestamp == nil {
			v.strays[label] = append(v.strays[label], pod)
		}
	}
	if isHostnames {
		v.hostnames = v.newHostnames()
	}
	v.markStale()
	return v
}

// markStale marks endpoints as not ready whose address no pod has any more.
func (v *view) markStale() {
	if v.PodsUnknown || v.hostnames != nil && v.selectsOthers(plan.ServiceName(v.LocalService.Name, plan.Source, "")) {
		return
	}
	alive := map[string]bool{}
	for _, pod := range v.Pods {
		for _, ip := range pod.Status.PodIPs {
			alive[ip.IP] = alive[ip.IP] || !completed(pod)
		}
	}
	for name, endpoints := range v.endpoints {
		if v.hostnames == nil && v.selectsOthers(name) {
			continue
		}
		for i := range endpoints {
			e := &endpoints[i]
			isPod := e.TargetRef != nil && e.TargetRef.Kind == "Pod"
			if !isPod || !plan.IsReady(e) || len(e.Addresses) == 0 || alive[e.Addresses[0]] {
				continue
			}
			e.Conditions.Ready = new(false) // of the view's copy
			v.stale[name] = append(v.stale[name], e.Addresses...)
		}
		slices.Sort(v.stale[name])
	}
}

// selectsOthers reports whether a Service selects other pods than the LocalService: nothing is known about those.
func (v *view) selectsOthers(serviceName string) bool {
	service := v.services[serviceName]
	if service == nil {
		return true
	}
	selector := maps.Clone(service.Spec.Selector)
	delete(selector, v.nodeLabelKey)
	own := maps.Clone(v.LocalService.Spec.Selector)
	delete(own, v.nodeLabelKey)
	return !maps.Equal(selector, own)
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
			": select only one of the two nodes, or rename one"
	case n.Service != "":
		n.Reason, n.Message = v.serviceProblem(v.purpose, n.Node)
	default:
		n.Reason = NodeWithoutName
		n.Message = "the node has no label " + v.LocalService.Spec.GroupBy + ", so that it has no name"
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
