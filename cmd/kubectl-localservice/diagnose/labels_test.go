package diagnose

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// managedBy adds what a manager has set of a pod's metadata.
func managedBy(manager, metadata string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":` + metadata + `}`),
		})
	}
}

var (
	created      = managedBy("kube-controller-manager", `{"f:generateName":{},"f:labels":{".":{},"f:app":{}}}`)
	fromTemplate = managedBy("kube-controller-manager",
		`{"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:vm/rack":{}}}`)
	byController = managedBy(v1alpha1.FieldManager, `{"f:labels":{"f:vm/rack":{}}}`)
	byHand       = managedBy("kubectl-label", `{"f:labels":{"f:vm/rack":{}}}`)
	byKubelet    = managedBy("kubelet", `{}`)
)

func scheduledAt(second int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled,
			LastTransitionTime: metav1.Time{Time: time.Unix(second, 0)}})
	}
}

func createdAt(second int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.Time{Time: time.Unix(second, 0)} }
}

func TestNodeLabels(t *testing.T) {
	long := strings.Repeat("n", 64)
	for name, c := range map[string]struct {
		pods []*corev1.Pod
		want NodeLabels
		line string // a part of it; none with ""
	}{
		"no pods": {},
		"with the binding": {
			pods: []*corev1.Pod{pod("0", "n1", created, unlabelled), pod("a", "n1", created, byKubelet),
				pod("b", "n2", created)},
			want: NodeLabels{AtBinding, 2, 0}, line: "set with the binding, by the admission policies.",
		},
		"by the controller": {
			pods: []*corev1.Pod{pod("a", "n1", created, byController, byKubelet)},
			want: NodeLabels{ByController, 0, 1}, line: "set by the controller, after the binding.",
		},
		"corrected by the controller, and confirmed by somebody": {
			pods: []*corev1.Pod{pod("a", "n1", byHand, created, byController, byHand)},
			want: NodeLabels{ByController, 0, 1}, line: "by the controller",
		},
		"the policies are new": {
			pods: []*corev1.Pod{pod("c", "n1", created, byController, scheduledAt(1)),
				pod("b", "n1", created, scheduledAt(3)), pod("a", "n2", created, byController, scheduledAt(2))},
			want: NodeLabels{AtBinding, 1, 2}, line: "by the admission policies; by the controller on 2 of 3 pods.",
		},
		"the policies are gone": {
			pods: []*corev1.Pod{pod("a", "n1", created, byController, scheduledAt(2)),
				pod("b", "n2", created, scheduledAt(1))},
			want: NodeLabels{ByController, 1, 1}, line: "by the controller, after the binding; with the binding on " +
				"1 of 2 pods.",
		},
		"waited for a node": {
			pods: []*corev1.Pod{pod("a", "n1", created, createdAt(1), scheduledAt(3)),
				pod("b", "n2", created, byController, createdAt(2))},
			want: NodeLabels{AtBinding, 1, 1}, line: "by the controller on 1 of 2 pods",
		},
		"their template's":                {pods: []*corev1.Pod{pod("a", "n1", fromTemplate)}},
		"somebody's":                      {pods: []*corev1.Pod{pod("a", "n1", created, byHand)}},
		"not labelled":                    {pods: []*corev1.Pod{pod("a", "n1", created, unlabelled)}},
		"labelled wrongly":                {pods: []*corev1.Pod{pod("a", "n1", created, labelled("n2"))}},
		"not scheduled":                   {pods: []*corev1.Pod{pod("a", "", created)}},
		"without managed fields":          {pods: []*corev1.Pod{pod("a", "n1")}},
		"left to the controller, as long": {pods: []*corev1.Pod{pod("a", long, created, byController)}},
		"another app's": {pods: []*corev1.Pod{pod("a", "n1", created,
			func(p *corev1.Pod) { p.Labels["app"] = "other" })}},
		"with an entry without fields": {
			pods: []*corev1.Pod{pod("a", "n1", created, byKubelet,
				func(p *corev1.Pod) { p.ManagedFields[1].FieldsV1 = nil })},
			want: NodeLabels{AtBinding, 1, 0}, line: "by the admission policies",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := nodesOf(t, Input{LocalService: localService(), Pods: c.pods}).NodeLabels
			if got != c.want {
				t.Errorf("got %+v; want %+v", got, c.want)
			}
			if line := got.String(); !strings.Contains(line, c.line) || (line == "") != (c.line == "") {
				t.Errorf("%+v is %q; want %q", got, line, c.line)
			}
		})
	}
}

// TestLabelReasons checks node n1, whose pods do not have its label. Owner "by-label" selects pods by it, "by-app" does
// not, and the selector of any other is not known.
func TestLabelReasons(t *testing.T) {
	const (
		refused  = "; the pod's events say whether it was refused"
		another  = ": give the workload another selector, or the controller another key (-node-label-key)"
		look     = ": check that selector, and see the pod's events"
		policies = ": the pod's events say whether the controller may correct it"
	)
	keys := map[string][]string{"by-label": {"app", nodeLabel}, "by-app": {"app"}}
	of := func(kind, name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.OwnerReferences = controlledBy("apps/v1", kind, name) }
	}
	byLabel, byApp, unknown := of("ReplicaSet", "by-label"), of("ReplicaSet", "by-app"), of("CloneSet", "x")
	notController := func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }
	rack1 := labelled("rack1")
	for name, c := range map[string]struct {
		pods    []*corev1.Pod
		reason  Reason
		message string
		asked   string // owners whose selectors are needed
	}{
		"no label": {[]*corev1.Pod{pod("a", "n1", unlabelled, byLabel), pod("b", "n1", unlabelled)}, PodsUnlabelled,
			"no label vm/rack=n1: a, b" + refused, ""},
		"the owner selects by it": {[]*corev1.Pod{pod("a", "n1", rack1, byLabel)}, PodsSelectedByLabel,
			"a has vm/rack=rack1, by which ReplicaSet by-label selects it" + another, "by-label"},
		"the owner selects by an empty value": {[]*corev1.Pod{pod("a", "n1", labelled(""), byLabel)},
			PodsSelectedByLabel, "a has vm/rack=, by which ReplicaSet by-label selects it" + another, "by-label"},
		"the owner is not known": {[]*corev1.Pod{pod("a", "n1", rack1, unknown)}, PodsSelectedByLabel,
			"a has vm/rack=rack1, by which CloneSet x may select it" + look, "x"},
		"the owner does not select by it": {[]*corev1.Pod{pod("a", "n1", rack1, byApp)}, PodsMislabelled,
			"a has vm/rack=rack1 instead of n1" + policies, "by-app"},
		"no owner": {[]*corev1.Pod{pod("a", "n1", rack1)}, PodsMislabelled,
			"a has vm/rack=rack1 instead of n1" + policies, ""},
		"an owner that is no controller": {[]*corev1.Pod{pod("a", "n1", rack1, byLabel, notController)},
			PodsMislabelled, "a has vm/rack=rack1 instead of n1" + policies, ""},
		"all of these": {[]*corev1.Pod{pod("a", "n1", unlabelled), pod("b", "n1", rack1),
			pod("c", "n1", rack1, unknown), pod("d", "n1", rack1, byLabel),
			pod("e", "n1", labelled("rack2"), byLabel)}, PodsSelectedByLabel,
			"d has vm/rack=rack1, by which ReplicaSet by-label selects it (1 more pod)" + another,
			"x by-label by-label"},
		"right, ended or not on the node": {[]*corev1.Pod{pod("a", "n1", byLabel), pod("b", "n1", rack1, byLabel,
			terminating), pod("c", "n1", rack1, byLabel, phase(corev1.PodFailed, "")), pod("d", "", rack1, byLabel)},
			"", "", ""},
		"elsewhere with the label of this node": {[]*corev1.Pod{pod("a", "n2", labelled("n1"), byLabel)},
			PodsOfOtherNode, "labelled vm/rack=n1, but on another node: a (n2); ReplicaSet by-label selects it by " +
				"that label", "by-label"},
		"elsewhere, and nobody selects by it": {[]*corev1.Pod{pod("a", "n2", labelled("n1"), byApp)},
			PodsOfOtherNode, "labelled vm/rack=n1, but on another node: a (n2); the controller has not corrected it " +
				"yet", "by-app"},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{LocalService: localService(), Nodes: nodes("n1"), Pods: c.pods,
				Services:       []*corev1.Service{service("n1")},
				EndpointSlices: []*discoveryv1.EndpointSlice{slice("n1", endpoint("a", "10.0.0.1", true))}}
			var asked []string
			in.SelectorKeys = func(owner *metav1.OwnerReference) []string {
				asked = append(asked, owner.Name)
				return keys[owner.Name]
			}
			got := Nodes(in).Items[0]
			if got.Reason != c.reason || got.Message != c.message {
				t.Errorf("got %s: %s\nwant %s: %s", got.Reason, got.Message, c.reason, c.message)
			}
			if got := strings.Join(asked, " "); got != c.asked {
				t.Errorf("asked for the selectors of %q; want %q", got, c.asked)
			}
			nodesOf(t, in) // It is the same for trimmed objects.
			in.Controller.Stopped = true
			if got := Nodes(in).Items[0].Message; got != strings.TrimSuffix(c.message, refused) {
				t.Errorf("while no controller runs: %s", got)
			}
		})
	}
}
