package plan

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

func TestCompute(t *testing.T) {
	tmpl := template(t, localService())
	ours := func(node string, edit ...func(*corev1.Service)) *corev1.Service {
		s := stored(tmpl.Service(node))
		for _, e := range edit {
			e(s)
		}
		return s
	}
	terminating := func(s *corev1.Service) { s.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0))) }
	addressed := func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.96.0.1", []string{"10.96.0.1"} }
	for name, c := range map[string]struct {
		cluster cluster
		nodes   []string
		want    []string
		inPlace int
	}{
		"nothing to do": {newCluster(ours("a"), ours("b")), []string{"a", "b"}, nil, 2},
		"no nodes":      {newCluster(), nil, nil, 0},
		"missing": {newCluster(ours("a")), []string{"c", "b", "a"},
			[]string{"Create demo-b", "Create demo-c"}, 1},
		"orphans": {newCluster(ours("a"), ours("b"), ours("c")), []string{"b"},
			[]string{"Delete demo-a", "Delete demo-c"}, 1},
		"orphans of no nodes": {newCluster(ours("a")), nil, []string{"Delete demo-a"}, 0},
		"orphan is going":     {newCluster(ours("a", terminating)), nil, nil, 0},
		"drifted": {newCluster(ours("a", func(s *corev1.Service) { s.Spec.Selector = nil })),
			[]string{"a"}, []string{"Update demo-a"}, 0},
		"not headless": {newCluster(ours("a", addressed)), []string{"a"}, []string{"Replace demo-a"}, 0},
		"name taken": {newCluster(foreign("demo-a")), []string{"a", "b"},
			[]string{"Conflict demo-a", "Create demo-b"}, 0},
		"foreign and unwanted": {newCluster(foreign("demo-a"), foreign("x")), nil, nil, 0},
		"being deleted":        {newCluster(ours("a", terminating)), []string{"a"}, []string{"Wait demo-a"}, 0},
		"a finalizer keeps what is replaced": {newCluster(ours("a", terminating), ours("b", addressed)),
			[]string{"a", "b"}, []string{"Wait demo-a"}, 0},
		"a finalizer keeps what is replaced, and one is in place": {
			newCluster(ours("a", terminating), ours("b", addressed), ours("c")), []string{"a", "b", "c"},
			[]string{"Wait demo-a", "Replace demo-b"}, 1},
		"controlled by an earlier one of the same name": {newCluster(ours("a",
			func(s *corev1.Service) { s.OwnerReferences[0].UID = "earlier" })),
			[]string{"a"}, []string{"Wait demo-a"}, 0},
		"controlled by another LocalService that wants the name": {newCluster(ours("a",
			func(s *corev1.Service) { s.OwnerReferences[0].Name, s.OwnerReferences[0].UID = "demo-a", "other" })),
			[]string{"a"}, []string{"Conflict demo-a"}, 0},
		"controlled by a LocalService of another API group": {newCluster(ours("a", func(s *corev1.Service) {
			s.OwnerReferences[0].APIVersion, s.OwnerReferences[0].UID = "example.com/v1", "another"
		})), []string{"a"}, []string{"Conflict demo-a"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			in := c.cluster.input(tmpl, c.nodes...)
			before, nodesBefore := c.cluster.deepCopy(), slices.Clone(c.nodes)
			plan := Compute(in)
			if diff := cmp.Diff(c.want, actions(plan)); diff != "" || plan.InPlace != c.inPlace {
				t.Errorf("%d in place, want %d; changes (-want +got):\n%s", plan.InPlace, c.inPlace, diff)
			}
			if diff := cmp.Diff(before, c.cluster) + cmp.Diff(nodesBefore, c.nodes); diff != "" {
				t.Errorf("the input was changed:\n%s", diff)
			}
		})
	}
}

// TestComputeReady: nodes count as ready by the endpoints of Services that are ours.
func TestComputeReady(t *testing.T) {
	tmpl := template(t, localService())
	in := newCluster(stored(tmpl.Service("a")), stored(tmpl.Service("b")), foreign("demo-c")).input(tmpl, "a", "b", "c")
	in.Ready = map[string]bool{"demo-a": true, "demo-c": true, "demo-gone": true}
	if got := Compute(in).Ready; got != 1 {
		t.Errorf("%d ready nodes, want 1", got)
	}
}

// TestSelectsPod: a selector selects pods by their labels. An empty one selects none.
func TestSelectsPod(t *testing.T) {
	for name, c := range map[string]struct {
		selector map[string]string
		want     bool
	}{
		"nothing asked for": {nil, false},
		"what it has":       {map[string]string{"a": "1", "b": ""}, true},
		"another value":     {map[string]string{"a": "2"}, false},
		"another label":     {map[string]string{"a": "1", "c": ""}, false},
	} {
		ls := localService(func(ls *v1alpha1.LocalService) { ls.Spec.Selector = c.selector })
		if got := SelectsPod(ls, labels.Set{"a": "1", "b": ""}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// full returns a LocalService for n nodes, with everything in place.
func full(tb testing.TB, n int) Input {
	tmpl := template(tb, localService())
	nodes := nodeNames(n)
	c := newCluster()
	for _, node := range nodes {
		s := stored(tmpl.Service(node))
		c[s.Name] = s
	}
	in := c.input(tmpl, nodes...)
	shared := in.Owned[naming.ServiceName("demo", nodes[0])].Content()
	for name, service := range in.Owned {
		in.Owned[name] = &cached{Service: service, node: service.Node(), controller: service.Controller(),
			content: shared}
	}
	return in
}

// cached is a Service as a cache keeps it: frequently read fields are fields of its own, and Services share Content.
type cached struct {
	Service
	node       string
	controller Controller
	content    SharedContent
}

func (c *cached) GetNamespace() string   { return "default" }
func (c *cached) Node() string           { return c.node }
func (c *cached) Controller() Controller { return c.controller }
func (c *cached) Content() SharedContent { return c.content }
func (c *cached) Terminating() bool      { return false }

// TestComputeAllocations: if there is nothing to do, the allocations of a sync do not grow with the number of nodes.
func TestComputeAllocations(t *testing.T) {
	allocations := func(nodes int) float64 {
		in := full(t, nodes)
		return testing.AllocsPerRun(10, func() { Compute(in) })
	}
	if few, many := allocations(10), allocations(1000); few != many {
		t.Errorf("%v allocations for 1,000 nodes, %v for 10", many, few)
	}
}
