package diagnose

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Nodes returns the state of every name of a LocalService.
func Nodes(in Input) *NodeList {
	f := newFacts(in)
	list := &NodeList{
		TypeMeta:     metav1.TypeMeta{APIVersion: "view.localservice.dev/v1alpha1", Kind: "LocalServiceNodeList"},
		Namespace:    in.LocalService.Namespace,
		LocalService: in.LocalService.Name,
		Mode:         cmp.Or(in.LocalService.Spec.Mode, v1alpha1.ModeServices),
		Summary:      Summary{Status: f.ready.Reason},
		Items:        []Node{}, // [] in JSON, not null
	}
	if f.hostnames != nil {
		list.GroupBy = in.LocalService.Spec.GroupBy
	}
	if f.ready.Status != metav1.ConditionTrue {
		list.Summary.Problem = words.Printable(f.ready.Message)
	}
	waits := false
	for _, n := range f.names {
		rule := ruleOf(n)
		list.Items = append(list.Items, nodeOf(n, rule))
		waits = waits || rule.waits && f.refusal == ""
		list.Summary.Told = list.Summary.Told || slices.Contains(rule.status, f.ready.Reason)
		list.Summary.Nodes++
		if n.serviceName == "" && n.rival == "" {
			list.Summary.Nodes--
		}
		if list.Items[len(list.Items)-1].Endpoints.Ready > 0 {
			list.Summary.Answering++
		}
	}
	list.Message = strings.Join(messagesOf(f), "\n")
	list.Controller = whyNotActed(f, waits)
	return list
}

// ruleOf returns the first rule that applies to a name. The last one always does.
func ruleOf(n *name) *rule {
	return &rules[slices.IndexFunc(rules, func(r rule) bool { return r.applies(n) })]
}

// findingOf returns what a rule finds of a name.
func findingOf(n *name, r *rule, ready int) Finding {
	f := Finding{Reason: r.reason, State: r.state}
	if r.reason == "" {
		return f
	}
	if ready > 0 {
		f.State = Degraded
	}
	f.Cause = r.cause(n)
	if r.about != nil {
		f.About = r.about(n)
	}
	if r.act != nil {
		f.Act = r.act(n)
	}
	f.Message = joined(f.CauseAbout(), f.Act)
	return f
}

func nodeOf(n *name, r *rule) Node {
	node := newNode(n.node, n.hostname)
	if n.serviceName != "" {
		node.Service = n.serviceName
		node.DNSName = node.Name() + "." + n.LocalService.Namespace + ".svc." + n.ClusterDomain
	}
	for _, p := range n.pods {
		node.Pods = append(node.Pods, p.Pod)
	}
	if node.HasService = n.hasService; n.hasService {
		node.Endpoints, node.Addresses = n.published, append(node.Addresses, n.addresses...)
		if len(n.missingPorts) > 0 && plan.HasClusterIPs(n.LocalService) { // A headless name resolves all the same.
			node.Endpoints.Ready, node.Addresses = 0, []string{}
		}
		addReach(&node, n.services[n.serviceName])
	}
	node.Finding = findingOf(n, r, node.Endpoints.Ready)
	return node
}

// messagesOf returns what concerns a LocalService as a whole.
func messagesOf(f *facts) (messages []string) {
	if isUnobserved(f.LocalService) {
		return nil
	}
	for _, notice := range notices {
		if message := notice(f); message != "" {
			messages = append(messages, message)
		}
	}
	// Without nodes, names are only what is published.
	if len(f.names) == 0 && len(messages) == 0 && f.hostnames != nil {
		n := &name{facts: f, serviceName: f.LocalService.Name, hostname: anyName}
		addServices(n)
		if r := ruleOf(n); r.reason != NoPods {
			messages = append(messages, r.cause(n))
		}
	}
	return messages
}

// HasPods reports whether the LocalService selects any pod.
func HasPods(in Input) bool {
	return slices.ContainsFunc(in.Pods, func(p *corev1.Pod) bool {
		return plan.SelectsPod(in.LocalService, labels.Set(p.Labels))
	})
}
