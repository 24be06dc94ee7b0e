package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// TestRivals: of the nodes that want one name, one has it, in whatever order they come: the one that is that name, or
// the first.
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
		"a hash that is later":  {[]string{early, naming.Hostname(early)}, map[string]string{early: naming.Hostname(early)}},
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
}

// TestHostnamesOfRivals: of the values that want one name, one has it, for all nodes with that value. Nodes of the
// others have no part in the name.
func TestHostnamesOfRivals(t *testing.T) {
	for name, c := range map[string]struct {
		values    string // of the nodes 0, 1, 2, …
		hostnames map[string]string
		rivals    map[string]string
	}{
		"one value": {"A.b A.b", map[string]string{"0": "a-b", "1": "a-b"}, nil},
		"its own name": {"A_b a-b A.B a-b", map[string]string{"1": "a-b", "3": "a-b"},
			map[string]string{"A_b": "a-b", "A.B": "a-b"}},
		"the first": {"blue_1 Blue.1 Blue.1 red", map[string]string{"1": "blue-1", "2": "blue-1", "3": "red"},
			map[string]string{"blue_1": "Blue.1"}},
		"no value": {" Red", map[string]string{"1": "red"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			values, nodes := map[string]string{}, []string{}
			for i, value := range strings.Split(c.values, " ") {
				nodes = append(nodes, strconv.Itoa(i))
				values[nodes[i]] = value
			}
			for range 2 {
				slices.Reverse(nodes)
				hostnames, rivals := Hostnames(localService(hostnamesMode, groupedBy("zone")), nodes,
					func(node, _ string) (string, bool) { return values[node], values[node] != "" })
				diff := cmp.Diff(c.hostnames, hostnames) + cmp.Diff(c.rivals, rivals, cmpopts.EquateEmpty())
				if diff != "" {
					t.Errorf("%v (-want +got):\n%s", nodes, diff)
				}
			}
		})
	}
}

// TestGroupsInPlan: a value without a name is a conflict, its nodes are nameless, and the other names are counted.
// While no node is selected, nothing is.
func TestGroupsInPlan(t *testing.T) {
	ls := localService(hostnamesMode, groupedBy("zone"))
	zones := map[string]string{"a": "Blue", "b": "blue", "1": "Blue", "2": "red"}
	in := newCluster(existing(t, ls, nil)...).input(template(t, localService(hostnamesMode)), someNodes...)
	in.Templates = templates(t, ls)
	in.Names = unpublished(ls, someNodes, func(node, _ string) (string, bool) { return zones[node], true })
	plan := Compute(in)
	got := fmt.Sprintf("%d names, %d nodes without one", plan.Nodes, plan.Nameless)
	for _, c := range plan.Changes[Conflict] {
		got += fmt.Sprintf(", %s of %s taken by %s", c.Name, c.Node, c.Rival)
	}
	if want := "3 names, 3 nodes without one, blue of Blue taken by blue"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	ls.Spec.NodeSelector, in.Nodes = map[string]string{"disk": "ssd"}, nil
	if got := Compute(in); len(got.Changes) > 0 || got.Nodes > 0 {
		t.Errorf("no node is selected: %+v", got)
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
