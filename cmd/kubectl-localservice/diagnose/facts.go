package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/collate"
	"golang.org/x/text/language"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/sets"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Input holds what findings are made from: one LocalService, and the objects that may be a part of it.
type Input struct {
	LocalService *v1alpha1.LocalService
	Nodes        []*corev1.Node
	AllNodes     bool // false if Nodes is empty because the user may not list them
	// Services, EndpointSlices and Pods are those of the namespace, those of others included.
	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice
	Pods           []*corev1.Pod
	Orphans        string // see Orphans
	Around         Around // what was seen when no pod was there
	Controller     Controller
	Now            time.Time
	Stable         bool   // Texts name times rather than ages, so that they stay the same until something changes.
	Kubectl        string // the command that texts name, with the flags that choose the cluster
	ClusterDomain  string // of DNS
}

// Around holds what else there is in the namespace of a LocalService, to say why pods are missing.
type Around struct {
	Workloads  []Workload
	Pods       []corev1.Pod
	Events     []corev1.Event // with one of the EventReasons
	Namespaces []string       // other ones with pods that the selector selects, if there are none in its own
}

// Workload is a Deployment, StatefulSet or DaemonSet that makes pods, and how many it should.
type Workload struct {
	corev1.PodTemplateSpec

	Kind, Name string
	Replicas   int32
}

const eventUnpublished, eventPreempted = "FailedToUpdateEndpointSlices", "Preempted"

// EventReasons lists the reasons of the events that are read, of any object.
var EventReasons = []string{eventUnpublished, eventPreempted, "ProvisioningFailed", "FailedBinding",
	plan.EventNodeLabelRefused}

// Controller holds what the Lease of the controller shows, the zero value if it could not be read, or if there is none.
type Controller struct {
	Namespace, Name string    // of the Lease
	Holder          string    // the pod that holds it
	Renewed         time.Time // when it was last renewed
	Stopped         bool      // It is not renewed any more.
	Namespaces      []string  // that controllers watch, with metav1.NamespaceAll for all
	Unguarded       string    // the resources that the guard does not protect
}

// facts holds what is known about a LocalService. Of the Input, it keeps only objects that may be of this one.
type facts struct {
	Input

	idle         string    // why no controller acts, and what to do; "" if one does, or if that is not known
	isUnobserved bool      // The controller has not acted on the spec yet.
	agesAt       time.Time // what ages in texts refer to: Now, zero if texts are Stable
	// ready is the condition Ready, and refusal its message while it says why something is not written for this spec.
	ready        metav1.Condition
	refusal      string
	nodeLabelKey string
	purpose      plan.Purpose   // of the Services with the names: ForNode or Published
	templates    plan.Templates // of what the Services should be; none if the spec is invalid
	services     map[string]*corev1.Service
	nodes        map[string]*corev1.Node // that the LocalService selects
	rivals       map[string]string       // the nodes, or values of groupBy, whose name another one has, and which
	pods         map[string][]*pod       // by the node that they have, or alone may get; "" for those without
	makers       []Workload              // that make such pods
	tolerations  []corev1.Toleration     // of the pods, each once, and of the makers
	mislabelled  map[string][]*pod       // by the node label, which is not that of their node, in mode Services
	hostnames    *plan.Names             // nil for another mode than Hostnames
	isPublished  bool                    // Kubernetes has published the pods, in mode Hostnames
	sources      sets.Set[string]        // the addresses that it publishes there as ready
	outdated     sets.Set[string]        // the names that are not published as the pods are
	endpoints    map[string][]endpoint   // by name within the namespace
	portNumbers  plan.PortNumbers        // of the pods
	names        []*name
}

// name holds the facts about one name of a LocalService, or about a node that has none, and what results from them.
type name struct {
	facts  *facts // what is known of the LocalService
	result *Node

	on      []*corev1.Node // the node, or those of the group
	rival   string         // the node or value that has the name that this one wants, "" for none
	service Finding        // what is wrong with the Service, or with the first of both in mode Hostnames
	differs []string       // the other fields in which these Services differ from what the LocalService says
	pods    []*pod
	// mislabelled are pods here without the node label of their node, and pods on other nodes with that of this one;
	// terminating those that are being deleted. Only those that run may be unready or unpublished.
	mislabelled, unready, terminating, unpublished []*pod
	waiting                                        []*pod // without a node, for a name that does not answer
	missingPorts                                   []v1alpha1.ServicePort
}

// pod holds the facts about a pod of a LocalService.
type pod struct {
	Pod
	trouble

	object      *corev1.Pod
	ended, runs bool                              // It runs unless it has ended, or is about to.
	isLabelled  bool                              // It has the node label of its node, or needs none.
	requires    nodeaffinity.RequiredNodeAffinity // of its node
}

// trouble says why a pod or a container is not ready.
type trouble struct {
	word        string // that stays the same while the cause does; "" if all is well
	cause, note string // in words for people, and what else is known, such as how often it has restarted
	act         string // what to do, instead of more
	more        string // the command of kubectl that says more, "" for none: itsLog or itsEvents
	log         string // of the container that this is about, "" if it has not run
	container   string // that this is about, "" for none, or if the pod has only one
}

// endpoint holds an endpoint that an EndpointSlice publishes.
type endpoint struct {
	*discoveryv1.Endpoint

	slice *discoveryv1.EndpointSlice
}

// unwritten lists the reasons of Ready while something is not written yet.
var unwritten = []string{v1alpha1.ReasonWriteFailed, v1alpha1.ReasonHostnamesNotPermitted, v1alpha1.ReasonInvalidSpec,
	v1alpha1.ReasonContested, v1alpha1.ReasonWaiting, v1alpha1.ReasonWritingServices}

// nodesOf returns the nodes that a LocalService selects. If the user may not list nodes, Services, published names
// and, if no labels matter, pods show which there are. With groupBy, the hostname then stands for the value.
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
		if f.purpose == plan.Published && !plan.HasNodeSelector(ls) && ls.Spec.GroupBy == "" && pod.Spec.NodeName != "" {
			add(pod.Spec.NodeName, nil)
		}
	}
	return nodes
}

// lastEvent returns the last message of a reason about an object, of those since a time: earlier ones may mislead.
func (f *facts) lastEvent(reason, about string, since time.Time) string {
	for _, e := range slices.Backward(f.Around.Events) {
		last := slices.MaxFunc([]time.Time{e.LastTimestamp.Time, e.EventTime.Time,
			ptr.Deref(e.Series, corev1.EventSeries{}).LastObservedTime.Time}, time.Time.Compare)
		if e.Reason == reason && e.InvolvedObject.Name == about && !last.Before(since) {
			return e.Message
		}
	}
	return ""
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
		id := [2]string{n.result.ID(), n.rival}
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

// keepsOff says what keeps all pods of the LocalService off a node, "" if nothing is known to: without a pod and what
// makes them, no taint is. Taints that Kubernetes sets itself follow from what else is known about a node.
func (f *facts) keepsOff(node *corev1.Node) string {
	taint, found := scheduling.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, f.tolerations,
		func(taint *corev1.Taint) bool {
			return taint.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(taint.Key, "node.kubernetes.io/")
		}, true)
	switch {
	case f.AllNodes && len(f.makers) > 0 && !slices.ContainsFunc(f.makers, func(w Workload) bool {
		fits, _ := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: w.Spec}).Match(node)
		return fits
	}):
		return fmt.Sprintf("left out by the nodeSelector or affinity of %s %s", f.makers[0].Kind, f.makers[0].Name)
	case node.Spec.Unschedulable:
		return "cordoned"
	case found && len(f.Pods)+len(f.makers) > 0:
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

const (
	maxListed     = 3                // items of a text before it only counts
	foreignLength = 400              // bytes of what somebody else wrote
	patience      = 10 * time.Second // how long the controller may take
	// UsualNamespace is where the controller is installed according to its documents.
	UsualNamespace = "local-service-system"
)

// first lists the first few items, and counts the rest.
func first(items []string) string { return words.List(items, maxListed) }

// quoteForeign makes a line of a text that somebody else wrote.
func quoteForeign(text string) string {
	return words.Cut(words.Printable(strings.Join(strings.Fields(text), " ")), foreignLength)
}

// since says for how long something has been so or, with a zero now, since when; "" if that is not known.
func since(t metav1.Time, now time.Time) string {
	switch {
	case t.Unix() <= 0:
		return ""
	case now.IsZero():
		return "since " + t.UTC().Format(time.DateTime) + " UTC"
	}
	return "for " + duration.HumanDuration(max(now.Sub(t.Time), 0))
}

// only returns the items for which something is true.
func only[T any](items []T, is func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(items), func(item T) bool { return !is(item) })
}

// numbered returns a port as people write it, such as 8080/TCP.
func numbered(port int32, protocol corev1.Protocol) string {
	return fmt.Sprintf("%d/%s", port, cmp.Or(protocol, corev1.ProtocolTCP))
}

// withNote adds a note to a text, if there is one.
func withNote(text, note string) string {
	if note == "" {
		return text
	}
	return text + " (" + note + ")"
}

// Natural returns a function that orders names as people do: node-2 before node-10. Only one goroutine may use it.
func Natural() func(a, b string) int {
	order := collate.New(language.Und, collate.Numeric)
	return func(a, b string) int { return cmp.Or(order.CompareString(a, b), cmp.Compare(a, b)) }
}
