// Package diagnose says, of every name of a LocalService, whether something answers there and, if nothing does, why. It
// has no client: Nodes is a function from API objects to findings, and changes none of them. It makes facts of the
// objects (facts.go and the files of its subjects), applies the first rule that fits (rules.go), and words the result.
package diagnose

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// NodeList holds what is known about the names of a LocalService, by node or, with groupBy, group of nodes. No API
// server serves it: its apiVersion and kind let scripts know which fields to expect.
type NodeList struct {
	metav1.TypeMeta `json:",inline"`

	Namespace    string        `json:"namespace"`
	LocalService string        `json:"localService"`
	Mode         v1alpha1.Mode `json:"mode"`
	GroupBy      string        `json:"groupBy"` // spec.groupBy: the node label whose values are the groups
	Summary      Summary       `json:"summary"`
	Message      string        `json:"message"` // what concerns all names: a line for each of the Notices
	Notices      []Notice      `json:"-"`
	Controller   string        `json:"controller"`    // that the controller has not acted, "" if it has
	DNS          *DNSServer    `json:"dns,omitempty"` // that was asked for the names
	Items        []*Node       `json:"items"`
	AsksAround   bool          `json:"-"` // Around may say more
}

// Key returns the LocalService as <namespace>/<name>.
func (l *NodeList) Key() string { return l.Namespace + "/" + l.LocalService }

// Summary holds columns of `kubectl get localservices`. Here, Nodes and Answering are counted from the items.
type Summary struct {
	Nodes     int    `json:"nodes"`     // that have a name, or should have
	Answering int    `json:"answering"` // names with at least one ready endpoint
	Status    string `json:"status"`    // the reason of the condition Ready
	Problem   string `json:"problem"`   // its message, unless it is True
	Reported  bool   `json:"reported"`  // The finding of some name says what the problem is.
}

// Notice says what concerns a LocalService as a whole. LocalServices with the same problem share its Cause.
type Notice struct {
	Reason  Reason `json:"reason,omitempty"` // of the names that it explains
	Cause   string `json:"cause"`
	Message string `json:"message"`
	Common  bool   `json:"common,omitempty"` // It is not about this LocalService, and others have it, too.
}

// Node holds what is known about the name of one node, or with groupBy of a group of nodes.
type Node struct {
	Node      string    `json:"node"`      // the node, or the value of the label that spec.groupBy names
	Service   string    `json:"service"`   // even if it is missing or somebody else's; "" for a node without a name
	Hostname  string    `json:"hostname"`  // the name within the Service, with mode Hostnames
	DNSName   string    `json:"dnsName"`   // "" for a node without a name
	Endpoints Endpoints `json:"endpoints"` // in the EndpointSlices of the name
	Addresses []string  `json:"addresses"` // of the ready endpoints
	// DNSAddresses lists what DNS should answer: the cluster IPs or, if it is headless, the ready endpoints'.
	DNSAddresses []string `json:"dnsAddresses"`
	// Ports lists those of the Service. A headless one does not translate them: clients connect to the pods' own.
	Ports        []corev1.ServicePort `json:"ports"`
	LoadBalancer []string             `json:"loadBalancer"` // its addresses, or names
	// Pods lists those on the node, or nodes, that the LocalService selects, and those that only wait for it, by name.
	Pods       []Pod `json:"pods"`
	Finding    `json:",inline"`
	DNS        *DNSAnswer `json:"dns,omitempty"` // nil if the cluster's DNS was not asked
	HasService bool       `json:"-"`             // The LocalService has the Service of the name.
}

// Finding says what is wrong with a name. All but State is empty if the name has ready endpoints and all is well. Names
// that have their Reason and Cause in common have the same problem.
type Finding struct {
	Reason  Reason `json:"reason"` // a word for scripts
	State   State  `json:"state"`
	Cause   string `json:"cause"`
	Act     string `json:"act"`     // what to do, "" if that is clear or nothing can be done but wait
	Message string `json:"message"` // the cause, what it is about, and what to do
	About   string `json:"-"`       // the first few pods, for example, with what differs from one to the other
	Waits   bool   `json:"-"`       // The controller is to change this.
}

// CauseAbout returns the cause of a finding, and what it is about.
func (f *Finding) CauseAbout() string { return withNote(f.Cause, f.About) }

// Reason says, in a word for scripts, why nothing answers under a name, or less than should.
type Reason string

// State sums up a name at a glance.
type State string

// The states.
const (
	Healthy  State = "Healthy"
	Degraded State = "Degraded" // Something answers, but not all is well.
	Down     State = "Down"     // Nothing answers, although something should.
	Empty    State = "Empty"    // Nothing should answer: there is no pod that could, or no name.
)

// Name returns the name within the namespace: that of the Service, or <hostname>.<service>.
func (n *Node) Name() string { return strings.TrimPrefix(n.Hostname+"."+n.Service, ".") }

// Answers reports whether something answers under the name.
func (n *Node) Answers() bool { return n.Endpoints.Ready > 0 }

// ID tells apart the items of a list: a group of nodes, even a rival, may have the name of a node without one.
func (n *Node) ID() string {
	return n.Node + "/" + cmp.Or(n.Service, string(n.Reason)) + "/" + n.Hostname
}

// WithDNS adds to a text what is wrong with the answer of DNS.
func (n *Node) WithDNS(text string) string {
	if n.DNS == nil {
		return text
	}
	return words.Join("; ", text, n.DNS.Message)
}

// Problems says in words what is wrong with the name and with the answer of DNS; "" if all is well.
func (n *Node) Problems() string { return n.WithDNS(n.Message) }

// Endpoints counts pods, each once for all of its addresses; terminating ones only while they are ready.
type Endpoints struct {
	Ready int `json:"ready"`
	Total int `json:"total"`
}

// Pod holds what is known about a pod.
type Pod struct {
	Name      string      `json:"name"`
	Ready     bool        `json:"ready"`     // and running, and not about to end
	NodeLabel string      `json:"nodeLabel"` // the value of its node label
	Reason    string      `json:"reason"`    // why it is not ready, in a word that stays the same while the cause does
	Message   string      `json:"message"`   // the same for people
	Container string      `json:"container"` // that the reason is about, "" for none, or if the pod has only one
	Log       string      `json:"log"`       // LogCurrent or LogPrevious, if one of these says more
	Restarts  int32       `json:"restarts"`  // of its containers
	Created   metav1.Time `json:"created"`
}

// The logs of a container that the kubelet keeps: of the one that runs, or has just ended, and of the one before.
const (
	LogCurrent  = "Current"
	LogPrevious = "Previous"
)

// newNode returns a node about which nothing is known. Its lists are [] in JSON, not null.
func newNode(node, hostname string) *Node {
	return &Node{Node: node, Hostname: hostname, Addresses: []string{}, DNSAddresses: []string{},
		Ports: []corev1.ServicePort{}, LoadBalancer: []string{}, Pods: []Pod{}, Finding: Finding{State: Healthy}}
}

// Nodes returns the state of every name of a LocalService.
func Nodes(in Input) *NodeList {
	f := newFacts(in)
	list := &NodeList{
		TypeMeta:     metav1.TypeMeta{APIVersion: "view.localservice.dev/v1alpha1", Kind: "LocalServiceNodeList"},
		Namespace:    in.LocalService.Namespace,
		LocalService: in.LocalService.Name,
		Mode:         cmp.Or(in.LocalService.Spec.Mode, v1alpha1.ModeServices),
		Summary:      Summary{Status: f.ready.Reason},
		Items:        []*Node{}, // [] in JSON, not null
	}
	if f.hostnames != nil {
		list.GroupBy = in.LocalService.Spec.GroupBy
	}
	if f.ready.Status != metav1.ConditionTrue {
		list.Summary.Problem = words.Printable(f.ready.Message)
	}
	list.AsksAround = len(f.Pods) == 0 ||
		slices.ContainsFunc(f.Pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == "" })
	for _, n := range f.names {
		n.result.Finding = findingOf(n)
		complete(n)
		list.AsksAround = list.AsksAround ||
			slices.Contains([]Reason{NoPods, EndpointsOutdated, PodsMislabelled}, n.result.Reason)
		list.Summary.Reported = list.Summary.Reported || slices.Contains(reported[n.result.Reason], f.ready.Reason)
		if n.result.Service != "" || n.rival != "" {
			list.Summary.Nodes++
		}
		if n.result.Answers() {
			list.Summary.Answering++
		}
		list.Items = append(list.Items, n.result)
	}
	list.Notices = noticesOf(f)
	for _, n := range list.Notices {
		list.Message = words.Join("\n", list.Message, n.Message)
	}
	list.Controller = whyNotActed(f)
	return list
}

// newFacts collects what is known about a LocalService.
func newFacts(in Input) *facts {
	ls := in.LocalService
	f := &facts{Input: in, services: map[string]*corev1.Service{},
		ready: ptr.Deref(meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionReady), metav1.Condition{})}
	if !in.Stable {
		f.agesAt = in.Now
	}
	if ls.Spec.Mode == v1alpha1.ModeHostnames {
		f.purpose = plan.Published
	}
	f.idle = whyIdle(f)
	f.isUnobserved = ls.Status.ObservedGeneration < ls.Generation
	if !f.isUnobserved && f.ready.Status == metav1.ConditionFalse && slices.Contains(unwritten, f.ready.Reason) {
		f.refusal = f.ready.Message
	}
	f.Services = only(in.Services, func(s *corev1.Service) bool {
		return strings.HasPrefix(s.Name, ls.Name) // Others may have taken a name.
	})
	f.EndpointSlices = only(in.EndpointSlices, func(s *discoveryv1.EndpointSlice) bool {
		return strings.HasPrefix(s.Labels[discoveryv1.LabelServiceName], ls.Name)
	})
	f.Pods = only(in.Pods, func(p *corev1.Pod) bool { return plan.SelectsPod(ls, labels.Set(p.Labels)) })
	for _, s := range f.Services {
		f.services[s.Name] = s
	}
	f.nodeLabelKey = nodeLabelKey(ls, f.Services)
	f.nodes = nodesOf(f)
	f.templates, _ = plan.NewTemplates(ls, f.nodeLabelKey, f.label) // The status says what is wrong with the spec.
	f.makers = only(in.Around.Workloads, func(w Workload) bool { return plan.SelectsPod(ls, labels.Set(w.Labels)) })
	addPods(f)
	for i := range f.makers {
		f.tolerations = append(f.tolerations, f.makers[i].Spec.Tolerations...)
	}
	if f.purpose == plan.Published {
		addHostnames(f)
	} else {
		f.rivals = plan.Rivals(ls, slices.Collect(maps.Keys(f.nodes)))
	}
	addEndpoints(f)
	f.names = namesOf(f)
	for _, n := range f.names {
		addPodsOfName(n)
		addService(n)
		addPublished(n)
		if !n.result.Answers() {
			n.waiting = waitingFor(n)
		}
	}
	return f
}

// complete adds to a name what follows from its facts and its finding.
func complete(n *name) {
	for _, p := range n.pods {
		n.result.Pods = append(n.result.Pods, p.Pod)
	}
	if len(n.missingPorts) > 0 && plan.HasClusterIPs(n.facts.LocalService) { // A headless name resolves all the same.
		n.result.Endpoints.Ready, n.result.Addresses = 0, []string{}
	}
	if n.result.Reason != "" && n.result.Answers() {
		n.result.State = Degraded
	}
	if !n.result.HasService {
		return
	}
	service := n.facts.services[n.result.Service]
	n.result.DNSAddresses = append(n.result.DNSAddresses, service.Spec.ClusterIPs...)
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		n.result.DNSAddresses = slices.Clone(n.result.Addresses)
	}
	n.result.Ports = append(n.result.Ports, service.Spec.Ports...)
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		n.result.LoadBalancer = append(n.result.LoadBalancer, cmp.Or(ingress.IP, ingress.Hostname))
	}
}
