package diagnose

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// Input holds what findings are made from: one LocalService, and the objects that may be a part of it.
type Input struct {
	LocalService *v1alpha1.LocalService
	Nodes        []*corev1.Node
	// AllNodes is false if Nodes is empty because the user may not list them.
	AllNodes bool
	// Services, EndpointSlices and Pods are those of the namespace, those of others included.
	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice
	Pods           []*corev1.Pod
	// Around holds what was seen when no pod was there.
	Around Around
	// Controller holds what the Lease of the controller shows.
	Controller Controller
	Now        time.Time
	// Stable has texts name times rather than ages, so that they stay the same until something changes.
	Stable bool
	// Kubectl is the command that texts name, with the flags that choose the cluster.
	Kubectl       string
	ClusterDomain string // of DNS
}

// facts holds what is known about a LocalService, by subject. Of the Input, Services, EndpointSlices and Pods are only
// those that may be its own.
type facts struct {
	Input

	agesAt time.Time // what ages in texts refer to: Now, zero if texts are Stable
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
	tolerations  []corev1.Toleration     // of the pods, each once
	// strays are pods on another node than their node label says, by its value, in mode Services.
	strays map[string][]*pod
	// hostnames, isPublished, sources and outdated are about mode Hostnames: the names, nil for another mode; whether
	// Kubernetes has published the pods, and the addresses that it publishes as ready; and the names that are not
	// published as the pods are.
	hostnames   *plan.Names
	isPublished bool
	sources     sets.Set[string]
	outdated    sets.Set[string]
	endpoints   map[string][]endpoint // by name within the namespace
	portNumbers plan.PortNumbers      // of the pods
	names       []*name
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
	if !isUnobserved(ls) && f.ready.Status == metav1.ConditionFalse &&
		slices.Contains(unwritten, f.ready.Reason) {
		f.refusal = f.ready.Message
	}
	f.nodes = nodesOf(f)
	f.templates, _ = plan.NewTemplates(ls, f.nodeLabelKey, f.label) // The status says what is wrong with the spec.
	addPods(f)
	if f.purpose == plan.Published {
		addHostnames(f)
	} else {
		f.rivals = plan.Rivals(ls, slices.Collect(maps.Keys(f.nodes)))
	}
	addEndpoints(f)
	f.names = namesOf(f)
	for _, n := range f.names {
		slices.SortFunc(n.pods, func(a, b *pod) int { return cmp.Compare(a.Name, b.Name) }) // of all nodes of a group
		here := only(n.pods, func(p *pod) bool { return p.runs && !p.isLabelled })
		n.mislabelled = append(here, n.facts.strays[naming.NodeLabelValue(n.result.Node)]...)
		n.unready = only(n.pods, func(p *pod) bool { return p.runs && !p.Ready })
		n.terminating = only(n.pods, func(p *pod) bool { return !p.runs && !p.ended })
		addService(n)
		addPublished(n)
		if !n.result.Answers() {
			n.waiting = waitingFor(n)
		}
	}
	return f
}

// unwritten lists the reasons of Ready while something is not written yet.
var unwritten = []string{v1alpha1.ReasonWriteFailed, v1alpha1.ReasonHostnamesNotPermitted, v1alpha1.ReasonInvalidSpec,
	v1alpha1.ReasonContested, v1alpha1.ReasonWaiting, v1alpha1.ReasonWritingServices}

// isUnobserved reports whether the controller has not acted on the spec of a LocalService yet.
func isUnobserved(ls *v1alpha1.LocalService) bool {
	return ls.Status.ObservedGeneration < ls.Generation
}
