package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clienttesting "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
)

// startWatch watches the cluster of a fixture until the test ends.
func startWatch(t *testing.T, f *fixture) (*reader, <-chan snapshot) {
	t.Helper()
	o := f.read(t)
	ctx, cancel := context.WithCancel(t.Context())
	reported, ended := make(chan snapshot, 100), make(chan struct{})
	go func() {
		defer close(ended)
		o.follow(ctx, func(s snapshot) { reported <- s })
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return o, reported
}

// until returns the first snapshot of which something is true.
func until(t *testing.T, reported <-chan snapshot, is func(snapshot) bool) snapshot {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case s := <-reported:
			if is(s) {
				return s
			}
		case <-timeout:
			t.Fatal("no such snapshot")
			return snapshot{}
		}
	}
}

// TestFollow: the first snapshot equals the table. Then each change leads to another one.
func TestFollow(t *testing.T) {
	for _, allNodes := range []bool{true, false} {
		t.Run(fmt.Sprintf("nodes=%t", allNodes), func(t *testing.T) {
			f := newFixture(t)
			if !allNodes {
				fail(&f.kube.Fake, "nodes", forbidden)
			}
			_, reported := startWatch(t, f)
			first := until(t, reported, func(snapshot) bool { return true })
			if diff := cmp.Diff(f.read(t).lists(t.Context()), first.lists); diff != "" {
				t.Errorf("(-table +watch):\n%s", diff)
			}
			if err := f.kube.CoreV1().Pods("default").Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			until(t, reported, func(s snapshot) bool {
				return s.lists[0].Items[1].Reason == diagnose.EndpointsOutdated
			})
			ls := f.localServices.LocalserviceV1alpha1().LocalServices("default")
			if err := ls.Delete(t.Context(), "demo", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			s := until(t, reported, func(s snapshot) bool { return len(s.lists) == 0 })
			if want := "There is no LocalService in namespace default."; s.Nothing != want || first.Nothing != "" {
				t.Errorf("%q and then %q; want %q", first.Nothing, s.Nothing, want)
			}
		})
	}
}

// TestTrim: what is large and not read is dropped.
func TestTrim(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", ManagedFields: []metav1.ManagedFieldsEntry{{}}},
		Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{}}}}
	want := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if got, err := trim(node); err != nil || !cmp.Equal(got, any(want)) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestWatchProblems: a refused watch is reported, and so is its recovery.
func TestWatchProblems(t *testing.T) {
	f := newFixture(t)
	var allowed atomic.Bool
	f.kube.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		return !allowed.Load(), nil, forbidden
	})
	_, reported := startWatch(t, f)
	const want = "cannot watch pods, trying again: ask for the permission"
	s := until(t, reported, func(s snapshot) bool { return len(s.Problems) > 0 })
	if len(s.Problems) != 1 || !strings.HasPrefix(s.Problems[0], want) {
		t.Errorf("%v; want %s", s.Problems, want)
	}
	allowed.Store(true)
	until(t, reported, func(s snapshot) bool { return len(s.Problems) == 0 })
}

// TestWatchUnreachable: a cluster that cannot be reached is one problem, however many attempts fail, and whatever their
// errors.
func TestWatchUnreachable(t *testing.T) {
	o := newFixture(t).read(t)
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for i, resource := range []string{"pods", "nodes", "pods"} {
		o.addProblem(t.Context(), resource, &url.Error{Op: "Get", URL: fmt.Sprintf("https://api/?timeout=%ds", i),
			Err: fmt.Errorf("%w - error from a previous attempt: %d", refused, i)})
		want := []string{"the cluster cannot be reached, trying again: dial tcp: connection refused"}
		if got := o.snapshot(t.Context()).Problems; !slices.Equal(got, want) {
			t.Errorf("%q; want %q", got, want)
		}
	}
	o.addProblem(t.Context(), "nodes", nil)
	o.addProblem(t.Context(), "pods", nil)
	if got := o.snapshot(t.Context()).Problems; len(got) > 0 {
		t.Errorf("the problem is over, but reported: %q", got)
	}
}

// TestWatchRefused: a user without permission to read gets an error at once, as from other commands.
func TestWatchRefused(t *testing.T) {
	for _, args := range [][]string{{"view"}, {"view", "demo"}, {"nodes", "demo", "-w"}} {
		f := newFixture(t)
		fail(&f.kube.Fake, "endpointslices", forbidden)
		f.wantError(t, "error: ask for the permission", args...)
	}
	newFixture(t).wantError(t, "leave out either", "view", "demo", "-A")
}

// TestChangesPrinted: the table is printed once, and then the lines that have changed, in the same columns. A line below
// says which name is gone.
func TestChangesPrinted(t *testing.T) {
	f := newFixture(t)
	list := func(change func(*diagnose.Input)) []*diagnose.NodeList {
		o := f.read(t)
		in := o.input("default")
		change(&in)
		return []*diagnose.NodeList{o.list(t.Context(), localService("demo", "", demoPorts...), in)}
	}
	before := list(func(*diagnose.Input) {})
	now := list(func(in *diagnose.Input) {
		in.Nodes = slices.DeleteFunc(in.Nodes, func(n *corev1.Node) bool { return n.Name == "n3" })
		in.Services = slices.DeleteFunc(in.Services, func(s *corev1.Service) bool { return s.Name == "demo-n5" })
	})
	for format, want := range map[string]string{
		"": `
NODE   SERVICE   ENDPOINTS   REASON
n1     demo-n1   2/2         
n2     demo-n2   0/1         exit code 1 (c: 5 restarts)
n3     demo-n3   0/0         no matching pod here (app=demo)
n4     demo-n4   0/0         no Service; Services are being written
n5     demo-n5   0/0         the name is taken by a Service without an owner (demo-n5)
n5     demo-n5   0/0         no Service; Services are being written
`,
		"name": "\nservice/demo-n1\nservice/demo-n2\nservice/demo-n3\n",
		"jsonpath={range .items[*]}{.node}={.reason} {end};": "\nn1= n2=PodsNotReady n3=NoPods n4=ServiceMissing " +
			"n5=NameConflict ;n5=ServiceMissing ;",
	} {
		var out, errOut strings.Builder
		flags := genericclioptions.NewPrintFlags("")
		flags.OutputFormat = &format
		printer := &nodesPrinter{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}, flags: flags,
			single: true}
		if err := printer.complete(); err != nil {
			t.Fatal(err)
		}
		for _, lists := range [][]*diagnose.NodeList{before, before, now} {
			if err := printer.printChanges(lists); err != nil {
				t.Fatal(err)
			}
		}
		if "\n"+out.String() != want {
			t.Errorf("-o %s:\n%s\nwant:%s", format, out.String(), want)
		}
		const gone = "\nn3 demo-n3 is gone.\n"
		if strings.Count(errOut.String(), "gone") != strings.Count(errOut.String(), gone) ||
			strings.Contains(errOut.String(), gone) != (format == "") {
			t.Errorf("-o %s: %s", format, errOut.String())
		}
	}
}
