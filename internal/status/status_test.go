package status

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testobject"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

func TestStatus(t *testing.T) {
	for name, c := range map[string]struct {
		report                         Report
		ready, progressing, conflicted string
		says                           string
	}{
		"all in place": {Report{Nodes: 3, InPlace: 3}, "True ServicesInPlace", "False ServicesInPlace",
			"False NoConflict", "every selected node"},
		"no nodes": {Report{}, "False NoNodesSelected", "False ServicesInPlace", "False NoConflict",
			"the cluster has no node"},
		"no nodes selected": {Report{Unselected: &plan.Unselected{Selector: "disk=x"}}, "False NoNodesSelected",
			"False ServicesInPlace", "False NoConflict",
			`no node matches spec.nodeSelector "disk=x", so there is nothing to create`},
		"no nodes selected any more": {Report{Unselected: &plan.Unselected{Selector: "disk=x", Kept: 3}},
			"False NoNodesSelected", "False ServicesInPlace", "False NoConflict",
			`"disk=x", so 3 Services of nodes that exist are kept as they are. Correct`},
		"no nodes selected, of which some are gone": {Report{Writing: true, Unselected: &plan.Unselected{Kept: 3}},
			"False WritingServices", "True WritingServices", "False NoConflict", "being written"},
		"no names selected any more": {Report{InPlace: 2, Unselected: &plan.Unselected{Selector: "disk=x"},
			Hostnames: &Hostnames{Unpublished: true}}, "False NoNodesSelected",
			"False ServicesInPlace", "False NoConflict", "no name is taken away: every node has its name. Correct"},
		"no nodes selected, in the middle of a change of mode": {Report{Retirement: plan.Retirement{Services: 2, Unanswered: -1},
			Hostnames: &Hostnames{}, Unselected: &plan.Unselected{Kept: 2, Retiring: 2}},
			"False NoNodesSelected", "False ServicesInPlace",
			"False NoConflict", "2 Services"},
		"writing": {Report{Nodes: 3, InPlace: 1, Writing: true}, "False WritingServices", "True WritingServices",
			"False NoConflict", "being written"},
		"conflict": {Report{Nodes: 3, InPlace: 2, Conflicts: conflicts("demo-b")}, "False NameTaken",
			"False ServicesInPlace", "True NameTaken",
			"1 Service names are taken by Services that this LocalService does not control: demo-b (controlled by " +
				"nothing)."},
		"waiting": {Report{Nodes: 3, InPlace: 2, Waiting: 1}, "False WaitingForDeletion", "True WritingServices",
			"False NoConflict", "deleted"},
		"failed": {Report{Nodes: 3, InPlace: 1, Refused: []error{errors.New("quota"), errors.New("quota")}},
			"False WriteFailed", "True WriteFailed", "False NoConflict",
			"2 writes failed: 2 × quota"},
		"invalid": {Report{Invalid: errors.New("bad")}, "False InvalidSpec", "False InvalidSpec", "False NoConflict",
			"bad"},
		"contested": {Report{Nodes: 3, InPlace: 0, ContestedFields: []string{"ports", "type"}}, "False Contested",
			"False ServicesInPlace", "False NoConflict", "are left as it sets them: ports, type."},
		"names in place": {Report{Nodes: 3, InPlace: 2, Hostnames: &Hostnames{}}, "True HostnamesInPlace",
			"False ServicesInPlace", "False NoConflict", "every name is published"},
		"no names": {Report{InPlace: 2, Hostnames: &Hostnames{}}, "False NoNodesSelected",
			"False ServicesInPlace", "False NoConflict", "groupBy"},
		"nothing to copy yet": {Report{Nodes: 3, InPlace: 2, Hostnames: &Hostnames{Unpublished: true}},
			"False NoEndpointSlices", "True WritingServices", "False NoConflict", "kube-controller-manager"},
		"names wait": {Report{Nodes: 3, InPlace: 2, Hostnames: &Hostnames{Waiting: 2}}, "False WaitingForDeletion",
			"True WritingServices", "False NoConflict", "2 EndpointSlices"},
		"not permitted": {Report{Nodes: 3, InPlace: 2, Hostnames: &Hostnames{}, Refused: []error{sliceError(
			`User "u" cannot create resource "endpointslices" in API group "discovery.k8s.io" in the namespace "default"`)}},
			"False HostnamesNotPermitted", "True WriteFailed", "False NoConflict",
			"hostnames.enabled=true, otherwise by hostnames.yaml of the release"},
		"forbidden by a policy": {Report{Nodes: 3, InPlace: 2, Hostnames: &Hostnames{}, Refused: []error{sliceError("no")}},
			"False WriteFailed", "True WriteFailed", "False NoConflict",
			"1 write failed: create EndpointSlice default/x: endpointslices"},
		"the mode is changed": {Report{Nodes: 3, InPlace: 2, Hostnames: &Hostnames{},
			Retirement: plan.Retirement{Services: 3}}, "True HostnamesInPlace", "True ChangingMode", "False NoConflict",
			"every name"},
		"failed, while others are written": {Report{Nodes: 3, Refused: []error{errors.New("quota")}, Waiting: 1},
			"False WriteFailed", "True WritingServices", "False NoConflict", "1 write failed: quota"},
		"names wait, and some are refused": {Report{Nodes: 3, InPlace: 2, Hostnames: &Hostnames{Waiting: 2},
			Refused: []error{errors.New("no")}}, "False WriteFailed", "True WriteFailed", "False NoConflict", "no"},
		"conflict and contested": {Report{Nodes: 3, Conflicts: conflicts("demo-b"), ContestedFields: []string{"type"}},
			"False NameTaken", "False ServicesInPlace", "True NameTaken", "demo-b"},
	} {
		t.Run(name, func(t *testing.T) {
			status := c.report.Status(v1alpha1.LocalServiceStatus{}, 7)
			contested := "False NotContested"
			if c.report.ContestedFields != nil {
				contested = "True Contested"
			}
			for kind, want := range map[string]string{"Ready": c.ready, "Progressing": c.progressing,
				"Conflicted": c.conflicted, "Contested": contested} {
				got := meta.FindStatusCondition(status.Conditions, kind)
				if got == nil || string(got.Status)+" "+got.Reason != want || got.ObservedGeneration != 7 ||
					got.Message == "" {
					t.Errorf("%s is %+v, want %s", kind, got, want)
				}
			}
			if got := meta.FindStatusCondition(status.Conditions, "Ready").Message; !strings.Contains(got, c.says) {
				t.Errorf("Ready says %q, want something about %q", got, c.says)
			}
			if status.ObservedGeneration != 7 {
				t.Errorf("observed generation %d, want 7", status.ObservedGeneration)
			}
			if again := c.report.Status(status, 7); !equality.Semantic.DeepEqual(status, again) {
				t.Error("the same report gives another status: it would be written for ever")
			}
		})
	}
}

func sliceError(why string) error {
	return &WriteError{Action: plan.Create, Kind: EndpointSliceKind, Namespace: "default", Name: "x",
		Err: apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), "x", errors.New(why))}
}

// TestRetiring: since when the Services of the previous mode are not needed, and until when they stay. A change of the
// spec begins again, and an invalid one changes nothing.
func TestRetiring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := &v1alpha1.LocalService{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
		retire := func(services, unanswered int) {
			report := Report{Retirement: plan.Retirement{Services: services, Unanswered: unanswered}}
			ls.Status = report.Status(ls.Status, ls.Generation)
		}
		want := func(what string, left time.Duration, known bool, says string) {
			t.Helper()
			got, gotKnown := plan.LeftToRetire(ls, time.Now())
			c := meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionRetiring)
			isReported := c == nil && says == "" || c != nil && says != "" && strings.Contains(c.Message, says)
			if gotKnown != known || got < left || got > left+2*time.Second || !isReported {
				t.Errorf("%s: %v, known %v, and the condition is %v; want %v, %v and %q", what, got, gotKnown, c, left,
					known, says)
			}
		}
		retire(0, 0)
		want("nothing to retire", 0, false, "")
		retire(3, -1)
		want("the new ones are not there", 0, false, "until all new names are published")
		retire(3, 2)
		want("some do not answer", 0, false, "2 nodes answer through those only")
		retire(3, 0)
		want("all answer", plan.RetireAfter, true, "the new names answer")
		time.Sleep(20 * time.Second)
		retire(3, 0)
		want("a while later", plan.RetireAfter-20*time.Second, true, "the new names answer")
		retire(3, 1)
		want("a pod is not ready for a moment", plan.RetireAfter-20*time.Second, true, "the new names answer")
		ls.Generation++
		want("the spec has changed", 0, false, "the new names answer")
		ls.Status = (&Report{Invalid: errors.New("bad")}).Status(ls.Status, ls.Generation)
		want("it is invalid", 0, false, "the new names answer")
		retire(3, 0)
		want("all answer again", plan.RetireAfter, true, "the new names answer")
		time.Sleep(time.Minute)
		want("the time is over", 0, true, "the new names answer")
		retire(0, 0)
		want("they are gone", 0, false, "")
	})
}

// TestStatusKeepsTransitionTimes: a condition's time is that of its last change, and the old status is not touched.
func TestStatusKeepsTransitionTimes(t *testing.T) {
	long := metav1.Unix(1, 0)
	old := (&Report{Nodes: 1, InPlace: 1}).Status(v1alpha1.LocalServiceStatus{}, 1)
	for i := range old.Conditions {
		old.Conditions[i].LastTransitionTime = long
	}
	before := *old.DeepCopy()
	status := (&Report{Nodes: 2, InPlace: 1, Conflicts: conflicts("x")}).Status(old, 2)
	if !meta.FindStatusCondition(status.Conditions, "Progressing").LastTransitionTime.Equal(&long) {
		t.Error("Progressing has not changed, but its time has")
	}
	if meta.FindStatusCondition(status.Conditions, "Ready").LastTransitionTime.Equal(&long) {
		t.Error("Ready has changed, but its time has not")
	}
	if !equality.Semantic.DeepEqual(before, old) {
		t.Error("the old status was changed")
	}
}

// TestStatusOfInvalidKeepsCounts: nothing was looked at, so what was known stays.
func TestStatusOfInvalidKeepsCounts(t *testing.T) {
	status := (&Report{Invalid: errors.New("bad")}).Status(v1alpha1.LocalServiceStatus{Nodes: 3, Services: 3}, 2)
	if status.Nodes != 3 || status.Services != 3 {
		t.Errorf("%d nodes and %d services, want 3 and 3", status.Nodes, status.Services)
	}
}

// conflicts are changes that cannot be made because of Services that nothing controls.
func conflicts(names ...string) []plan.Change {
	var out []plan.Change
	for _, name := range names {
		out = append(out, plan.Change{Action: plan.Conflict, Name: name,
			Current: plan.FromAPI(testobject.ForeignService(name), "vm/rack")})
	}
	return out
}

// TestStatusStaysSmall: whatever happens at 5,000 nodes, a status does not grow with them.
func TestStatusStaysSmall(t *testing.T) {
	var names []string
	var refused []error
	for i := range 5000 {
		names = append(names, fmt.Sprintf("demo-node%d", i))
		refused = append(refused, &WriteError{Action: plan.Create, Name: names[i],
			Err: fmt.Errorf("%s is refused: %s", names[i], strings.Repeat("x", 2000))})
		refused = append(refused, fmt.Errorf("cause %d", i))
	}
	if got := summarizeConflicts(conflicts(names...)); len(got) > 500 || !strings.Contains(got, "5000") ||
		!strings.Contains(got, "4995 more") {
		t.Errorf("conflicts: %s", got)
	}
	if got := summarizeConflicts(conflicts(names[:5]...)); strings.Contains(got, "more") {
		t.Errorf("as many conflicts as are named: %s", got)
	}
	long := testobject.ForeignService("demo-a")
	long.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "X", Name: strings.Repeat("x", 1<<20),
		Controller: new(true)}}
	if got := summarizeConflicts([]plan.Change{{Current: plan.FromAPI(long, "vm/rack")}}); len(got) > 500 {
		t.Errorf("a controller of a long name: %d bytes", len(got))
	}
	if got := Summarize(refused); len(got) > 2000 || !strings.Contains(got, "10000") ||
		!strings.Contains(got, "4998 more causes") {
		t.Errorf("errors: %s", got)
	}
}

func TestTruncate(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"shorter":                {"abc", "abc"},
		"just as long":           {"abcd", "abcd"},
		"longer":                 {"abcde", "abcd…"},
		"between two characters": {"abé€", "abé…"},
		"within a character":     {"abc€", "abc…"},
		"not UTF-8 at all":       {"\x80\x80\x80\x80\x80", "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := truncate(c.text, 4); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestSummarize: errors are told by cause and counted, in the same words whichever Services were tried first.
func TestSummarize(t *testing.T) {
	refused := func(action plan.Action, name, why string) error {
		return &WriteError{Action: action, Namespace: "default", Name: name, Err: fmt.Errorf("services %q is "+
			"forbidden: %s", name, why)}
	}
	for name, c := range map[string]struct {
		errs []error
		want string
	}{
		"one": {[]error{refused(plan.Create, "demo-a", "quota")},
			`1 write failed: create Service default/demo-a: services "<name>" is forbidden: quota`},
		"one that was tried under a generated name": {[]error{&WriteError{Action: plan.Replace, Namespace: "default",
			Name: "demo-a", Err: errors.New(`services "demo-a-x7k2p" is forbidden`)}},
			`1 write failed: replace Service default/demo-a: services "<name>" is forbidden`},
		"one cause": {[]error{refused(plan.Create, "demo-a", "quota"), refused(plan.Create, "demo-b", "quota")},
			`2 writes failed: 2 × create Service: services "<name>" is forbidden: quota`},
		"two causes, in any order": {[]error{refused(plan.Update, "demo-c", "policy"),
			refused(plan.Create, "demo-b", "quota"), refused(plan.Create, "demo-a", "quota")},
			`3 writes failed: 2 × create Service: services "<name>" is forbidden: quota; 1 × update Service: services "<name>" is forbidden: policy`},
		"as many causes as are told": {[]error{errors.New("a"), errors.New("b"), errors.New("c")},
			"3 writes failed: 1 × a; 1 × b; 1 × c"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Summarize(c.errs); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			slices.Reverse(c.errs)
			if got := Summarize(c.errs); got != c.want {
				t.Errorf("in another order %s", got)
			}
		})
	}
}

// TestWarnings: what begins to need attention, or changes while it does, is worth an event; other numbers are not.
func TestWarnings(t *testing.T) {
	ready := func(reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason,
			Message: message}
	}
	conflicted := func(message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionConflicted, Status: metav1.ConditionTrue,
			Reason: v1alpha1.ReasonNameTaken, Message: message}
	}
	near := func(reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionNearCapacity, Status: metav1.ConditionTrue, Reason: reason,
			Message: message}
	}
	for name, c := range map[string]struct {
		before, after metav1.Condition
		want          bool
	}{
		"fails":      {metav1.Condition{}, ready(v1alpha1.ReasonWriteFailed, "x"), true},
		"is writing": {metav1.Condition{}, ready(v1alpha1.ReasonWritingServices, "x"), false},
		"fails as before": {ready(v1alpha1.ReasonWriteFailed, "3 × x"),
			ready(v1alpha1.ReasonWriteFailed, "4 × x"), false},
		"fails more often": {ready(v1alpha1.ReasonWriteFailed, "9 × x"),
			ready(v1alpha1.ReasonWriteFailed, "10 × x"), false},
		"fails for another reason": {ready(v1alpha1.ReasonWriteFailed, "3 × x"),
			ready(v1alpha1.ReasonWriteFailed, "3 × y"), true},
		"fails for another Service": {
			ready(v1alpha1.ReasonWriteFailed, "1 write failed: replace Service default/demo-a: no"),
			ready(v1alpha1.ReasonWriteFailed, "1 write failed: replace Service default/demo-b: no"), false},
		"fails for several Services": {
			ready(v1alpha1.ReasonWriteFailed, "1 write failed: create Service default/demo-a: no"),
			ready(v1alpha1.ReasonWriteFailed, "12 writes failed: 12 × create Service: no"), false},
		"fails for several reasons": {
			ready(v1alpha1.ReasonWriteFailed, "2 writes failed: 2 × create Service: no"),
			ready(v1alpha1.ReasonWriteFailed, "2 writes failed: 1 × create Service: no; 1 × update Service: no"), true},
		"another name is taken":  {conflicted("demo-node1"), conflicted("demo-node2"), true},
		"the same name is taken": {conflicted("demo-node1"), conflicted("demo-node1"), false},
		"more Services": {near(v1alpha1.ReasonManyServices, "10001"),
			near(v1alpha1.ReasonManyServices, "10002"), false},
		"another limit": {near(v1alpha1.ReasonManyServices, "1"), near(v1alpha1.ReasonManyEnvironmentVariables, "1"),
			true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Warnings([]metav1.Condition{c.before}, []metav1.Condition{c.after}); (len(got) == 1) != c.want {
				t.Errorf("warnings %v, want one: %v", got, c.want)
			}
		})
	}
}

func TestWritten(t *testing.T) {
	if got := Written(map[plan.Action]int{plan.Delete: 1, plan.Create: 3,
		plan.Adopt: 0}); got != "Services: created 3, deleted 1" {
		t.Error(got)
	}
	if got := Written(nil); got != "" {
		t.Errorf("%q for nothing", got)
	}
}
