package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
)

func TestCompute(t *testing.T) {
	tmpl := template(t, localService())
	ours := func(node string, edit ...func(*corev1.Service)) *corev1.Service {
		return objects.Edit(stored(tmpl.Service(node)), edit...)
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
		"not headless": {newCluster(ours("a", addressed)), []string{"a"}, []string{"Blocked demo-a"}, 0},
		"name taken": {newCluster(foreign("demo-a")), []string{"a", "b"},
			[]string{"Conflict demo-a", "Create demo-b"}, 0},
		"foreign and unwanted": {newCluster(foreign("demo-a"), foreign("x")), nil, nil, 0},
		"being deleted":        {newCluster(ours("a", terminating)), []string{"a"}, []string{"Wait demo-a"}, 0},
		"controlled by an earlier one of the same name": {newCluster(ours("a",
			func(s *corev1.Service) { s.OwnerReferences[0].UID = "earlier" })),
			[]string{"a"}, []string{"Wait demo-a"}, 0},
		"controlled by another LocalService that wants the name": {newCluster(ours("a",
			func(s *corev1.Service) { s.OwnerReferences[0].Name, s.OwnerReferences[0].UID = "demo-a", "other" })),
			[]string{"a"}, []string{"Conflict demo-a"}, 0},
		"controlled by a LocalService of another API group": {newCluster(ours("a", func(s *corev1.Service) {
			s.OwnerReferences[0].APIVersion, s.OwnerReferences[0].UID = "example.com/v1", "another"
		})), []string{"a"}, []string{"Conflict demo-a"}, 0},
		"with a controller of another version": {newCluster(ours("a", func(s *corev1.Service) {
			s.OwnerReferences[0].APIVersion = "localservice.dev/v9"
		})), []string{"a"}, []string{"Conflict demo-a"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			in := c.cluster.input(tmpl, c.nodes...)
			nodes := slices.Clone(c.nodes)
			plan := Compute(in)
			if diff := cmp.Diff(c.want, actions(plan)); diff != "" || plan.InPlace != c.inPlace {
				t.Errorf("%d in place, want %d; changes (-want +got):\n%s", plan.InPlace, c.inPlace, diff)
			}
			if !slices.Equal(nodes, c.nodes) {
				t.Errorf("the input was changed: %v", c.nodes)
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

// BenchmarkCompute plans a LocalService that has everything on 5,000 nodes.
func BenchmarkCompute(b *testing.B) {
	tmpl, err := NewTemplates(localService(), nodeLabelKey, nil)
	if err != nil {
		b.Fatal(err)
	}
	in := Input{Templates: tmpl, Owned: map[string]*corev1.Service{}}
	for i := range 5000 {
		node := fmt.Sprintf("node%04d", i)
		in.Nodes = append(in.Nodes, node)
		service := stored(tmpl[0].Service(node))
		in.Owned[service.Name] = service
	}
	for b.Loop() {
		if plan := Compute(in); plan.InPlace != len(in.Nodes) {
			b.Fatal(plan.InPlace)
		}
	}
}
