package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestVariables: the values of spec.serviceMetadata are those of each Service's own node.
func TestVariables(t *testing.T) {
	const dotted = "ip-10-0-0-3.ec2.internal"
	for name, c := range map[string]struct{ value, node, want string }{
		"name":           {"$(NODE_NAME).example.com", "node2", "node2.example.com"},
		"dotted name":    {"$(NODE_NAME)", dotted, dotted},
		"DNS label":      {"$(NODE_DNS_LABEL).example.com", dotted, "ip-10-0-0-3-ec2-internal.example.com"},
		"label as it is": {"$(NODE_DNS_LABEL)", "node2", "node2"},
		"twice":          {"$(NODE_NAME),$(NODE_NAME)", "n", "n,n"},
		"escape":         {"$$(NODE_NAME)", "n", "$(NODE_NAME)"},
		"unknown":        {"$(POD) $(NODE_NAME", "n", "$(POD) $(NODE_NAME"}, // accepted by an older definition
		"dollars":        {"a$$b$", "n", "a$$b$"},
		"more dollars":   {"$$$(NODE_NAME)$$$$(NODE_NAME)$", "n", "$$(NODE_NAME)$$$(NODE_NAME)$"},
		"label":          {"in $(NODE_LABEL['zone']).", "n", "in eu."},
		"labels":         {"$(NODE_LABEL['a.b/c'])$(NODE_LABEL['zone'])$(NODE_LABEL['empty'])", "n", "1eu"},
		"escaped label":  {"$$(NODE_LABEL['zone'])", "n", "$(NODE_LABEL['zone'])"},
		"not again":      {"$$($(NODE_NAME)", "NODE_NAME)", "$(NODE_NAME)"},
	} {
		t.Run(name, func(t *testing.T) {
			metadata := map[string]string{"note": c.value}
			ls := localService(func(ls *v1alpha1.LocalService) {
				ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: metadata, Annotations: metadata}
			})
			tmpl := newTemplate(ls, ForNode, nodeLabelKey)
			tmpl.labelVariables = labelVariables(ls)
			tmpl.nodeLabels = func(node, key string) (string, bool) {
				value, exists := map[string]string{"zone": "eu", "a.b/c": "1", "empty": ""}[key]
				return value, exists && node == "n"
			}
			service := tmpl.Service(c.node)
			if service.Labels["note"] != c.want || service.Annotations["note"] != c.want {
				t.Errorf("label %q, annotation %q, want %q", service.Labels["note"], service.Annotations["note"],
					c.want)
			}
			if action := actionOn(tmpl, stored(service), c.node); action != "" {
				t.Errorf("%s for a Service that is up to date", action)
			}
		})
	}
}

// TestVariablesOfOtherNode: a Service with the values of another node is updated, even if the Services of two nodes
// have the same Content.
func TestVariablesOfOtherNode(t *testing.T) {
	tmpl := template(t, localService(func(ls *v1alpha1.LocalService) {
		ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{Annotations: map[string]string{"note": "$(NODE_NAME)"}}
	}))
	first, second := stored(tmpl.Service("node1")), stored(tmpl.Service("node2"))
	second.Annotations["note"] = "node1"
	c := newCluster(first, second)
	plan := Compute(c.input(tmpl, "node1", "node2"))
	if diff := cmp.Diff([]string{"Update demo-node2"}, actions(plan)); diff != "" {
		t.Fatalf("wrong changes (-want +got):\n%s", diff)
	}
	patch, err := tmpl.Patch(kept(second), "node2")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(patch), `"note":"node2"`) {
		t.Errorf("patch %s, want the name of node2", patch)
	}
}

// TestMissingLabel: nothing is written for a node without a label for which a variable stands, whatever there is, and
// nothing is deleted.
func TestMissingLabel(t *testing.T) {
	ls := localService(func(ls *v1alpha1.LocalService) {
		ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: map[string]string{"zone": "$(NODE_LABEL['zone'])"},
			Annotations: map[string]string{"a": "$(NODE_LABEL['rack'])", "b": "$$(NODE_LABEL['other'])"}}
	})
	have := map[string]labels.Set{"all": {"zone": "a", "rack": "1"}, "empty": {"zone": "", "rack": "1"},
		"none": {}, "zone": {"zone": "a"}}
	ts, err := NewTemplates(ls, nodeLabelKey, func(node, key string) (string, bool) { return have[node].Lookup(key) })
	if err != nil {
		t.Fatal(err)
	}
	for node, set := range have {
		want := map[string]string{"none": "rack", "zone": "rack"}[node]
		if got := MissingLabel(ls, set); got != want || ts[0].withheld([]string{node})[node] != want {
			t.Errorf("%s lacks %q, want %q", node, got, want)
		}
	}
	all := []string{"all", "empty", "none", "zone"}
	if diff := cmp.Diff([]string{"Create demo-all", "Create demo-empty", "Withhold demo-none", "Withhold demo-zone"},
		actions(Compute(newCluster().input(ts[0], all...)))); diff != "" {
		t.Errorf("nothing exists (-want +got):\n%s", diff)
	}
	c := newCluster(foreign("demo-zone"), stored(ts[0].Service("none")))
	plan := Compute(c.input(ts[0], "none", "zone"))
	if diff := cmp.Diff([]string{"Withhold demo-none", "Withhold demo-zone"}, actions(plan)); diff != "" ||
		plan.InPlace > 0 || plan.Changes[Withhold][0].Label != "rack" {
		t.Errorf("%d in place, (-want +got):\n%s", plan.InPlace, diff)
	}
	for key, want := range map[string]bool{"zone": true, "rack": true, "other": false} {
		for _, after := range []labels.Set{{}, {key: ""}, {key: "b"}} {
			if got := DiffersFor(ls, labels.Set{key: "a"}, after); got != want {
				t.Errorf("%s becomes %v: %t, want %t", key, after, got, want)
			}
		}
	}
	if DiffersFor(ls, have["all"], have["all"]) || DiffersFor(localService(), have["all"], have["none"]) {
		t.Error("nothing has changed, or nothing depends on it")
	}
}

// TestMissingLabelAndRivals: a node without the label does not take a name from one that has it, and keeps no Service
// that is another node's.
func TestMissingLabelAndRivals(t *testing.T) {
	ls := localService(func(ls *v1alpha1.LocalService) {
		ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: map[string]string{"zone": "$(NODE_LABEL['zone'])"}}
	})
	zones := map[string]string{"x.y": "a"}
	ts, err := NewTemplates(ls, nodeLabelKey, func(node, _ string) (string, bool) {
		zone, exists := zones[node]
		return zone, exists
	})
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(stored(ts[0].Service("x.y")))
	expect := func(when string, nodes []string, inPlace int, want ...string) {
		t.Helper()
		plan := Compute(c.input(ts[0], nodes...))
		got := actions(plan)
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" || plan.InPlace != inPlace {
			t.Errorf("%s: %d in place, (-want +got):\n%s", when, plan.InPlace, diff)
		}
		c.run(t, ts[0], plan)
	}
	expect("x-y has no label", []string{"x-y", "x.y"}, 1, "Withhold demo-x-y")
	zones["x-y"] = "b"
	expect("it has one", []string{"x-y", "x.y"}, 0, "Update demo-x-y", "Conflict demo-x-y")
	delete(zones, "x.y")
	delete(zones, "x-y")
	expect("neither has one", []string{"x-y", "x.y"}, 0, "Withhold demo-x-y", "Withhold demo-x-y")
	expect("the node of the Service is gone", []string{"x.y"}, 0, "Delete demo-x-y", "Withhold demo-x-y")
	if len(c) > 0 {
		t.Errorf("there is a Service of a node that is gone: %v", c)
	}
}
