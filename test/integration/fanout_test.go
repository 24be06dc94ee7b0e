package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestFanOut tests the main feature: one Service for each node, with exactly the right content and no extra request.
func TestFanOut(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "fanout")
	f := s.newFence()
	nodes := s.AddNodes("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")
	f.passNodes()
	s.ResetCount()
	ls := s.CreateReady("demo", func(ls *v1alpha1.LocalService) {
		ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{
			Labels:      map[string]string{"team": "infra"},
			Annotations: map[string]string{"example.com/note": "hello"},
		}
	})
	for name, service := range s.MustOwn(ls, len(nodes)) {
		node := strings.TrimPrefix(name, "demo-")
		if !slices.Contains(nodes, node) {
			t.Errorf("Service %s is for no node", name)
		}
		s.Must(followsError(ls, service, node))
		for _, entry := range service.ManagedFields {
			if entry.Manager != "local-service-controller" {
				t.Errorf("Service %s was also written by %s", name, entry.Manager)
			}
		}
	}
	f.passAll()
	s.WantWrites("services", fmt.Sprintf("%d create services 201", len(nodes)))
	isOther := func(r *framework.Request) bool {
		return !slices.Contains([]string{"services", "localservices", "events"}, r.ObjectRef.Resource)
	}
	if other := s.Requests().Writes().Where(isOther); len(other) > 0 {
		t.Errorf("the controller also wrote: %s", other)
	}
	s.wantReads(len(nodes) / 2) // It is slow if that many syncs of half a second are needed.
}

// wantReads fails if the controllers, which have caches, have read more than necessary: a LocalService before each sync
// that writes, with a maximum of such syncs, and the Service of each EndpointSlice that they created.
func (s *scene) wantReads(syncs int) {
	s.T.Helper()
	requests := s.Requests()
	reads := requests.Verb("get", "list", "watch")
	live := reads.Resource("localservices").Verb("get")
	owners := reads.Resource("services").Verb("list")
	slices := requests.Resource("endpointslices").Verb("create")
	if len(live) > syncs || len(owners) > len(slices) || len(live)+len(owners) < len(reads) {
		s.T.Errorf("the controller, which has its caches, also read: %s", reads)
	}
}
