package fanout

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

func TestStatus(t *testing.T) {
	for name, c := range map[string]struct {
		outcome                        Outcome
		ready, progressing, conflicted string
		says                           string
	}{
		"all in place": {Outcome{Nodes: 3, InPlace: 3}, "True ServicesInPlace", "False ServicesInPlace", "False NoConflict", "every selected node"},
		"no nodes":     {Outcome{}, "True NoNodes", "False ServicesInPlace", "False NoConflict", "nodeSelector"},
		"writing":      {Outcome{Nodes: 3, InPlace: 1, Writing: true}, "False WritingServices", "True WritingServices", "False NoConflict", "being written"},
		"conflict": {Outcome{Nodes: 3, InPlace: 2, Conflicts: []string{"demo-b"}}, "False NameTaken", "False ServicesInPlace", "True NameTaken",
			"1 Service names are taken by Services that this LocalService does not control: demo-b."},
		"waiting": {Outcome{Nodes: 3, InPlace: 2, Waiting: 1}, "False WaitingForDeletion", "True WritingServices", "False NoConflict", "deleted"},
		"failed": {Outcome{Nodes: 3, InPlace: 1, Errors: []error{errors.New("quota"), errors.New("quota")}}, "False WriteFailed", "True WriteFailed", "False NoConflict",
			"2 writes failed: quota"},
		"invalid": {Outcome{Invalid: errors.New("bad")}, "False InvalidSpec", "False InvalidSpec", "False NoConflict", "bad"},
	} {
		t.Run(name, func(t *testing.T) {
			status := Status(v1alpha1.LocalServiceStatus{}, 7, c.outcome)
			for kind, want := range map[string]string{"Ready": c.ready, "Progressing": c.progressing, "Conflicted": c.conflicted} {
				got := meta.FindStatusCondition(status.Conditions, kind)
				if got == nil || string(got.Status)+" "+got.Reason != want || got.ObservedGeneration != 7 || got.Message == "" {
					t.Errorf("%s is %+v, want %s", kind, got, want)
				}
			}
			if got := meta.FindStatusCondition(status.Conditions, "Ready").Message; !strings.Contains(got, c.says) {
				t.Errorf("Ready says %q, want something about %q", got, c.says)
			}
			if again := Status(status, 7, c.outcome); !equality.Semantic.DeepEqual(status, again) {
				t.Error("the same outcome gives another status: it would be written for ever")
			}
		})
	}
}

// TestStatusKeepsTransitionTimes: a condition's time is that of its last change, and the old status is not touched.
func TestStatusKeepsTransitionTimes(t *testing.T) {
	long := metav1.Unix(1, 0)
	old := Status(v1alpha1.LocalServiceStatus{}, 1, Outcome{Nodes: 1, InPlace: 1})
	for i := range old.Conditions {
		old.Conditions[i].LastTransitionTime = long
	}
	before := *old.DeepCopy()
	status := Status(old, 2, Outcome{Nodes: 2, InPlace: 1, Conflicts: []string{"x"}})
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
	status := Status(v1alpha1.LocalServiceStatus{Nodes: 3, Services: 3}, 2, Outcome{Invalid: errors.New("bad")})
	if status.Nodes != 3 || status.Services != 3 {
		t.Errorf("%d nodes and %d services, want 3 and 3", status.Nodes, status.Services)
	}
}

// TestStatusStaysSmall: whatever happens at 5,000 nodes, a status does not grow with them.
func TestStatusStaysSmall(t *testing.T) {
	var o Outcome
	for i := range 5000 {
		o.Conflicts = append(o.Conflicts, fmt.Sprintf("demo-node%d", i))
		o.Errors = append(o.Errors, fmt.Errorf("create Service demo-node%d: %s", i, strings.Repeat("x", 2000)))
	}
	if got := SummarizeConflicts(o.Conflicts); len(got) > 400 || !strings.Contains(got, "5000") || !strings.Contains(got, "4995 more") {
		t.Errorf("conflicts: %s", got)
	}
	if got := SummarizeErrors(o.Errors); len(got) > 2000 || !strings.Contains(got, "5000") {
		t.Errorf("errors: %s", got)
	}
}
