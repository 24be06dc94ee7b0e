package plan

import (
	"maps"
	"strings"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// hasVariables reports whether a value of spec.serviceMetadata has variables, or escapes, to expand. It looks only for
// $(, because the CustomResourceDefinition accepts no other text that begins so.
func hasVariables(m *v1alpha1.ServiceMetadata) bool {
	for _, values := range []map[string]string{m.Labels, m.Annotations} {
		for _, value := range values {
			if strings.Contains(value, "$(") {
				return true
			}
		}
	}
	return false
}

// wantFor returns what the Service of a node should be.
func (t *Template) wantFor(node string) *Content {
	if !t.hasVariables {
		return &t.want
	}
	variables := strings.NewReplacer(
		"$$(", "$(", // the escape, as in the args of a container
		v1alpha1.VariableNodeName, node,
		v1alpha1.VariableNodeDNSLabel, naming.Hostname(node),
	)
	want := t.want
	want.Labels = expand(t.want.Labels, t.owner.Spec.ServiceMetadata.Labels, variables)
	want.Annotations = expand(t.want.Annotations, t.owner.Spec.ServiceMetadata.Annotations, variables)
	return &want
}

// expand returns a copy of all, with the variables expanded in the values that the LocalService's author has given.
func expand(all, given map[string]string, variables *strings.Replacer) map[string]string {
	expanded := maps.Clone(all)
	for key, value := range given {
		expanded[key] = variables.Replace(value)
	}
	return expanded
}
