package cache

import (
	"errors"
	"fmt"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// showSlice adds an EndpointSlice to the cache of its mode.
func showSlice(t *testing.T, c *Caches, full *discoveryv1.EndpointSlice) {
	t.Helper()
	named, nameErr := trimHostnameSlice(full.DeepCopy())
	slice, err := trimEndpointSlice(full.DeepCopy())
	if err := errors.Join(err, nameErr); err != nil {
		t.Fatal(err)
	}
	if full.Labels[v1alpha1.HostnamesLabelKey] == "" {
		show(t, c.EndpointSlices, slice)
	} else {
		show(t, c.HostnameSlices, named)
	}
}

// TestTrimEndpointSlice: an EndpointSlice is ready if one of its endpoints is. Endpoints that do not say are ready. With
// publishNotReadyAddresses all are, and only the other condition says whether the pod is.
func TestTrimEndpointSlice(t *testing.T) {
	type conditions = discoveryv1.EndpointConditions
	for name, c := range map[string]struct {
		endpoints []conditions
		want      bool
	}{
		"no endpoints":             {nil, false},
		"not ready":                {[]conditions{{Ready: new(false)}, {Ready: new(false)}}, false},
		"one is ready":             {[]conditions{{Ready: new(false)}, {Ready: new(true)}}, true},
		"does not say":             {[]conditions{{}}, true},
		"published, and not ready": {[]conditions{{Ready: new(true), Serving: new(false)}}, false},
		"published, and ready":     {[]conditions{{Ready: new(true), Serving: new(true)}}, true},
	} {
		slice := objects.EndpointSlice("demo-a")
		for _, e := range c.endpoints {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Conditions: e})
		}
		trimmed, err := trimEndpointSlice(slice)
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintf("%s of %s, ready: %t", trimmed.Labels[discoveryv1.LabelServiceName],
			plan.LocalServiceOf(trimmed).Name, IsReady(trimmed))
		if want := fmt.Sprintf("demo-a of demo, ready: %t", c.want); got != want {
			t.Errorf("%s: %s; want %s", name, got, want)
		}
	}
}

// TestSameEndpointSlice: only a change of what is read is reported. The addresses of a generated Service are not, and
// those of mode Hostnames are.
func TestSameEndpointSlice(t *testing.T) {
	type slice = discoveryv1.EndpointSlice
	before := objects.SourceSlice("demo", "u", "demo-x", "a")
	before.Annotations = map[string]string{v1alpha1.AppliedMetadataAnnotationKey: "{}"}
	for name, c := range map[string]struct {
		edit           func(*slice)
		same, sameName bool // of a generated Service, and of mode Hostnames
	}{
		"resource version": {func(s *slice) { s.ResourceVersion = "2" }, true, true},
		"manager of fields": {func(s *slice) { s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}} }, true,
			true},
		"annotation":   {func(s *slice) { s.Annotations["x"] = "y" }, true, true},
		"record":       {func(s *slice) { s.Annotations[v1alpha1.AppliedMetadataAnnotationKey] = "x" }, true, false},
		"UID":          {func(s *slice) { s.UID = "2" }, true, false},
		"address":      {func(s *slice) { s.Endpoints[0].Addresses = []string{"10.0.0.9"} }, true, false},
		"hostname":     {func(s *slice) { s.Endpoints[0].Hostname = new("h") }, true, false},
		"controller":   {func(s *slice) { s.OwnerReferences = nil }, true, false},
		"readiness":    {func(s *slice) { s.Endpoints[0].Conditions.Ready = new(false) }, false, false},
		"port":         {func(s *slice) { s.Ports[0].Port = new(int32(2)) }, false, false},
		"LocalService": {func(s *slice) { s.Labels[v1alpha1.OwnerLabelKey] = "x" }, false, false},
	} {
		edited := before.DeepCopy()
		c.edit(edited)
		for trim, want := range map[*func(*slice) (*slice, error)]bool{
			new(trimEndpointSlice): c.same, new(trimHostnameSlice): c.sameName} {
			was, wasErr := (*trim)(before.DeepCopy())
			is, isErr := (*trim)(edited.DeepCopy())
			if err := errors.Join(wasErr, isErr); err != nil || isSame(was, is) != want {
				t.Errorf("another %s: the same: %t, %v; want %t", name, !want, err, want)
			}
		}
	}
}

// TestEndpointSlicesOf: a LocalService has the EndpointSlices of its namespace that name it. Those of generated Services
// count while an endpoint is ready.
func TestEndpointSlicesOf(t *testing.T) {
	c := newCaches(t)
	for _, namespace := range []string{"default", "other"} {
		for name, endpoint := range map[string]string{"ready": "a", "unready": "a!"} {
			slice := objects.EndpointSlice("demo-a", endpoint)
			slice.Namespace, slice.Name = namespace, name
			showSlice(t, c, slice)
			slice.Labels[v1alpha1.HostnamesLabelKey] = v1alpha1.HostnamesSource
			showSlice(t, c, slice)
		}
	}
	ls := KeyOf(objects.LocalService())
	if of := c.EndpointSlicesOf(ls); len(of) != 1 || of[0].Name != "ready" || of[0].Namespace != "default" {
		t.Errorf("of generated Services: %v", of)
	}
	if named := c.HostnameSlicesOf(ls); len(named) != 2 || named["unready"].Namespace != "default" {
		t.Errorf("of mode Hostnames: %v", named)
	}
}
