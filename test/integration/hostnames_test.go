package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
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

// TestHostnamesOfManyPods tests more pods than one EndpointSlice has room for.
func TestHostnamesOfManyPods(t *testing.T) {
	t.Parallel()
	s := newPublishingScene(t, "many")
	pass := s.newSliceFence()
	nodes := s.AddNodes("a", "b")
	s.WaitServiceAccount()
	const pods = 120
	s.InParallel(pods, func(i int) error {
		s.run(fmt.Sprintf("pod-%d", i), nodes[i%2], fmt.Sprintf("10.1.0.%d", i+1))
		return nil
	})
	s.CreateReady("demo", framework.WithHostnames)
	wantPods := func(want int) {
		t.Helper()
		s.Eventually("all names are published", func(ctx context.Context) error {
			names, err := s.names(ctx)
			all, err2 := s.slicesOf(ctx, "demo")
			return errors.Join(err, err2, framework.Equal("addresses", len(names), want),
				framework.Equal("EndpointSlices", len(all), 2))
		})
	}
	wantPods(pods)
	pass()
	s.ResetCount()
	s.Must(s.PodClient().Delete(t.Context(), "pod-7", metav1.DeleteOptions{}))
	wantPods(pods - 1)
	pass()
	// Kubernetes, too, may fill the gap that a pod leaves.
	theirs := s.AllRequests().By("kube-controller-manager/").Namespace(s.Namespace).Resource("endpointslices").Writes()
	if ours := s.Requests().Resource("endpointslices").Writes(); len(ours) > len(theirs) {
		t.Errorf("the controller's writes of EndpointSlices: %s; those of Kubernetes: %s", ours, theirs)
	}
}

// TestHostnamesFollowPods tests how a name changes when its pods become ready or end, or are on nodes that are not
// selected.
func TestHostnamesFollowPods(t *testing.T) {
	t.Parallel()
	s := newPublishingScene(t, "follow")
	nodes := s.AddNodes("a", "b")
	other := s.NodeName("other")
	s.CreateNode(other, map[string]string{framework.SceneLabel: "none"})
	t.Cleanup(func() {
		if err := s.Kube.CoreV1().Nodes().Delete(context.Background(), other, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	s.CreateReady("demo", framework.WithHostnames)
	s.wantNames()
	s.waitReadyNodes("0/2")
	s.run("a", nodes[0], "10.1.0.1")
	s.CreatePod("b", nodes[1], app, withFinalizer)
	s.setPodStatus("b", "10.1.0.2", "NotReady")
	s.run("other", other, "10.1.0.3")
	s.wantNames("a=10.1.0.1", "b=10.1.0.2!")
	s.waitReadyNodes("1/2")
	s.setPodStatus("b", "10.1.0.2", "")
	s.waitReadyNodes("2/2")
	s.Must(s.PodClient().Delete(t.Context(), "b", metav1.DeleteOptions{}))
	s.wantNames("a=10.1.0.1", "b=10.1.0.2!") // It is ending, and so not ready.
	s.waitReadyNodes("1/2")
	s.PatchNode(other, fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, framework.SceneLabel, s.Namespace))
	s.wantNames("a=10.1.0.1", "b=10.1.0.2!", "other=10.1.0.3")
	s.WaitStatusNodes("demo", 3)
	s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.PublishNotReadyAddresses = true })
	s.wantNames("a=10.1.0.1", "b=10.1.0.2", "other=10.1.0.3")
	s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector["no"] = "node" })
	s.WaitStatusNodes("demo", 0)
	s.wantNames("a=10.1.0.1", "b=10.1.0.2", "other=10.1.0.3") // A selector that matches nothing takes no name away.
	s.PatchPod("b", `{"metadata": {"finalizers": null}}`)
}

// TestHostnamesOfBothFamilies tests the addresses of both families, each in EndpointSlices of its own.
func TestHostnamesOfBothFamilies(t *testing.T) {
	t.Parallel()
	s := newPublishingScene(t, "dual")
	node := s.AddNodes("a")[0]
	s.run("a", node, "10.1.0.1,fd00::1")
	s.CreateReady("demo", framework.WithHostnames)
	s.wantNames("a=10.1.0.1")
	policy := func(p corev1.IPFamilyPolicy, families ...corev1.IPFamily) change {
		return func(ls *v1alpha1.LocalService) { ls.Spec.IPFamilyPolicy, ls.Spec.IPFamilies = &p, families }
	}
	s.Update("demo", policy(corev1.IPFamilyPolicyRequireDualStack))
	s.wantNames("a=10.1.0.1", "a=fd00::1")
	s.WaitReady("demo")
	s.Update("demo", policy(corev1.IPFamilyPolicySingleStack))
	s.wantNames("a=10.1.0.1")
	s.Update("demo", policy(corev1.IPFamilyPolicySingleStack, corev1.IPv6Protocol)) // Both Services are replaced.
	s.wantNames("a=fd00::1")
	s.WaitReady("demo")
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

// TestForeignEndpoints tests that the plugin names what else publishes under a name, and the command that ends it.
func TestForeignEndpoints(t *testing.T) {
	t.Parallel()
	s := newPublishingScene(t, "foreign")
	node := s.AddNodes("a")[0]
	s.CreateReady("demo", framework.WithHostnames)
	s.run("own", node, "10.9.9.1")
	foreign := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "demo-left", Labels: map[string]string{
		discoveryv1.LabelServiceName: "demo", discoveryv1.LabelManagedBy: "example.com"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.9"}}}}
	_, err := s.Kube.DiscoveryV1().EndpointSlices(s.Namespace).Create(s.Ctx(), foreign, metav1.CreateOptions{})
	s.Must(err)
	end := "delete endpointslice demo-left -n " + s.Namespace
	says := func(want bool) {
		s.Eventually(fmt.Sprintf("the plugin says how to end it: %t", want), func(ctx context.Context) error {
			stdout, stderr, err := framework.PluginProgram.Run(ctx, nil, []string{"KUBECONFIG=" + s.Kubeconfig}, "nodes", "demo",
				"--namespace", s.Namespace)
			if err != nil {
				return err
			}
			is := strings.Contains(stdout+stderr, "Something else publishes 192.0.2.9 under this name, too. If nothing needs "+
				"it, delete it: kubectl "+end)
			return framework.Equal("it says so in "+stdout+stderr, is, want)
		})
	}
	says(true)
	s.MustKubectl(strings.Fields(end)...)
	says(false)
}
