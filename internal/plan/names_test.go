package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// newNames returns the Names of a LocalService whose Services are in place, with some EndpointSlices.
func newNames(t *testing.T, slices ...*apiSlice) *Names {
	t.Helper()
	ls := localService(hostnamesMode)
	all := map[string]*corev1.Service{}
	for _, s := range existing(t, ls, nil) {
		all[s.Name] = s
	}
	names := NamesOf(ls, nodeLabelKey, someNodes, nil, func(name string) *corev1.Service { return all[name] })
	names.Slices = byName(slices...)
	return names
}

// TestNamesOf: the Services of the names are those that the LocalService controls.
func TestNamesOf(t *testing.T) {
	if names := newNames(t); names.Source == nil || names.Published == nil || names.Published.GetName() != "demo" {
		t.Errorf("%+v", names)
	}
	names := NamesOf(localService(hostnamesMode), nodeLabelKey, someNodes, nil,
		func(name string) *corev1.Service { return foreign(name) })
	if names.Source != nil || names.Published != nil {
		t.Errorf("of Services of others: %+v", names)
	}
}

// TestIsReplaced: an EndpointSlice may be deleted once the names lead to its endpoints elsewhere, or these are gone,
// whatever becomes of others.
func TestIsReplaced(t *testing.T) {
	base := newNames(t)
	one, two, gone := sourceSlice(base.Source, "s1", "1"), sourceSlice(base.Source, "s2", "2"),
		sourceSlice(base.Source, "s3", "3")
	copyOf := copies(base)
	renamed, moved := copyOf(one, renamedTo("x")), copyOf(sourceSlice(base.Source, "s3", "1"))
	for name, c := range map[string]struct {
		slices []*apiSlice // the last is to be deleted
		want   bool
	}{
		"the others are in place": {[]*apiSlice{one, copyOf(one), copyOf(gone)}, true},
		"no pod is published":     {[]*apiSlice{copyOf(gone)}, false},
		"a copy is missing":       {[]*apiSlice{one, copyOf(one), two, copyOf(gone)}, true},
		"another is outdated":     {[]*apiSlice{one, renamed, copyOf(gone)}, true},
		"its endpoint is moved":   {[]*apiSlice{one, renamed, moved}, false},
	} {
		t.Run(name, func(t *testing.T) {
			names := newNames(t, c.slices...)
			if got := names.IsReplaced(names.Slices[c.slices[len(c.slices)-1].Name]); got != c.want {
				t.Errorf("%t, want %t", got, c.want)
			}
		})
	}
}

func renamedTo(hostname string) func(*discoveryv1.EndpointSlice) {
	return func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Hostname = &hostname }
}
