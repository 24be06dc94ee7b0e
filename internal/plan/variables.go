package plan

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// hasVariables reports whether a value of spec.serviceMetadata contains variables or escapes to expand. It looks only
// for $(, because the CustomResourceDefinition accepts no other text that begins with it.
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

// DiffersFor reports whether variables in a LocalService have other values after the labels of a node have changed.
func DiffersFor(ls *v1alpha1.LocalService, before, after Labels) bool {
	m := ls.Spec.ServiceMetadata
	if m == nil || !hasVariables(m) {
		return false
	}
	differ := func(values map[string]string) bool {
		return !maps.Equal(expandAll(values, "", before.Lookup), expandAll(values, "", after.Lookup))
	}
	return differ(m.Labels) || differ(m.Annotations)
}

// expandAll expands the variables in values. It omits values with a variable that has no value on the node.
func expandAll(given map[string]string, node string, label func(key string) (string, bool)) map[string]string {
	expanded := make(map[string]string, len(given))
	for key, value := range given {
		if value, isComplete := expand(value, node, label); isComplete {
			expanded[key] = value
		}
	}
	return expanded
}

// variables matches the variables in a value; of an incomplete one for a label, the beginning. It begins with two
// characters that are searched for fast, because anybody may write thousands of dollars.
var variables = regexp.MustCompile(`\$\((NODE_NAME\)|NODE_DNS_LABEL\)|NODE_LABEL\[('[^']*'\]\))?)`)

// escape stands for the two characters with which variables begin.
const escape = "$$("

// expand replaces the variables and escapes in a value, as in the args of a container. It leaves other text
// unchanged. It reports whether all labels that variables name exist. An incomplete variable has the key "", which no
// label can have.
func expand(value, node string, label func(key string) (value string, exists bool)) (_ string, isComplete bool) {
	isComplete = true
	parts := strings.Split(value, escape)
	for i, part := range parts {
		parts[i] = variables.ReplaceAllStringFunc(part, func(variable string) string {
			switch variable {
			case v1alpha1.VariableNodeName:
				return node
			case v1alpha1.VariableNodeDNSLabel:
				return naming.Hostname(node)
			}
			_, key, _ := strings.Cut(variable, "'")
			text, exists := label(strings.TrimSuffix(key, "'])"))
			isComplete = isComplete && exists
			return text
		})
	}
	return strings.Join(parts, escape[1:]), isComplete
}

// validateVariables finds mistakes in variables that the API's own validation accepts.
func validateVariables(m *v1alpha1.ServiceMetadata) (err error) {
	check := func(field, name, value string) (expanded string) {
		expanded, _ = expand(value, "n", func(key string) (string, bool) {
			if len(content.IsLabelKey(key)) > 0 {
				err = cmp.Or(err, fmt.Errorf("spec.serviceMetadata.%s has in %s a variable for the label %q, which no "+
					"node can have: write %s", field, name, key, v1alpha1.VariableNodeLabel))
			}
			return "v", true
		})
		return expanded
	}
	for _, name := range slices.Sorted(maps.Keys(m.Labels)) {
		if len(content.IsLabelValue(check("labels", name, m.Labels[name]))) > 0 {
			err = cmp.Or(err, fmt.Errorf("spec.serviceMetadata.labels has in %s the value %q, which no label can have: "+
				"beside variables, it may have letters, digits, '-', '_' and '.'", name, m.Labels[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Annotations)) {
		check("annotations", name, m.Annotations[name])
	}
	return err
}
