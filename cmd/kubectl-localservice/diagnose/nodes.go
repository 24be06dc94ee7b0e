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

// nodesOf returns the nodes that a LocalService selects. If the user may not list nodes, they are those that its
// Services or published names are for, and the pods' nodes, if their names are known without labels. With groupBy, the
// hostname then stands for the value of the label.
func nodesOf(f *facts) map[string]*corev1.Node {
	ls, nodes := f.LocalService, map[string]*corev1.Node{}
	for _, node := range f.Nodes {
		if plan.Selects(ls, node.Name, labels.Set(node.Labels)) {
			nodes[node.Name] = node
		}
	}
	if f.AllNodes {
		return nodes
	}
	add := func(name string, set labels.Set) {
		nodes[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set}}
	}
	for _, service := range f.Services {
		node := service.Annotations[v1alpha1.NodeAnnotationKey]
		if f.purpose == plan.ForNode && node != "" && metav1.IsControlledBy(service, ls) {
			add(node, nil)
		}
	}
	for _, slice := range f.EndpointSlices {
		for _, e := range slice.Endpoints {
			if slice.Labels[discoveryv1.LabelServiceName] == plan.ServiceName(ls.Name, plan.Published, "") &&
				f.purpose == plan.Published && e.NodeName != nil && e.Hostname != nil {
				add(*e.NodeName, labels.Set{ls.Spec.GroupBy: *e.Hostname})
			}
		}
	}
	for _, pod := range f.Pods {
		if f.purpose == plan.Published && !plan.HasNodeSelector(ls) && ls.Spec.GroupBy == "" &&
			pod.Spec.NodeName != "" {
			add(pod.Spec.NodeName, nil)
		}
	}
	return nodes
}

// label returns the value of a label of a node that the LocalService selects.
func (f *facts) label(node, key string) (value string, exists bool) {
	return labels.Set(f.nodes[node].Labels).Lookup(key)
}

// namesOf returns the names of the nodes, in order. Nodes without a name come last.
func namesOf(f *facts) (names []*name) {
	ls, known := f.LocalService, map[[2]string]*name{}
	for _, node := range slices.Sorted(maps.Keys(f.nodes)) {
		value := node
		if f.hostnames != nil && ls.Spec.GroupBy != "" {
			value = f.nodes[node].Labels[ls.Spec.GroupBy]
		}
		n := &name{facts: f, result: newNode(cmp.Or(value, node), ""), rival: f.rivals[value]}
		if f.hostnames != nil {
			n.result.Hostname = f.hostnames.Of(node)
		}
		if n.rival == "" && (f.hostnames == nil || n.result.Hostname != "") {
			n.result.Service = plan.ServiceName(ls.Name, f.purpose, n.result.Node)
		}
		id := [2]string{n.result.id(), n.rival}
		if group := known[id]; group != nil {
			n = group
		} else {
			known[id] = n
			names = append(names, n)
		}
		n.on = append(n.on, f.nodes[node])
		n.pods = append(n.pods, f.pods[node]...)
	}
	natural := Natural()
	slices.SortFunc(names, func(a, b *name) int {
		if (a.result.Hostname == "") != (b.result.Hostname == "") {
			return cmp.Compare(b.result.Hostname, a.result.Hostname)
		}
		return natural(a.result.Node, b.result.Node)
	})
	return names
}

// allNodes reports whether something is so of the node of a name, or of all nodes of its group.
func allNodes(n *name, is func(*corev1.Node) bool) bool {
	return len(n.on) > 0 && !slices.ContainsFunc(n.on, func(node *corev1.Node) bool { return !is(node) })
}

// unreadiness returns the condition of a node whose kubelet is not ready, or not heard of; nil for another.
func unreadiness(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// keepsOff says what keeps all pods of the LocalService off a node, "" if nothing is known to: without a pod, no taint
// is. Taints that Kubernetes sets itself follow from what else is known about a node.
func (f *facts) keepsOff(node *corev1.Node) string {
	taint, found := scheduling.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, f.tolerations,
		func(taint *corev1.Taint) bool {
			return taint.Effect != corev1.TaintEffectPreferNoSchedule &&
				!strings.HasPrefix(taint.Key, "node.kubernetes.io/")
		}, true)
	switch {
	case node.Spec.Unschedulable:
		return "cordoned"
	case found && len(f.Pods) > 0:
		return "tainted with " + taint.ToString() + ", which its pods do not tolerate"
	}
	return ""
}

// waitingFor returns the pods without a node that the node of a name could take, or one of its group.
func waitingFor(n *name) []*pod {
	on := only(n.on, func(node *corev1.Node) bool { return n.facts.keepsOff(node) == "" })
	return only(n.facts.pods[""], func(p *pod) bool {
		return p.runs && (!n.facts.AllNodes || slices.ContainsFunc(on, func(node *corev1.Node) bool {
			matches, _ := p.requires.Match(node)
			return matches
		}))
	})
}
