package integration

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestHostnamesDeletion tests that everything is deleted with the LocalService, or if that is deleted with
// --cascade=orphan, stays unchanged and is adopted.
func TestHostnamesDeletion(t *testing.T) {
	t.Parallel()
	s := newPublishingScene(t, "deletion")
	pass := s.newSliceFence()
	s.run("a", s.AddNodes("a")[0], "10.1.0.1")
	before := s.MustOwn(s.CreateReady("demo", framework.WithHostnames), 2)
	s.wantNames("a=10.1.0.1")
	slice := s.published()
	s.MustKubectl("delete", "localservice", "demo", "--cascade=orphan")
	s.ResetCount()
	pass()
	s.WantNoWrites("of an orphan")
	ls := s.CreateReady("demo", framework.WithHostnames)
	for name, now := range s.MustOwn(ls, 2) {
		if now.UID != before[name].UID {
			t.Errorf("Service %s is not the one that was there", name)
		}
	}
	pass()
	s.WantWrites("services", "2 patch services 200")
	s.WantWrites("endpointslices", "none")
	if now := s.published(); now.ResourceVersion != slice.ResourceVersion {
		t.Errorf("the EndpointSlice was changed: from %+v to %+v", slice, now)
	}

	s.Must(s.LocalServiceClient().Delete(t.Context(), "demo", metav1.DeleteOptions{}))
	s.WaitServiceGone("demo")
	s.WaitServiceGone(sourceName)
	s.Eventually("the EndpointSlices are gone", func(ctx context.Context) error {
		list, err := s.Kube.DiscoveryV1().EndpointSlices(s.Namespace).List(ctx, metav1.ListOptions{})
		return errors.Join(err, framework.Equal("EndpointSlices", len(list.Items), 0))
	})
}
