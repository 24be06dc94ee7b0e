package diagnose

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// node holds the facts about a node that a LocalService selects.
type node struct {
	nodeState

	name   string
	labels labels.Set
}

// nodeState says what keeps pods off a node, or from answering there; of a group, what does so on all of its nodes.
type nodeState struct {
	cordoned bool
	// notReady is true if the node's kubelet is not ready, or not heard of; since is when that began, if known.
	notReady bool
	since    metav1.Time
	taints   []corev1.Taint // that somebody has set: Kubernetes' own ones follow from the other fields
}

// ownTaints is the prefix of the taints that Kubernetes sets.
const ownTaints = "node.kubernetes.io/"

// nodesOf returns the nodes that a LocalService selects; those that Services and EndpointSlices name if the user may
// not list nodes.
func nodesOf(f *facts) map[string]*node {
	nodes := map[string]*node{}
	if !f.AllNodes {
		for name, set := range knownNodes(f) {
			nodes[name] = &node{name: name, labels: set}
		}
		return nodes
	}
	for _, object := range f.Nodes {
		if plan.Selects(f.LocalService, object.Name, labels.Set(object.Labels)) {
			nodes[object.Name] = &node{name: object.Name, labels: object.Labels, nodeState: nodeStateOf(object)}
		}
	}
	return nodes
}

// nodeStateOf returns the state of a node, the zero value for one that takes pods.
func nodeStateOf(object *corev1.Node) nodeState {
	s := nodeState{cordoned: object.Spec.Unschedulable}
	for _, c := range object.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			s.notReady, s.since = true, c.LastTransitionTime
		}
	}
	for _, t := range object.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(t.Key, ownTaints) {
			s.taints = append(s.taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
		}
	}
	return s
}

// namesOf returns the names of the nodes, in order. Nodes without a name come last.
func namesOf(f *facts) (names []*name) {
	ls, groups, tolerated := f.LocalService, map[string]*name{}, toleratedTaints(f)
	for _, node := range slices.Sorted(maps.Keys(f.nodes)) {
		n := &name{facts: f, node: node, on: []string{node}, rival: f.rivals[node], pods: f.pods[node],
			state: f.nodes[node].nodeState}
		n.state.taints = slices.DeleteFunc(slices.Clone(n.state.taints),
			func(t corev1.Taint) bool { return tolerated[t] })
		if f.hostnames != nil {
			n.hostname = f.hostnames.Of(node)
		}
		if groupBy := ls.Spec.GroupBy; groupBy != "" && n.hostname != "" {
			n.node = f.nodes[node].labels[groupBy]
			if group := groups[n.node]; group != nil {
				addToGroup(group, n)
				continue
			}
			groups[n.node] = n
		}
		if n.rival == "" && (f.hostnames == nil || n.hostname != "") {
			n.serviceName = plan.ServiceName(ls.Name, f.purpose, n.node)
		}
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b *name) int {
		if f.hostnames != nil && (a.hostname == "") != (b.hostname == "") {
			return cmp.Compare(b.hostname, a.hostname)
		}
		return Natural(a.node, b.node)
	})
	return names
}

// addToGroup adds a node to a group, whose state is what is so on all of its nodes, since the last became so.
func addToGroup(group, n *name) {
	group.on = append(group.on, n.on...)
	group.pods = slices.Concat(group.pods, n.pods)
	slices.SortFunc(group.pods, func(a, b *pod) int { return cmp.Compare(a.Name, b.Name) })
	all := &group.state
	if all.since.Before(&n.state.since) {
		all.since = n.state.since
	}
	all.cordoned, all.notReady = all.cordoned && n.state.cordoned, all.notReady && n.state.notReady
	if len(n.state.taints) == 0 {
		all.taints = nil
	}
}

// toleratedTaints returns the taints of nodes that some pod of the LocalService tolerates; all while there is no pod.
func toleratedTaints(f *facts) map[corev1.Taint]bool {
	tolerated := map[corev1.Taint]bool{}
	for _, node := range f.nodes {
		for i := range node.taints {
			taint := &node.taints[i]
			if _, isKnown := tolerated[*taint]; isKnown {
				continue
			}
			tolerated[*taint] = len(f.Pods) == 0 || slices.ContainsFunc(f.Pods, func(p *corev1.Pod) bool {
				return scheduling.TolerationsTolerateTaint(klog.Logger{}, p.Spec.Tolerations, taint, true)
			})
		}
	}
	return tolerated
}

// knownNodes returns the nodes that appear in the Services and EndpointSlices of the LocalService: all that can be
// known without the permission to list nodes.
func knownNodes(f *facts) map[string]labels.Set {
	if f.purpose == plan.Published {
		return nodesWithHostname(f)
	}
	nodes := map[string]labels.Set{}
	for _, service := range f.Services {
		node := service.Annotations[v1alpha1.NodeAnnotationKey]
		if node != "" && metav1.IsControlledBy(service, f.LocalService) {
			nodes[node] = nil
		}
	}
	return nodes
}

// nodesWithHostname returns the nodes that have a published name, and the pods' nodes, if their names are known without
// labels. With groupBy, the hostname stands for the value of the label.
func nodesWithHostname(f *facts) map[string]labels.Set {
	ls, nodes := f.LocalService, map[string]labels.Set{}
	for _, slice := range f.EndpointSlices {
		if slice.Labels[discoveryv1.LabelServiceName] != plan.ServiceName(ls.Name, plan.Published, "") {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.NodeName != nil && e.Hostname != nil {
				nodes[*e.NodeName] = labels.Set{ls.Spec.GroupBy: *e.Hostname}
			}
		}
	}
	for _, pod := range f.Pods {
		isNamed := !plan.HasNodeSelector(ls) && ls.Spec.GroupBy == "" && pod.Spec.NodeName != ""
		if isNamed && plan.SelectsPod(ls, labels.Set(pod.Labels)) {
			nodes[pod.Spec.NodeName] = nil
		}
	}
	return nodes
}
