package integration

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestHostnames tests the main feature of mode Hostnames: two Services, a copy of each EndpointSlice in which
// Kubernetes publishes the pods, and one write for each change of one.
func TestHostnames(t *testing.T) {
	t.Parallel()
	s := newPublishingScene(t, "hostnames")
	pass := s.newSliceFence()
	nodes := s.AddNodes("a", "b")
	s.run("a1", nodes[0], "10.1.0.1")
	s.run("a2", nodes[0], "10.1.0.2")
	s.run("b1", nodes[1], "10.1.0.3")
	s.setPodStatus("a2", "10.1.0.2", "NotReady")
	s.CreatePod("none", "", app)
	s.ResetCount()
	ls := s.CreateReady("demo", framework.WithHostnames)
	s.wantNames("a=10.1.0.1", "a=10.1.0.2!", "b=10.1.0.3")
	pass()
	s.WantWrites("services", "2 create services 201")
	s.WantWrites("endpointslices", "1 create endpointslices 201")
	s.wantReads(3) // one for each write

	own := s.MustOwn(ls, 2)
	published, source := own["demo"], own[sourceName]
	if published == nil || source == nil || len(published.Spec.Selector) > 0 ||
		published.Spec.ClusterIP != corev1.ClusterIPNone || source.Spec.ClusterIP != corev1.ClusterIPNone {
		t.Fatalf("the Services: %+v", own)
	}
	theirs, err := s.slicesOf(t.Context(), sourceName)
	s.Must(err)
	checkCopy(s, &theirs[0], published)

	s.ResetCount()
	s.setPodStatus("a2", "10.1.0.2", "")
	s.wantNames("a=10.1.0.1", "a=10.1.0.2", "b=10.1.0.3")
	pass()
	s.WantWrites("endpointslices", "1 update endpointslices 200")
	s.WantWrites("services", "none")
}

// checkCopy compares the EndpointSlice of Service demo with its source.
func checkCopy(s *scene, source *discoveryv1.EndpointSlice, of *corev1.Service) {
	s.T.Helper()
	got := s.published()
	for i := range got.Endpoints {
		got.Endpoints[i].Hostname = nil
	}
	owner := *metav1.NewControllerRef(of, corev1.SchemeGroupVersion.WithKind("Service"))
	s.Must(errors.Join(
		framework.Equal("endpoints", got.Endpoints, source.Endpoints),
		framework.Equal("ports", got.Ports, source.Ports),
		framework.Equal("type", got.AddressType, source.AddressType),
		framework.Equal("owners", got.OwnerReferences, []metav1.OwnerReference{owner}),
		framework.Equal("labels", got.Labels, map[string]string{
			"kubernetes.io/service-name":             "demo",
			"endpointslice.kubernetes.io/managed-by": "local-service-controller.localservice.dev",
			"service.kubernetes.io/headless":         "",
			"owner":                                  "demo",
			"localservice.dev/hostnames":             "published",
		}),
	))
}

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
