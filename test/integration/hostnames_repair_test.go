package integration

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestHostnamesAreRepaired tests that external changes of published objects are repaired.
func TestHostnamesAreRepaired(t *testing.T) {
	t.Parallel()
	s := newPublishingScene(t, "repair")
	s.run("a", s.AddNodes("a")[0], "10.1.0.1")
	ls := s.CreateReady("demo", framework.WithHostnames)
	s.wantNames("a=10.1.0.1")
	was := s.published()
	for _, test := range []struct {
		name string
		edit func(slice *discoveryv1.EndpointSlice)
	}{
		{"another address", func(slice *discoveryv1.EndpointSlice) { slice.Endpoints[0].Addresses[0] = "10.6.6.6" }},
		{"another name", func(slice *discoveryv1.EndpointSlice) { slice.Endpoints[0].Hostname = new("b") }},
		{"no address", func(slice *discoveryv1.EndpointSlice) { slice.Endpoints = nil }},
		{"another port", func(slice *discoveryv1.EndpointSlice) { slice.Ports[0].Port = new(int32(1)) }},
		{"disowned", func(slice *discoveryv1.EndpointSlice) { slice.OwnerReferences = nil }},
		{"no label owner", func(slice *discoveryv1.EndpointSlice) { delete(slice.Labels, "owner") }},
		{"no Service", func(slice *discoveryv1.EndpointSlice) { delete(slice.Labels, "kubernetes.io/service-name") }},
		{"for kube-proxy", func(slice *discoveryv1.EndpointSlice) { delete(slice.Labels, corev1.IsHeadlessService) }},
		{"out of sight", func(slice *discoveryv1.EndpointSlice) { delete(slice.Labels, v1alpha1.HostnamesLabelKey) }},
		{"another manager", func(slice *discoveryv1.EndpointSlice) {
			slice.Labels[discoveryv1.LabelManagedBy] = plan.KubernetesSliceManager
		}},
		{"no labels", func(slice *discoveryv1.EndpointSlice) { slice.Labels = nil }},
	} {
		s.editSlice(was.Name, test.edit)
		s.Eventually("it is repaired: "+test.name, func(ctx context.Context) error {
			slice, err := s.Kube.DiscoveryV1().EndpointSlices(s.Namespace).Get(ctx, was.Name, metav1.GetOptions{})
			return errors.Join(err, sameSlice(slice, was))
		})
	}
	s.deleteSlice(was.Name)
	s.wantNames("a=10.1.0.1")
	for name, service := range s.MustOwn(ls, 2) {
		s.EditService(name, func(service *corev1.Service) {
			service.Spec.Selector, service.Labels = map[string]string{"app": "other"}, nil
		})
		s.waitRepaired(service)
		s.DeleteService(name)
		s.WaitServiceReplaced(service)
		s.wantNames("a=10.1.0.1")
		s.WaitReady("demo")
	}
}

func sameSlice(a, b *discoveryv1.EndpointSlice) error {
	return errors.Join(
		framework.Equal("labels", a.Labels, b.Labels), framework.Equal("endpoints", a.Endpoints, b.Endpoints),
		framework.Equal("ports", a.Ports, b.Ports), framework.Equal("owners", a.OwnerReferences, b.OwnerReferences))
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
	s.Must(s.LocalServiceClient().Delete(t.Context(), "demo", orphan))
	s.WaitLocalServiceGone("demo")
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
	s.wantSliceWrites("none")
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
