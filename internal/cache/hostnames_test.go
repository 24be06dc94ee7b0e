package cache

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestHostnameSlice: the cache keeps everything that a source publishes, a checksum of a copy, and the owner of both.
func TestHostnameSlice(t *testing.T) {
	full := objects.SourceSlice("published", "s", "x", "a")
	full.AddressType, full.Endpoints[0].Zone = discoveryv1.AddressTypeIPv6, new("z")
	full.Labels[v1alpha1.OwnerLabelKey] = "demo"
	trim := func(full *discoveryv1.EndpointSlice) *plan.EndpointSlice {
		t.Helper()
		s, err := trimHostnameSlice(full)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	source := trim(full)
	want := &discoveryv1.EndpointSlice{AddressType: full.AddressType, Endpoints: full.Endpoints, Ports: full.Ports}
	for range 2 { // Reading it must not use it up.
		if diff := cmp.Diff(want, source.Get()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	if source.LocalService().Name != "demo" || source.UID != full.UID {
		t.Errorf("%+v", source)
	}
	copied := full.DeepCopy()
	copied.Labels[discoveryv1.LabelManagedBy] = v1alpha1.EndpointSliceManager
	copied.Labels[v1alpha1.OwnerLabelKey] = "other"
	if c := trim(copied); c.LocalService().Name != "published" || c.Get != nil {
		t.Errorf("a copy: %+v", c)
	}
	type slice = discoveryv1.EndpointSlice
	for name, c := range map[string]struct {
		edit func(*slice)
		same bool
	}{
		"resource version": {func(s *slice) { s.ResourceVersion = "2" }, true},
		"UID":              {func(s *slice) { s.UID = "2" }, false},
		"readiness":        {func(s *slice) { s.Endpoints[0].Conditions.Ready = new(false) }, false},
		"hostname":         {func(s *slice) { s.Endpoints[0].Hostname = new("h") }, false},
		"port":             {func(s *slice) { s.Ports[0].Port = new(int32(2)) }, false},
		"controller":       {func(s *slice) { s.OwnerReferences = nil }, false},
		"manager":          {func(s *slice) { delete(s.Labels, discoveryv1.LabelManagedBy) }, false},
		"LocalService":     {func(s *slice) { s.Labels[v1alpha1.OwnerLabelKey] = "x" }, false},
	} {
		edited := full.DeepCopy()
		c.edit(edited)
		if got := trim(edited).Same(source); got != c.same {
			t.Errorf("another %s: same %v, want %v", name, got, c.same)
		}
	}
}
