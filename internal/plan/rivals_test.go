package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// TestRivals: of the nodes that want one name, one has it, in whatever order they come.
func TestRivals(t *testing.T) {
	long, early := strings.Repeat("long.", 30)+"x", strings.Repeat("a", 51)+"-0"+strings.Repeat("b", 20)
	for name, c := range map[string]struct {
		nodes []string
		want  map[string]string // the nodes without the name, with the node that has it
	}{
		"one":                   {[]string{"x.y", "a.b"}, nil},
		"its own name":          {[]string{"x.y", "x-y"}, map[string]string{"x.y": "x-y"}},
		"first by name":         {[]string{"x.y.z", "x-y.z", "x.y-z"}, map[string]string{"x.y.z": "x-y.z", "x.y-z": "x-y.z"}},
		"both":                  {[]string{"x-y.z", "x-y-z", "x.y.z"}, map[string]string{"x.y.z": "x-y-z", "x-y.z": "x-y-z"}},
		"names without a dot":   {[]string{"x-y", "xy"}, nil},
		"a name that is a hash": {[]string{long, naming.Hostname(long)}, map[string]string{long: naming.Hostname(long)}},
		"a hash that is later":  {[]string{early, naming.Hostname(early)}, map[string]string{naming.Hostname(early): early}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, edit := range []func(*v1alpha1.LocalService){func(*v1alpha1.LocalService) {}, hostnamesMode} {
				ls := localService(edit)
				if len(c.nodes[0]) > 60 && ls.Spec.Mode != v1alpha1.ModeHostnames {
					continue // The hash of a Service's name comes earlier.
				}
				for _, nodes := range [][]string{c.nodes, slices.Sorted(slices.Values(c.nodes))} {
					got := Rivals(ls, nodes)
					if len(got) != len(c.want) || len(got) > 0 && !cmp.Equal(got, c.want) {
						t.Errorf("%v have %v, want %v", nodes, got, c.want)
					}
				}
			}
		})
	}
	if got := Rivals(localService(hostnamesMode, groupedBy("zone")), []string{"x.y", "x-y"}); len(got) > 0 {
		t.Errorf("nodes of groups: %v, want none", got)
	}
}

// TestRivalsInPlan: the nodes without the name are reported. When the name passes on, its Service is changed in place,
// and nothing goes to and fro.
func TestRivalsInPlan(t *testing.T) {
	ls := localService()
	tmpl, c := template(t, ls), newCluster()
	for _, step := range []struct {
		nodes []string
		want  []string
		node  string // that the name leads to afterwards
	}{
		{[]string{"x.y"}, []string{"Create demo-x-y"}, "x.y"},
		{[]string{"x.y", "x-y"}, []string{"Conflict demo-x-y", "Update demo-x-y"}, "x-y"},
		{[]string{"x-y", "x.y"}, []string{"Conflict demo-x-y"}, "x-y"},
		{[]string{"x.y"}, []string{"Update demo-x-y"}, "x.y"},
	} {
		plan := Compute(c.input(tmpl, step.nodes...))
		got := actions(plan)
		slices.Sort(got)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", step.nodes, diff)
		}
		if plan.Nodes != len(step.nodes) {
			t.Errorf("%v: %d nodes", step.nodes, plan.Nodes)
		}
		c.run(t, tmpl, plan)
		service := c["demo-x-y"]
		if node := service.Annotations[v1alpha1.NodeAnnotationKey]; node != step.node ||
			service.Spec.Selector[nodeLabelKey] != step.node || service.Labels[nodeLabelKey] != step.node {
			t.Errorf("%v: the name leads to %s: %v", step.nodes, node, service.Spec.Selector)
		}
	}
	if plan := Compute(newCluster(existing(t, ls, []string{"x-y"}, func(s *corev1.Service) {
		s.OwnerReferences = nil
	})...).input(tmpl, "x.y")); !slices.Equal(actions(plan), []string{"Conflict demo-x-y"}) {
		t.Errorf("an orphan of the other node: %v", actions(plan))
	}
}
