package plan

import (
	"maps"
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

// TestSum: what a Service should have differs if its name becomes that of another node, or if a label of the node
// changes that a variable names.
func TestSum(t *testing.T) {
	zone := "eu"
	labels := func(string, string) (string, bool) { return zone, true }
	for _, value := range []string{"fixed", "$(NODE_LABEL['zone'])"} {
		templates, err := NewTemplates(localService(withAnnotation("note", value)), nodeLabelKey, labels)
		if err != nil {
			t.Fatal(err)
		}
		zone = "eu"
		sum := templates[0].sum("n0.n1")
		if sum != templates[0].sum("n0.n1") || sum == templates[0].sum("n0-n1") {
			t.Errorf("%s: the sum does not stand for the node", value)
		}
		zone = "us"
		if isOther := sum != templates[0].sum("n0.n1"); isOther != (value != "fixed") {
			t.Errorf("%s: another sum for another label: %t", value, isOther)
		}
	}
}

// TestVariablesOfOtherNode: a Service with the values of another node is updated, even if the Services of two nodes
// have the same Content.
func TestVariablesOfOtherNode(t *testing.T) {
	tmpl := template(t, localService(withAnnotation("note", "$(NODE_NAME)")))
	first, second := stored(tmpl.Service("node1")), stored(tmpl.Service("node2"))
	second.Annotations["note"] = "node1"
	in := newCluster(first, second).input(tmpl, "node1", "node2")
	plan := Compute(in)
	if diff := cmp.Diff([]string{"Update demo-node2"}, actions(plan)); diff != "" {
		t.Fatalf("wrong changes (-want +got):\n%s", diff)
	}
	if patch, _ := patched(t, tmpl, second, "node2"); !strings.Contains(patch, `"note":"node2"`) {
		t.Errorf("patch %s, want the name of node2", patch)
	}
}

// TestNoValue: a label or annotation with a variable for a label that the node lacks is left out, until the node has
// it, and again when the node has lost it.
func TestNoValue(t *testing.T) {
	ls := localService(func(ls *v1alpha1.LocalService) {
		ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{
			Labels: map[string]string{"zone": "$(NODE_LABEL['zone'])", "team": "a"},
			Annotations: map[string]string{"rack": "$(NODE_NAME)-$(NODE_LABEL['rack'])",
				"b": "$$(NODE_LABEL['other'])"}}
	})
	node := labels.Set{}
	ts, err := NewTemplates(ls, nodeLabelKey, func(_, key string) (string, bool) { return node.Lookup(key) })
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster()
	for _, step := range []struct {
		node       labels.Set
		want       string
		zone, rack string
		record     string
	}{
		{labels.Set{}, "Create demo-n", "", "", `{"labels":["team"],"annotations":["b"]}`},
		{labels.Set{"zone": "x"}, "Update demo-n", "x", "", `{"labels":["team","zone"],"annotations":["b"]}`},
		{labels.Set{"zone": "x", "rack": ""}, "Update demo-n", "x", "n-",
			`{"labels":["team","zone"],"annotations":["b","rack"]}`},
		{labels.Set{"rack": "1"}, "Update demo-n", "", "n-1", `{"labels":["team"],"annotations":["b","rack"]}`},
	} {
		before := ls.DeepCopy()
		node = step.node
		plan := Compute(c.input(ts[0], "n"))
		if got := actions(plan); !slices.Equal(got, []string{step.want}) {
			t.Fatalf("%v: %v, want %s", step.node, got, step.want)
		}
		c.run(t, ts[0], plan)
		s := c["demo-n"]
		wantLabels := map[string]string{"owner": "demo", nodeLabelKey: "n", "team": "a", "zone": step.zone}
		wantAnnotations := map[string]string{v1alpha1.NodeAnnotationKey: "n", "b": "$(NODE_LABEL['other'])",
			"rack": step.rack, v1alpha1.AppliedMetadataAnnotationKey: step.record}
		for _, want := range []map[string]string{wantLabels, wantAnnotations} {
			maps.DeleteFunc(want, func(_, value string) bool { return value == "" })
		}
		if diff := cmp.Diff(wantLabels, s.Labels) + cmp.Diff(wantAnnotations, s.Annotations); diff != "" {
			t.Errorf("%v (-want +got):\n%s", step.node, diff)
		}
		if again := actions(Compute(c.input(ts[0], "n"))); len(again) > 0 {
			t.Errorf("%v: then %v", step.node, again)
		}
		if diff := cmp.Diff(before, ls); diff != "" {
			t.Errorf("the LocalService was changed: %s", diff)
		}
	}
	for key, want := range map[string]bool{"zone": true, "rack": true, "other": false} {
		for _, after := range []labels.Set{{}, {key: ""}, {key: "b"}} {
			if got := DiffersFor(ls, labels.Set{key: "a"}, after); got != want {
				t.Errorf("%s becomes %v: %t, want %t", key, after, got, want)
			}
		}
	}
	if all := (labels.Set{"zone": "a"}); DiffersFor(ls, all, all) || DiffersFor(localService(), all, labels.Set{}) {
		t.Error("nothing has changed, or nothing depends on it")
	}
}
