package plan

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sourceCreated is when the Source of newNames was created.
var sourceCreated = time.Unix(1e9, 0)

// newNames returns the Names of a LocalService whose Services are in place, with some EndpointSlices.
func newNames(t *testing.T, slices ...*apiSlice) *Names {
	t.Helper()
	ls := localService(hostnamesMode)
	all := map[string]*corev1.Service{}
	created := func(s *corev1.Service) { s.CreationTimestamp = metav1.NewTime(sourceCreated) }
	for _, s := range existing(t, ls, nil, created) {
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

// TestDeletesAfter: nothing is deleted until the Source has existed for a while, and everything that it publishes is in
// place, even if clocks are wrong.
func TestDeletesAfter(t *testing.T) {
	base := newNames(t)
	one, two, gone := sourceSlice(base.Source, "s1", "1"), sourceSlice(base.Source, "s2", "2"),
		sourceSlice(base.Source, "s3", "3")
	copyOf := copies(base)
	renamed := copyOf(one, renamedTo("x"))
	for name, c := range map[string]struct {
		age    time.Duration // of the Source
		slices []*apiSlice
		want   time.Duration
	}{
		"settled":               {sourceSettles, []*apiSlice{one, copyOf(one), copyOf(gone)}, 0},
		"nothing else":          {sourceSettles, []*apiSlice{one, copyOf(one)}, 0},
		"a new Source":          {time.Second, []*apiSlice{one, copyOf(one), copyOf(gone)}, sourceSettles - time.Second},
		"a clock that is slow":  {-time.Hour, []*apiSlice{one, copyOf(one), copyOf(gone)}, sourceSettles},
		"not published":         {time.Hour, []*apiSlice{copyOf(gone)}, CopyStays},
		"a copy is missing":     {time.Hour, []*apiSlice{one, copyOf(one), two, copyOf(gone)}, 0},
		"a copy is out of date": {time.Hour, []*apiSlice{one, renamed, copyOf(gone)}, CopyStays},
	} {
		t.Run(name, func(t *testing.T) {
			names := newNames(t, c.slices...)
			if got := names.DeletesAfter(sourceCreated.Add(c.age)); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func renamedTo(hostname string) func(*discoveryv1.EndpointSlice) {
	return func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Hostname = &hostname }
}
