package plan

import (
	"strings"
	"testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

func TestNewTemplateRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*v1alpha1.LocalService)
		says string
	}{
		"empty selector": {func(ls *v1alpha1.LocalService) { ls.Spec.Selector = nil }, "selector is empty"},
		"node label":     {func(ls *v1alpha1.LocalService) { ls.Spec.Selector["vm/rack"] = "x" }, "vm/rack"},
		"long name": {func(ls *v1alpha1.LocalService) { ls.Name = strings.Repeat("x", 53) },
			"53 characters, of which 52 fit"},
		"owner label": {func(ls *v1alpha1.LocalService) {
			ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: map[string]string{"owner": "x"}}
		}, "owner"},
		"label of hostnames": {func(ls *v1alpha1.LocalService) {
			ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{
				Labels: map[string]string{v1alpha1.HostnamesLabelKey: "x"}}
		}, v1alpha1.HostnamesLabelKey},
		"node label also": {func(ls *v1alpha1.LocalService) {
			ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: map[string]string{"vm/rack": "x"}}
		}, "vm/rack"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewTemplates(localService(c.edit), nodeLabelKey); err == nil ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error about %q", err, c.says)
			}
		})
	}
	longest := localService(func(ls *v1alpha1.LocalService) { ls.Name = strings.Repeat("x", 52) })
	if _, err := NewTemplates(longest, nodeLabelKey); err != nil {
		t.Errorf("52 characters: %v", err)
	}
}
