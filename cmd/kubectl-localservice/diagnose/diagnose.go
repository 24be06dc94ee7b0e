// Package diagnose says, of every name of a LocalService, whether something answers there and, if nothing does, why. It
// has no client: Nodes is a function from API objects to findings, and changes none of them. It makes facts of the
// objects (facts.go and the files of its subjects), applies the first rule that fits (rules.go), and words the result.
package diagnose

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		finding, status := findingOf(n)
		n.Finding = finding
		complete(n)
		waits = waits || n.Waits && f.refusal == ""
		list.Summary.Told = list.Summary.Told || slices.Contains(status, f.ready.Reason)
		if n.Service != "" || n.rival != "" {
			list.Summary.Nodes++
		}
		if n.Endpoints.Ready > 0 {
			list.Summary.Answering++
		}
		list.Items = append(list.Items, n.Node)
	}
	list.Message = strings.Join(messagesOf(f), "\n")
	list.Controller = whyNotActed(f, waits)
	return list
}

// complete adds to a name what follows from its facts and its finding.
func complete(n *name) {
	for _, p := range n.pods {
		n.Pods = append(n.Pods, p.Pod)
	}
	if len(n.missingPorts) > 0 && plan.HasClusterIPs(n.LocalService) { // A headless name resolves all the same.
		n.Endpoints.Ready, n.Addresses = 0, []string{}
	}
	if n.HasService {
		addReach(&n.Node, n.services[n.Service])
	}
	if n.Reason != "" && n.Endpoints.Ready > 0 {
		n.State = Degraded
	}
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
		n := &name{facts: f, Node: newNode("", anyName)}
		n.Service = f.LocalService.Name
		addService(n)
		if found, _ := findingOf(n); found.Reason != NoPods {
			messages = append(messages, found.Cause)
		}
	}
	return messages
}
