package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clienttesting "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
)

// startWatch watches the cluster of a fixture until the test ends.
func startWatch(t *testing.T, f *fixture) (*cluster, <-chan news) {
	t.Helper()
	c := f.cluster("default")
	w := c.newWatcher("", "cluster.local")
	if err := w.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan news, 100), make(chan struct{})
	go func() {
		defer close(ended)
		w.run(ctx, func(n news) { told <- n })
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return c, told
}

// next returns the next news.
func next(t *testing.T, told <-chan news) news {
	t.Helper()
	select {
	case n := <-told:
		return n
	case <-time.After(time.Minute):
		t.Fatal("no news")
		return news{}
	}
}

// TestWatch: the first news equals the table. Then the news of each event has only what the event concerns.
func TestWatch(t *testing.T) {
	for _, allNodes := range []bool{true, false} {
		t.Run(fmt.Sprintf("nodes=%t", allNodes), func(t *testing.T) {
			f := newFixture(t)
			other := localService("other", "")
			other.Spec.Selector = map[string]string{"app": "other"}
			other.Spec.NodeSelector = map[string]string{"disk": "hdd"}
			if err := f.localServices.Tracker().Add(other); err != nil {
				t.Fatal(err)
			}
			if !allNodes {
				fail(&f.kube.Fake, "nodes", forbidden)
			}
			c, told := startWatch(t, f)
			first := next(t, told)
			ls, err := c.localService(t.Context(), "demo")
			if err != nil {
				t.Fatal(err)
			}
			read, err := c.read(t.Context(), ls, "cluster.local", true)
			if err != nil {
				t.Fatal(err)
			}
			want := diagnose.Nodes(read.input(t.Context(), ls))
			if diff := cmp.Diff(want, first.lists[key("demo")]); diff != "" || !first.loaded {
				t.Errorf("(-table +watch):\n%s", diff)
			}
			if names := namesOf(first); !slices.Equal(names, []string{"demo", "other"}) {
				t.Errorf("the first news is about %v", names)
			}
			if allNodes {
				followEvents(t, f, told)
			}
		})
	}
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

func namesOf(n news) (names []string) {
	for key := range n.lists {
		names = append(names, key.Name)
	}
	return slices.Sorted(slices.Values(names))
}

func followEvents(t *testing.T, f *fixture, told <-chan news) {
	nodes := f.kube.CoreV1().Nodes()
	services, pods := f.kube.CoreV1().Services("default"), f.kube.CoreV1().Pods("default")
	slicesOf := f.kube.DiscoveryV1().EndpointSlices("default")
	patchNode := func(name, patch string) error {
		_, err := nodes.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	for _, c := range []struct {
		event string
		do    func() error
		want  []string
	}{
		{"a heartbeat, and a Service of somebody else in the way", func() error {
			if err := patchNode("n1", `{"metadata":{"annotations":{"beat":"1"}}}`); err != nil {
				return err
			}
			_, err := services.Create(t.Context(), &corev1.Service{ObjectMeta: meta("other-n6")},
				metav1.CreateOptions{})
			return err
		}, []string{"other"}},
		{"a pod dies", func() error { return pods.Delete(t.Context(), "a", metav1.DeleteOptions{}) }, []string{"demo"}},
		{"a pod that nobody selects", func() error {
			p := pod("stranger", "n1", true)
			p.Labels = map[string]string{"app": "stranger"}
			if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
				return err
			}
			return services.Delete(t.Context(), "other-n6", metav1.DeleteOptions{})
		}, []string{"other"}},
		{"endpoints", func() error {
			return slicesOf.Delete(t.Context(), "demo-n1-abcde", metav1.DeleteOptions{})
		}, []string{"demo"}},
		{"a node leaves one and joins another", func() error {
			return patchNode("n3", `{"metadata":{"labels":{"disk":"hdd"}}}`)
		}, []string{"demo", "other"}},
		{"a LocalService is deleted", func() error {
			return f.localServices.LocalserviceV1alpha1().LocalServices("default").Delete(t.Context(), "other",
				metav1.DeleteOptions{})
		}, []string{"other"}},
	} {
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		n := next(t, told)
		if got := namesOf(n); !slices.Equal(got, c.want) {
			t.Errorf("%s: the news is about %v; want %v", c.event, got, c.want)
		}
		if c.event == "a LocalService is deleted" && n.lists[key("other")] != nil {
			t.Errorf("%s: %v", c.event, n.lists)
		}
	}
	select {
	case n := <-told:
		t.Errorf("without an event, there is news about %v", slices.Collect(maps.Keys(n.lists)))
	default:
	}
}

// TestWatchProblems: a refused watch is reported, and so is its recovery.
func TestWatchProblems(t *testing.T) {
	f := newFixture(t)
	var allowed atomic.Bool
	f.kube.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		return !allowed.Load(), nil, forbidden
	})
	_, told := startWatch(t, f)
	n := next(t, told)
	for len(n.problems) == 0 {
		n = next(t, told)
	}
	const want = "cannot watch pods, trying again: ask for the permission"
	if len(n.problems) != 1 || !strings.HasPrefix(n.problems[0], want) {
		t.Errorf("%v; want %s", n.problems, want)
	}
	allowed.Store(true)
	for len(n.problems) > 0 {
		n = next(t, told)
	}
}

// TestWatchUnreachable: a cluster that cannot be reached is one problem, however many attempts fail, and whatever their
// errors.
func TestWatchUnreachable(t *testing.T) {
	w := &watcher{wake: make(chan struct{}, 1), problems: map[string]string{}}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for i, resource := range []string{"pods", "nodes", "pods"} {
		w.problem(t.Context(), resource, &url.Error{Op: "Get", URL: fmt.Sprintf("https://api/?timeout=%ds", i),
			Err: fmt.Errorf("%w - error from a previous attempt: %d", refused, i)})
		want := []string{"the cluster cannot be reached, trying again: dial tcp: connection refused"}
		if got := w.news(t.Context()).problems; !slices.Equal(got, want) {
			t.Errorf("%q; want %q", got, want)
		}
	}
	w.problem(t.Context(), "nodes", nil)
	w.problem(t.Context(), "pods", nil)
	if got := w.news(t.Context()).problems; len(got) > 0 {
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

// TestChangesPrinted: the table is printed once, and then the lines that have changed, in the same columns.
func TestChangesPrinted(t *testing.T) {
	f := newFixture(t)
	c := f.cluster("default")
	ls, err := c.localService(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	list := func(change func(*diagnose.Input)) *diagnose.NodeList {
		read, err := c.read(t.Context(), ls, "d", true)
		if err != nil {
			t.Fatal(err)
		}
		in := read.input(t.Context(), ls)
		change(&in)
		return diagnose.Nodes(in)
	}
	before := list(func(*diagnose.Input) {})
	now := list(func(in *diagnose.Input) {
		delete(in.Nodes, "n3")
		in.Services = slices.DeleteFunc(in.Services, func(s *corev1.Service) bool { return s.Name == "demo-n5" })
	})
	for format, want := range map[string]string{
		"": `
NODE   SERVICE   ENDPOINTS   REASON
n1     demo-n1   2/2         
n2     demo-n2   0/1         c: exit code 1, 5 restarts
n3     demo-n3   0/0         no pod with app=demo here
n4     demo-n4   0/0         no Service; Services are being written
n5     demo-n5   0/0         NameConflict
n5     demo-n5   0/0         no Service; Services are being written
n3     demo-n3   0/0         gone: the LocalService does not give this name any more
`,
		"name": "\nservice/demo-n1\nservice/demo-n2\nservice/demo-n3\n",
		"jsonpath={range .items[*]}{.node}={.reason} {end};": "\nn1= n2=PodsNotReady n3=NoPods n4=ServiceMissing " +
			"n5=NameConflict ;n5=ServiceMissing n3=NameGone ;",
	} {
		var out strings.Builder
		p := newPlugin(genericiooptions.IOStreams{Out: &out, ErrOut: io.Discard})
		flags := genericclioptions.NewPrintFlags("")
		flags.OutputFormat = &format
		printer, err := p.newNodesPrinter(&nodesFlags{output: flags})
		if err != nil {
			t.Fatal(err)
		}
		last := map[string]*diagnose.NodeList{}
		for _, list := range []*diagnose.NodeList{before, before, now} {
			if err := printer.printChanges(last, []*diagnose.NodeList{list}); err != nil {
				t.Fatal(err)
			}
		}
		if "\n"+out.String() != want {
			t.Errorf("-o %s:\n%s\nwant:%s", format, out.String(), want)
		}
	}
}
