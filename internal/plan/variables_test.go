package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		"not again":      {"$$($(NODE_NAME)", "NODE_NAME)", "$(NODE_NAME)"},
	} {
		t.Run(name, func(t *testing.T) {
			metadata := map[string]string{"note": c.value}
			tmpl := template(t, localService(func(ls *v1alpha1.LocalService) {
				ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: metadata, Annotations: metadata}
			}))
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
