package plan

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

func withLabel(key, value string) func(*v1alpha1.LocalService) {
	return func(ls *v1alpha1.LocalService) {
		ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: map[string]string{key: value}}
	}
}

func withAnnotation(key, value string) func(*v1alpha1.LocalService) {
	return func(ls *v1alpha1.LocalService) {
		ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{Annotations: map[string]string{key: value}}
	}
}

func TestNewTemplateRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*v1alpha1.LocalService)
		says string
	}{
		"empty selector":     {func(ls *v1alpha1.LocalService) { ls.Spec.Selector = nil }, "selector is empty"},
		"node label":         {func(ls *v1alpha1.LocalService) { ls.Spec.Selector["vm/rack"] = "x" }, "vm/rack"},
		"owner label":        {withLabel("owner", "x"), "owner"},
		"node label also":    {withLabel("vm/rack", "x"), "vm/rack"},
		"label of hostnames": {withLabel(v1alpha1.HostnamesLabelKey, "x"), v1alpha1.HostnamesLabelKey},
		"variable for a label that no node can have": {withAnnotation("a", "$$( $(NODE_LABEL['a b'])"),
			`serviceMetadata.annotations has in a a variable for the label "a b", which no node can have: write $(NODE_LABEL['key'])`},
		"variable without quotes": {withAnnotation("a", "$(NODE_LABEL['a']) $(NODE_LABEL[b])"),
			`for the label ""`},
		"variable that does not end": {withLabel("a", "$(NODE_LABEL['b"),
			`serviceMetadata.labels has in a a variable for the label ""`},
		"no value of a label beside a variable": {withLabel("a", "in: $(NODE_LABEL['b'])"),
			`labels has in a the value "in: $(NODE_LABEL['b'])", which no label can have`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewTemplates(localService(c.edit), nodeLabelKey, nil); err == nil ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error about %q", err, c.says)
			}
		})
	}
	if _, err := NewTemplates(localService(withAnnotation("a", "$$(NODE_LABEL['b")), nodeLabelKey, nil); err != nil {
		t.Errorf("an escape: %v", err)
	}
}

// TestCheckMode: a LocalService that controls a Service of the other mode is invalid. What it does not control does not
// count.
func TestCheckMode(t *testing.T) {
	services, names := localService(), localService(hostnamesMode)
	forNodes, forNames := existing(t, services, []string{"a", "b"}), existing(t, names, nil)
	uncontrolled := existing(t, names, nil, func(s *corev1.Service) { s.OwnerReferences = nil })
	unmarked := existing(t, names, nil, func(s *corev1.Service) { delete(s.Labels, v1alpha1.HostnamesLabelKey) })
	nameless := existing(t, services, []string{"a"}, func(s *corev1.Service) { s.Annotations = nil })
	for name, c := range map[string]struct {
		ls        *v1alpha1.LocalService
		there     []*corev1.Service
		isRefused bool
	}{
		"nothing there":              {services, nil, false},
		"Services":                   {services, forNodes, false},
		"names":                      {names, forNames, false},
		"from Services to names":     {names, forNodes, true},
		"the Service with the names": {services, forNames[1:], true},
		"the Service that selects":   {services, forNames[:1], true},
		"both, and Services":         {services, slices.Concat(forNodes, forNames), true},
		"orphans of names":           {services, uncontrolled, false},
		"the name of the Service with the names, not marked": {services, unmarked[1:], false},
		"the name of the Service that selects, not marked":   {services, unmarked[:1], false},
		"the name of a node, not marked":                     {names, nameless, false},
		"names, and somebody's Services":                     {names, []*corev1.Service{foreign("demo-a")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckMode(c.ls, newCluster(c.there...).input(template(t, c.ls)).Owned)
			if (err != nil) != c.isRefused || err != nil && !strings.HasPrefix(err.Error(), "mode cannot be changed") {
				t.Errorf("got %v, want an error: %t", err, c.isRefused)
			}
		})
	}
}
