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

// TestArePublished: the names lead to everything that Kubernetes has published once no copy is to be changed.
func TestArePublished(t *testing.T) {
	base := newNames(t)
	one, two, gone := sourceSlice(base.Source, "s1", "1"), sourceSlice(base.Source, "s2", "2"),
		sourceSlice(base.Source, "s3", "3")
	copyOf := copies(base)
	renamed := copyOf(one, renamedTo("x"))
	for name, c := range map[string]struct {
		slices []*apiSlice
		want   bool
	}{
		"all":                   {[]*apiSlice{one, copyOf(one)}, true},
		"and more":              {[]*apiSlice{one, copyOf(one), copyOf(gone)}, true},
		"nothing":               {[]*apiSlice{copyOf(gone)}, false},
		"a copy is missing":     {[]*apiSlice{one, copyOf(one), two, copyOf(gone)}, true},
		"a copy is out of date": {[]*apiSlice{one, renamed, copyOf(gone)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newNames(t, c.slices...).ArePublished(); got != c.want {
				t.Errorf("%t, want %t", got, c.want)
			}
		})
	}
}

func renamedTo(hostname string) func(*discoveryv1.EndpointSlice) {
	return func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Hostname = &hostname }
}
