package plan

import (
	"cmp"
	"fmt"
	"maps"
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

// NodeLabels returns the value of a node's label, and whether the node exists and has the label. The answer stays the
// same while a plan is made and carried out.
type NodeLabels func(node, key string) (value string, exists bool)

// wantFor returns the desired Content of a node's Service. It omits labels and annotations with a variable for a
// label that the node does not have.
func (t *Template) wantFor(node string) *Content {
	if !t.hasVariables {
		return &t.want
	}
	label := func(key string) (value string, exists bool) { return t.nodeLabels(node, key) }
	given, want := t.owner.Spec.ServiceMetadata, t.want
	expanded := v1alpha1.ServiceMetadata{Labels: expandAll(given.Labels, node, label),
		Annotations: expandAll(given.Annotations, node, label)}
	want.Labels, want.Annotations = maps.Clone(t.want.Labels), maps.Clone(t.want.Annotations)
	deleteAll(want.Labels, given.Labels)
	deleteAll(want.Annotations, given.Annotations)
	want.addMetadata(&expanded)
	return &want
}

func deleteAll(from, keys map[string]string) {
	for key := range keys {
		delete(from, key)
	}
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

// expand replaces the variables and escapes in a value, as in the args of a container. It leaves other text
// unchanged. It reports whether all labels that variables name exist.
func expand(value, node string, label func(key string) (value string, exists bool)) (_ string, isComplete bool) {
	var out strings.Builder
	isComplete = true
	for {
		start := strings.Index(value, "$(")
		if start < 0 {
			out.WriteString(value)
			return out.String(), isComplete
		}
		if start > 0 && value[start-1] == '$' {
			start-- // an escape
		}
		out.WriteString(value[:start])
		value = value[start:]
		key, length := labelVariable(value)
		switch {
		case strings.HasPrefix(value, "$$("):
			out.WriteString("$(")
			length = len("$$(")
		case strings.HasPrefix(value, v1alpha1.VariableNodeName):
			out.WriteString(node)
			length = len(v1alpha1.VariableNodeName)
		case strings.HasPrefix(value, v1alpha1.VariableNodeDNSLabel):
			out.WriteString(naming.Hostname(node))
			length = len(v1alpha1.VariableNodeDNSLabel)
		case length > 0:
			text, exists := label(key)
			out.WriteString(text)
			isComplete = isComplete && exists
		default:
			out.WriteByte('$')
			length = 1
		}
		value = value[length:]
	}
}

const labelVariableBegins = "$(NODE_LABEL["

// labelVariable returns the key and the length of the variable for a node label with which a value begins; the length
// is 0 if there is none. For an incomplete variable, it returns a key that no label can have.
func labelVariable(value string) (key string, length int) {
	rest, found := strings.CutPrefix(value, labelVariableBegins+"'")
	if !found && !strings.HasPrefix(value, labelVariableBegins) {
		return "", 0
	}
	key, _, ends := strings.Cut(rest, "'])")
	if !found || !ends {
		return value, len(value)
	}
	return key, len(v1alpha1.VariableNodeLabel) - len("key") + len(key)
}

// validateVariables finds mistakes in variables that the API's own validation accepts.
func validateVariables(m *v1alpha1.ServiceMetadata) (err error) {
	find := func(field, name, value string, isLabel bool) {
		expanded, _ := expand(value, "n", func(key string) (string, bool) {
			if len(content.IsLabelKey(key)) > 0 {
				err = cmp.Or(err, fmt.Errorf("spec.serviceMetadata.%s has in %s a variable for the label %q, which no "+
					"node can have: write %s", field, name, key, v1alpha1.VariableNodeLabel))
			}
			return "v", true
		})
		if isLabel && strings.Contains(value, labelVariableBegins) && len(content.IsLabelValue(expanded)) > 0 {
			err = cmp.Or(err, fmt.Errorf("spec.serviceMetadata.%s has in %s the value %q, which no label can have: "+
				"beside variables, it may have letters, digits, '-', '_' and '.'", field, name, value))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Labels)) {
		find("labels", name, m.Labels[name], true)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Annotations)) {
		find("annotations", name, m.Annotations[name], false)
	}
	return err
}
