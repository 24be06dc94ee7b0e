package status

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestStatus: the conditions that follow from what a sync found and did.
func TestStatus(t *testing.T) {
	// stalled lists Ready and Progressing of those that somebody has to edit.
	stalled := []string{"False WriteFailed, False WriteFailed", "False NameTaken, False NameTaken",
		"False Contested, False Contested", "False HostnamesNotPermitted, True WriteFailed"}
	type found = plan.Plan
	type outcome = Outcome
	no, quota := errors.New("no"), errors.New("quota")
	notPermitted := sliceError(
		`User "u" cannot create resource "endpointslices" in API group "discovery.k8s.io" in the namespace "default"`)
	copies := func(sources int, actions ...plan.Action) plan.Copies {
		out := plan.Copies{Sources: sources}
		for _, action := range actions {
			out.Changes = append(out.Changes, plan.CopyChange{Action: action})
		}
		return out
	}
	names := func(copies plan.Copies) found {
		return found{Nodes: 3, InPlace: 2, Ready: 3, IsHostnames: true, Copies: copies}
	}
	published := names(copies(2))
	waiting := []plan.Change{{Action: plan.Wait}}
	for name, c := range map[string]struct {
		plan               plan.Plan
		outcome            outcome
		ready, progressing string
		conflicted         string // its reason, "" if it is False
		says               string
	}{
		"all in place": {found{Nodes: 3, InPlace: 2, Ready: 3}, outcome{Made: made(1)}, "True ServicesInPlace",
			"False ServicesInPlace", "", "every selected node has its Service$"},
		"all in place, and no pods": {found{Nodes: 3, InPlace: 3}, outcome{}, "True NoneAnswering",
			"False NoneAnswering", "",
			"every selected node has its Service, and none answers: " +
				"kubectl get pods -n default -l app=demo -o wide shows the pods, and kubectl localservice nodes " +
				"-n default demo says why$"},
		"all in place, and few pods": {found{Nodes: 3, InPlace: 3, Ready: 1}, outcome{}, "True ServicesInPlace",
			"False ServicesInPlace", "", "every selected node has its Service, and 1 of 3 nodes answer: " +
				"kubectl localservice nodes -n default demo says why$"},
		"no nodes": {found{}, outcome{}, "False NoNodesSelected", "False NoNodesSelected", "",
			"the cluster has no node"},
		"no nodes selected": {found{SelectsNothing: true}, outcome{}, "False NoNodesSelected",
			"False NoNodesSelected", "",
			`no node matches spec.nodeSelector "disk=x", so there is nothing to create. Correct`},
		"no nodes selected any more": {found{SelectsNothing: true, Held: 3}, outcome{}, "False NoNodesSelected",
			"False NoNodesSelected", "", `"disk=x", so the Services of nodes that exist are kept, and their names ` +
				`still work (3). Correct`},
		"no nodes selected, of which some are gone": {found{SelectsNothing: true, Held: 3}, outcome{More: true},
			"False WritingServices", "True WritingServices", "", "being written"},
		"no names selected any more": {
			found{InPlace: 2, SelectsNothing: true, IsHostnames: true}, outcome{}, "False NoNodesSelected",
			"False NoNodesSelected", "", "no name is removed: every node has its name. Correct"},
		"writing": {found{Nodes: 3, InPlace: 1}, outcome{More: true}, "False WritingServices",
			"True WritingServices", "", "being written"},
		"denied, but not for long": {found{Nodes: 3, InPlace: 1}, outcome{Denied: true}, "False WritingServices",
			"True WritingServices", "", "being written"},
		"conflict": {found{Nodes: 3, InPlace: 2, Changes: byAction(conflicts("demo-b")...)}, outcome{}, "False NameTaken",
			"False NameTaken", "NameTaken", `^Service "demo-b" (no owner) already exists. If it is for the ` +
				"pods on node b, have it adopted: kubectl patch service -n default demo-b --type=merge -p " +
				`'{"metadata":{"labels":{"owner":"demo"}},"spec":{"selector":{"vm/rack":"b"}}}'. If nothing uses it, ` +
				"delete it; if the app needs it, create this LocalService under another name: a Service cannot be " +
				"renamed$"},
		"conflicts": {found{Nodes: 3, InPlace: 1, Changes: byAction(conflicts("demo-b", "demo-c")...)}, outcome{},
			"False NameTaken", "False NameTaken", "NameTaken",
			`^2 Services already exist: "demo-b" (no owner), "demo-c" (no owner). ` +
				"If they are for the pods on their nodes, have each adopted, such as: kubectl patch service -n " +
				"default demo-b "},
		"conflict with another LocalService": {
			found{Nodes: 3, InPlace: 1, Changes: byAction(conflicts("demo-b")[0], owned("demo-c"))}, outcome{},
			"False NameTaken", "False NameTaken", "NameTaken",
			`^2 Services already exist: "demo-b" (no owner), "demo-c" (owner: LocalService other). ` +
				"Create this LocalService under another name: deleting a Service does not help, as its owner would " +
				"create it again$"},
		"two nodes that want one name": {found{Nodes: 3, InPlace: 2, Changes: byAction(rival("x.y"))}, outcome{},
			"False NameTaken", "False NameTaken", "NameTaken", `^1 node has no name: x.y (demo-x-y is the name of node ` +
				"x-y). Select only one of the nodes that want one name$"},
		"a conflict, and nodes that want one name": {found{Nodes: 6, InPlace: 2, Changes: byAction(rival("x.y"),
			conflicts("demo-b")[0], rival("x.y.z"))}, outcome{}, "False NameTaken", "False NameTaken", "NameTaken",
			"under another name: a Service cannot be renamed. 2 nodes have no name: x.y ("},
		"waiting": {found{Nodes: 3, InPlace: 2, Changes: byAction(waiting...)}, outcome{}, "False WaitingForDeletion",
			"True WritingServices", "", "waiting for the deletion of 1 Service with"},
		"refused": {found{Nodes: 3, InPlace: 1}, outcome{Refused: []error{quota, quota}, More: true},
			"False WriteFailed", "True WriteFailed", "",
			"2 writes failed: quota; each is tried again within two minutes$"},
		"blocked": {found{Nodes: 3, InPlace: 1, Changes: byAction(
			plan.Change{Action: plan.Blocked, Name: "demo-a", Immutable: "clusterIP"},
			plan.Change{Action: plan.Blocked, Name: "demo-b", Immutable: "clusterIP"})}, outcome{},
			"False WriteFailed", "False WriteFailed", "", "^not updated, because Kubernetes does not let these fields " +
				"change: clusterIP of Service demo-a, clusterIP of Service demo-b. Either keep them"},
		"blocked and refused": {found{Nodes: 3, Changes: byAction(
			plan.Change{Action: plan.Blocked, Name: "demo-a", Immutable: "clusterIP"})}, outcome{Refused: []error{quota}},
			"False WriteFailed", "True WriteFailed", "", "two minutes. not updated"},
		"contested": {found{Nodes: 3}, outcome{Refused: contestedBy("type", "ports")}, "False Contested",
			"False Contested", "", "as it sets them: ports, type."},
		"names in place": {published, outcome{}, "True HostnamesInPlace", "False HostnamesInPlace", "",
			"every name is published"},
		"no names": {found{InPlace: 2, IsHostnames: true, Copies: copies(2)}, outcome{}, "False NoNodesSelected",
			"False NoNodesSelected", "", "^the cluster has no node$"},
		"nothing to copy yet": {names(copies(0)), outcome{}, "False NoEndpointSlices", "True WritingServices", "",
			"kube-controller-manager"},
		"nothing to copy, because the name is taken": {
			found{Nodes: 3, IsHostnames: true, Changes: byAction(conflicts("demo")...)}, outcome{},
			"False NameTaken", "False NameTaken", "NameTaken", "demo"},
		"to copy, as there are more pods": {names(copies(2, plan.Create)), outcome{}, "True HostnamesInPlace",
			"False HostnamesInPlace", "", "every name"},
		"to copy": {names(plan.Copies{Sources: 2, IsNew: true, Changes: copies(2, plan.Create).Changes}), outcome{},
			"False WritingServices", "True WritingServices", "", "being written"},
		"to copy, and contested": {names(plan.Copies{Sources: 2, IsNew: true, Changes: copies(2, plan.Create).Changes}),
			outcome{Refused: contestedBy("metadata")}, "False Contested", "False Contested", "", "metadata"},
		"names wait": {names(copies(2, plan.Wait, plan.Wait)), outcome{}, "False WaitingForDeletion",
			"True WritingServices", "", "2 EndpointSlices"},
		"names wait, and some are refused": {names(copies(2, plan.Wait)), outcome{Refused: []error{no}},
			"False WriteFailed", "True WriteFailed", "", "no"},
		"not permitted": {published, outcome{Refused: []error{notPermitted}}, "False HostnamesNotPermitted",
			"True WriteFailed", "", "hostnames.enabled=true, otherwise by hostnames.yaml of the release"},
		"forbidden by a policy": {published, outcome{Refused: []error{sliceError("no")}}, "False WriteFailed",
			"True WriteFailed", "", "1 write failed: create EndpointSlice default/x: endpointslices"},
		"refused, while others are being deleted": {
			found{Nodes: 3, Changes: byAction(waiting...)}, outcome{Refused: []error{quota}},
			"False WriteFailed", "True WritingServices", "", "1 write failed: quota"},
		"conflict and contested": {
			found{Nodes: 3, Changes: byAction(conflicts("demo-b")...)}, outcome{Refused: contestedBy("type")},
			"False NameTaken", "False NameTaken", "NameTaken", "demo-b"},
	} {
		t.Run(name, func(t *testing.T) {
			status := Of(with(v1alpha1.LocalServiceStatus{}, 7), &c.plan, &c.outcome)
			contested, conflicted := "False NotContested", "False NoConflict"
			if strings.Contains(fmt.Sprint(c.outcome.Refused), "something else sets") {
				contested = "True Contested"
			}
			if c.conflicted != "" {
				conflicted = "True " + c.conflicted
			}
			want := map[string]string{"Ready": c.ready, "Progressing": c.progressing, "Conflicted": conflicted,
				"Contested": contested}
			got := map[string]string{}
			for _, condition := range status.Conditions {
				if condition.Type == v1alpha1.ConditionStalled {
					continue // It follows from the others.
				}
				got[condition.Type] = string(condition.Status) + " " + condition.Reason
				if condition.ObservedGeneration != 7 || condition.Message == "" {
					t.Errorf("%s has no message, or is of generation %d", condition.Type, condition.ObservedGeneration)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			isStalled := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionStalled)
			if isStalled != slices.Contains(stalled, c.ready+", "+c.progressing) {
				t.Errorf("%s, %s: stalled: %t", c.ready, c.progressing, isStalled)
			}
			// ^ and $ mark the beginning and the end of the message.
			if got := "^" + meta.FindStatusCondition(status.Conditions, "Ready").Message + "$"; !strings.Contains(got,
				c.says) {
				t.Errorf("the message of Ready is %q, want one about %q", got, c.says)
			}
			if status.ObservedGeneration != 7 {
				t.Errorf("observed generation %d, want 7", status.ObservedGeneration)
			}
			if again := Of(with(status, 7), &c.plan, &c.outcome); !equality.Semantic.DeepEqual(status, again) {
				t.Error("the same outcome gives another status, which would be written for ever")
			}
		})
	}
}

// TestGroups: the message has the key of groupBy if no node has that label, or two values want one name, and counts
// nodes that have no name.
func TestGroups(t *testing.T) {
	ls := with(v1alpha1.LocalServiceStatus{}, 1)
	ls.Spec.GroupBy = "example.com/rack"
	conflict := plan.Change{Action: plan.Conflict, Name: "a-1", Node: "A_1", Rival: "A.1"}
	got := meta.FindStatusCondition(Of(ls, &plan.Plan{Nodes: 2, IsHostnames: true, Changes: byAction(conflict)},
		&Outcome{}).Conditions, v1alpha1.ConditionReady)
	if got.Reason != v1alpha1.ReasonNameTaken || got.Message != "1 value has no name: A_1 (a-1 is the name of value "+
		"A.1). Set the label example.com/rack to one value on the nodes that want one name" {
		t.Errorf("of rivals: %+v", got)
	}
	for names, want := range []string{
		"no node has a value of the label example.com/rack (spec.groupBy)",
		"every name is published; no name for 2 nodes on which the label example.com/rack (spec.groupBy) is missing",
	} {
		p := plan.Plan{Nodes: names, InPlace: 2, Ready: names, IsHostnames: true, Copies: plan.Copies{Sources: 1},
			Nameless: 2}
		status := Of(ls, &p, &Outcome{})
		if got := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady).Message; !strings.HasPrefix(got,
			want) {
			t.Errorf("the message is %q, want %q first", got, want)
		}
	}
}

// with returns a LocalService of a generation, with a status from earlier.
func with(old v1alpha1.LocalServiceStatus, generation int64) *v1alpha1.LocalService {
	ls := objects.LocalService(objects.Selecting("disk=x"))
	ls.Generation, ls.Status = generation, old
	return ls
}

func contestedBy(fields ...string) []error { return []error{&ContestedError{Fields: fields}} }

// made returns what was made if a number of Services were created.
func made(n int) map[plan.Action][]string {
	return map[plan.Action][]string{plan.Create: make([]string, n)}
}

func sliceError(why string) error {
	return &WriteError{Action: plan.Create, Kind: EndpointSliceKind, Namespace: "default", Name: "x",
		Err: apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), "x", errors.New(why))}
}

// TestStatusNamesPorts: the message says where the pods have other ports, which a headless Service does not translate.
func TestStatusNamesPorts(t *testing.T) {
	ls := with(v1alpha1.LocalServiceStatus{}, 1)
	for _, target := range []intstr.IntOrString{intstr.FromInt32(81), intstr.FromString("web")} {
		ls.Spec.Ports[0].TargetPort = target
		numbers := plan.PortNumbers{ls.Spec.Ports[0].Name: 81}
		status := Of(ls, &plan.Plan{Nodes: 3, InPlace: 3, Ready: 3, PortNumbers: numbers}, &Outcome{})
		got := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady).Message
		want := "every selected node has its Service; clients must connect to port 81 "
		if !strings.HasPrefix(got, want) {
			t.Errorf("the message of Ready is %q, want %q", got, want)
		}
	}
	ls.Spec.Ports[0].Protocol = corev1.ProtocolUDP
	status := Of(ls, &plan.Plan{Nodes: 3, InPlace: 3, Ready: 3, PortNumbers: plan.PortNumbers{}}, &Outcome{})
	if got := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady).Message; !strings.HasPrefix(got,
		"every selected node has its Service; no container has a port named web (UDP), which targetPort names: ") {
		t.Errorf("the message of Ready is %q", got)
	}
}

// TestStatusPublishNotReady: the message says that names which do not answer lead to pods.
func TestStatusPublishNotReady(t *testing.T) {
	ls := with(v1alpha1.LocalServiceStatus{}, 1)
	ls.Spec.PublishNotReadyAddresses = true
	for ready, want := range map[int]bool{0: true, 2: true, 3: false} {
		status := Of(ls, &plan.Plan{Nodes: 3, InPlace: 3, Ready: ready}, &Outcome{})
		got := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady).Message
		if strings.HasSuffix(got, "pods that are not ready are published all the same (publishNotReadyAddresses)") != want {
			t.Errorf("%d ready: %q", ready, got)
		}
	}
}

// TestStatusWithoutTime: a condition of which another client has written no time gets one. Without it, the API server
// would refuse the status for ever.
func TestStatusWithoutTime(t *testing.T) {
	ls := with(v1alpha1.LocalServiceStatus{Conditions: []metav1.Condition{
		{Type: "Ready", Status: "True", Reason: "ServicesInPlace"},
		{Type: "Theirs", Status: "True", Reason: "Any"}}}, 1)
	ls.CreationTimestamp = metav1.Unix(1, 0)
	for _, c := range Of(ls, &plan.Plan{Nodes: 1, InPlace: 1, Ready: 1}, &Outcome{}).Conditions {
		if c.LastTransitionTime.IsZero() {
			t.Errorf("%s has no time", c.Type)
		}
	}
}

// TestPodsChangeNumbersOnly: as pods become ready and go, no condition counts as changed, so that the status is written
// as seldom as for its numbers.
func TestPodsChangeNumbersOnly(t *testing.T) {
	for _, isHostnames := range []bool{false, true} {
		status := func(ready int) v1alpha1.LocalServiceStatus {
			return Of(with(v1alpha1.LocalServiceStatus{}, 1), &plan.Plan{Nodes: 2, InPlace: 2, Ready: ready,
				IsHostnames: isHostnames, Copies: plan.Copies{Sources: 1}}, &Outcome{})
		}
		for _, after := range []int{1, 2} {
			if changed := Changed(status(0).Conditions, status(after).Conditions); len(changed) > 0 {
				t.Errorf("with %d of 2 names ready, changed: %v", after, changed)
			}
		}
	}
}

// TestStatusOfInvalidKeepsCounts: nothing was observed, so the previous counts and problems stay.
func TestStatusOfInvalidKeepsCounts(t *testing.T) {
	before := Of(with(v1alpha1.LocalServiceStatus{}, 1), &plan.Plan{Nodes: 3, InPlace: 2,
		Changes: byAction(conflicts("demo-a")...)}, &Outcome{Refused: contestedBy("spec.type")})
	after := OfInvalid(with(before, 2), errors.New("bad"))
	if after.Nodes != 3 || after.Services != 2 {
		t.Errorf("%d nodes and %d services, want 3 and 2", after.Nodes, after.Services)
	}
	for _, name := range []string{v1alpha1.ConditionConflicted, v1alpha1.ConditionContested} {
		c := meta.FindStatusCondition(after.Conditions, name)
		want := meta.FindStatusCondition(before.Conditions, name)
		if want.Status != metav1.ConditionTrue || *c != *want {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
}

// TestSelectorHint: a label of nodes in the selector is a likely reason why nothing answers.
func TestSelectorHint(t *testing.T) {
	for key, want := range map[string]bool{"kubernetes.io/hostname": true, "node-role.kubernetes.io/worker": true,
		"app.kubernetes.io/name": false, "hostname": false} {
		ls := with(v1alpha1.LocalServiceStatus{}, 1)
		ls.Spec.Selector = map[string]string{"app": "demo", key: "x"}
		for ready, isReported := range []bool{want, false} {
			status := Of(ls, &plan.Plan{Nodes: 2, InPlace: 2, Ready: ready}, &Outcome{})
			message := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady).Message
			if got := strings.Contains(message, "the label "+key+" is one of nodes, and selector selects pods: "+
				"choose nodes with nodeSelector"); got != isReported {
				t.Errorf("%d ready: %s", ready, message)
			}
		}
	}
}

func byAction(changes ...plan.Change) map[plan.Action][]plan.Change {
	out := map[plan.Action][]plan.Change{}
	for _, change := range changes {
		out[change.Action] = append(out[change.Action], change)
	}
	return out
}

// conflicts returns changes that are impossible because of Services that nothing controls.
func conflicts(names ...string) []plan.Change {
	templates, err := plan.NewTemplates(objects.LocalService(), v1alpha1.DefaultNodeLabelKey, nil)
	utilruntime.Must(err)
	var out []plan.Change
	for _, name := range names {
		_, node, _ := strings.Cut(name, "-") // None with the name of mode Hostnames.
		out = append(out, plan.Change{Action: plan.Conflict, Name: name, Node: node, Template: templates[0],
			Current: objects.ForeignService(name)})
	}
	return out
}

// rival is a conflict between a node and x-y.
func rival(node string) plan.Change {
	return plan.Change{Action: plan.Conflict, Name: "demo-x-y", Node: node, Rival: "x-y"}
}

// owned is a conflict with a Service of another LocalService.
func owned(name string) plan.Change {
	service := objects.ForeignService(name)
	service.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.SchemeGroupVersion.String(),
		Kind: "LocalService", Name: "other", UID: "other", Controller: new(true)}}
	return plan.Change{Action: plan.Conflict, Name: name, Current: service}
}

// TestLackingFields: Ready says which fields an old CustomResourceDefinition may have dropped.
func TestLackingFields(t *testing.T) {
	ls := objects.LocalService()
	ready := Of(ls, &plan.Plan{Nodes: 1, InPlace: 1, Ready: 1}, &Outcome{}, "spec.a", "spec.b").Conditions[0]
	want := "the API server may have dropped spec.a, spec.b from this LocalService: install crd.yaml of the release, " +
		"and set them again"
	if ready.Status != metav1.ConditionTrue || !strings.HasSuffix(ready.Message, want) {
		t.Errorf("%+v, want it to end with %q", ready, want)
	}
	// Without a field, the rest may make no sense.
	if invalid := OfInvalid(ls, errors.New("x"), "spec.a", "spec.b").Conditions; !strings.HasSuffix(invalid[0].Message, want) {
		t.Errorf("%+v, want it to end with %q", invalid, want)
	}
}
