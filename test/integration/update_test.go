package integration

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// wantReplaced fails unless the controller has deleted and created so many Services since the count was reset.
func (s *scene) wantReplaced(count int) {
	s.T.Helper()
	writes := s.Requests().Resource("services").Writes()
	if len(writes) != 2*count || len(writes.Verb("delete")) != count || len(writes.Verb("create")) != count {
		s.Fatalf("the controller's writes of services: %s; want %d deletes and as many creates", writes, count)
	}
}

// TestEveryFieldAllocated tests that what clients have been told stays true while other fields change.
func TestEveryFieldAllocated(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "nodeports")
	node := s.AddNodes("a")[0]
	s.CreateReady("demo", framework.OfType(corev1.ServiceTypeNodePort))
	before := s.GetService("demo-" + node)
	s.Update("demo", func(ls *v1alpha1.LocalService) {
		ls.Spec.Ports = append(ls.Spec.Ports, v1alpha1.ServicePort{Name: "metrics", Port: 9090})
		ls.Spec.Ports[0].Name = "web"
	})
	s.WaitReady("demo")
	after := s.GetService(before.Name)
	for _, err := range []error{
		framework.Equal("clusterIP", after.Spec.ClusterIP, before.Spec.ClusterIP),
		framework.Equal("nodePort", after.Spec.Ports[0].NodePort, before.Spec.Ports[0].NodePort),
	} {
		if err != nil {
			t.Error(err)
		}
	}
}

// TestEveryFieldHandEdits tests that edits of a Service that concern more than one field, or that the API server
// answers with changes of its own, are repaired by one write. Each field by itself is tested with the template.
func TestEveryFieldHandEdits(t *testing.T) {
	t.Parallel()
	withMetadata := func(ls *v1alpha1.LocalService) {
		ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{
			Labels: map[string]string{"team": "infra"}, Annotations: map[string]string{"example.com/note": "hello"},
		}
	}
	withAffinity := func(ls *v1alpha1.LocalService) { ls.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }
	asNodePort, asLoadBalancer := framework.OfType(corev1.ServiceTypeNodePort), framework.OfType(corev1.ServiceTypeLoadBalancer)
	tests := []struct {
		name   string
		before change
		edit   func(service *corev1.Service)
	}{
		{name: "type to LoadBalancer", before: framework.WithClusterIP, edit: func(service *corev1.Service) { service.Spec.Type = "LoadBalancer" }},
		{name: "type NodePort to ClusterIP", before: asNodePort, edit: func(service *corev1.Service) {
			service.Spec.Type, service.Spec.ExternalTrafficPolicy, service.Spec.Ports[0].NodePort = "ClusterIP", "", 0
		}},
		{name: "one more port", edit: func(service *corev1.Service) {
			service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: "b", Port: 9})
		}},
		{name: "no ports", edit: func(service *corev1.Service) { service.Spec.Ports = nil }},
		{name: "no selector", edit: func(service *corev1.Service) { service.Spec.Selector = nil }},
		{name: "sessionAffinity taken away", before: withAffinity, edit: func(service *corev1.Service) {
			service.Spec.SessionAffinity, service.Spec.SessionAffinityConfig = "None", nil
		}},
		{name: "timeoutSeconds", before: withAffinity, edit: func(service *corev1.Service) {
			service.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds = new(int32(5))
		}},
		{name: "externalTrafficPolicy", before: asLoadBalancer, edit: func(service *corev1.Service) { service.Spec.ExternalTrafficPolicy = "Local" }},
		{name: "ipFamilyPolicy", edit: func(service *corev1.Service) {
			policy := corev1.IPFamilyPolicyPreferDualStack
			service.Spec.IPFamilyPolicy = &policy
		}},
		{name: "all labels removed", edit: func(service *corev1.Service) { service.Labels = nil }},
		{name: "all annotations removed", before: withMetadata, edit: func(service *corev1.Service) { service.Annotations = nil }},
		{name: "record of metadata broken", before: withMetadata, edit: func(service *corev1.Service) {
			service.Annotations[v1alpha1.AppliedMetadataAnnotationKey] = "}{"
		}},
		{name: "controller reference removed", edit: func(service *corev1.Service) { service.OwnerReferences = nil }},
		{name: "controller reference made an ordinary one, and the node's annotation", edit: func(service *corev1.Service) {
			service.OwnerReferences[0].Controller = nil
			service.Annotations[v1alpha1.NodeAnnotationKey] = "elsewhere"
		}},
		{name: "what only load balancers have", before: asLoadBalancer, edit: func(service *corev1.Service) {
			service.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
			service.Spec.AllocateLoadBalancerNodePorts = new(false)
			service.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
			service.Spec.Ports[0].Protocol, service.Spec.Ports[0].AppProtocol = "UDP", new("http")
		}},
		{name: "to ExternalName", before: framework.WithClusterIP, edit: func(service *corev1.Service) {
			service.Spec = corev1.ServiceSpec{Type: "ExternalName", ExternalName: "example.com", Selector: service.Spec.Selector, SessionAffinity: "None"}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, shared, "edit")
			f := s.newFence()
			node := s.AddNodes("a", "b")[0]
			var before []change
			if test.before != nil {
				before = append(before, test.before)
			}
			s.CreateReady("demo", before...)
			old := s.GetService("demo-" + node)
			f.passServices()
			s.ResetCount()
			s.EditService(old.Name, test.edit)
			s.waitRepaired(old)
			f.passServices()
			f.passLocalServices()
			s.WantWrites("services", "1 patch services 200")
			s.WaitReady("demo")
		})
	}
}

// waitRepaired waits until a Service is as it was, but for what the API server allocates.
func (s *scene) waitRepaired(old *corev1.Service) {
	s.T.Helper()
	s.Eventually("Service "+old.Name+" is as it was", func(ctx context.Context) error {
		now, err := s.ServiceClient().Get(ctx, old.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now, want := withoutAllocated(now), withoutAllocated(old)
		return errors.Join(
			framework.Equal("UID", now.UID, want.UID),
			framework.Equal("labels", now.Labels, want.Labels),
			framework.Equal("annotations", now.Annotations, want.Annotations),
			framework.Equal("owners", now.OwnerReferences, want.OwnerReferences),
			framework.Equal("spec", now.Spec, want.Spec),
		)
	})
}

// withoutAllocated is a Service without what the API server has allocated for it.
func withoutAllocated(service *corev1.Service) *corev1.Service {
	out := service.DeepCopy()
	if out.Spec.ClusterIP != corev1.ClusterIPNone {
		out.Spec.ClusterIP, out.Spec.ClusterIPs = "", nil
	}
	for i := range out.Spec.Ports {
		out.Spec.Ports[i].NodePort = 0
	}
	return out
}

// TestEveryFieldOfOthers tests that the controller leaves alone what it does not manage, also when it writes.
func TestEveryFieldOfOthers(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "kept")
	f := s.newFence()
	node := s.AddNodes("a")[0]
	s.CreateReady("demo", framework.WithClusterIP)
	f.passServices()
	s.ResetCount()
	name := "demo-" + node
	s.EditService(name, func(service *corev1.Service) {
		service.Labels["example.com/theirs"] = "yes"
		service.Annotations["example.com/theirs"] = "yes"
		service.Finalizers = append(service.Finalizers, "example.com/theirs")
		service.Spec.ExternalIPs = []string{"192.0.2.1"}
		service.OwnerReferences = append(service.OwnerReferences, metav1.OwnerReference{
			APIVersion: "v1", Kind: "Node", Name: node, UID: s.NodeUID(node),
		})
	})
	f.passServices()
	s.WantWrites("services", "none")
	// The record of what came from serviceMetadata makes the difference between ours and theirs.
	s.Update("demo", func(ls *v1alpha1.LocalService) {
		ls.Spec.Ports[0].Port = 81
		ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: map[string]string{"ours": "yes"}, Annotations: map[string]string{"ours": "yes"}}
	})
	s.WaitReady("demo")
	s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.ServiceMetadata = nil })
	s.WaitReady("demo")
	service := s.GetService(name)
	for _, err := range []error{
		framework.Equal("port", service.Spec.Ports[0].Port, 81),
		framework.Equal("labels", service.Labels, map[string]string{"owner": "demo", nodeLabel: node, "example.com/theirs": "yes"}),
		framework.Equal("annotations", service.Annotations, map[string]string{v1alpha1.NodeAnnotationKey: node, "example.com/theirs": "yes"}),
		framework.Equal("finalizers", service.Finalizers, []string{"example.com/theirs"}),
		framework.Equal("externalIPs", service.Spec.ExternalIPs, []string{"192.0.2.1"}),
		framework.Equal("number of owners", len(service.OwnerReferences), 2),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	s.EditService(name, func(service *corev1.Service) { service.Finalizers = nil })
}

// TestHalfGoodSpecs tests specs that no Service can have. What the CustomResourceDefinition does not find, the API
// server does when it is asked for the Services; then the LocalService tells, and heals when its spec is corrected.
func TestHalfGoodSpecs(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, spec, says string }{
		{"selector key", `{clusterIP: None, selector: {"a b": x}}`, "selector"},
		{"selector key that is too long", `{clusterIP: None, selector: {` + strings.Repeat("k", 64) + `: x}}`, "selector"},
		{"selector value", `{clusterIP: None, selector: {app: "a b"}}`, "selector"},
		{"selector value that is too long", `{clusterIP: None, selector: {app: ` + strings.Repeat("v", 64) + `}}`, "selector"},
		{"label key", `{clusterIP: None, selector: {app: x}, serviceMetadata: {labels: {Example.com/a: x}}}`, "labels"},
		{"label value", `{clusterIP: None, selector: {app: x}, serviceMetadata: {labels: {app: "a/b"}}}`, "labels"},
		{"annotation key", `{clusterIP: None, selector: {app: x}, serviceMetadata: {annotations: {a/b/c: x}}}`, "annotations"},
		{"annotations of 300 KiB", `{clusterIP: None, selector: {app: x}, serviceMetadata: {annotations: {a: ` + strings.Repeat("a", 300<<10) + `}}}`, "annotations"},
		{"targetPort as a word with digits only", `{clusterIP: None, selector: {app: x}, ports: [{port: 80, targetPort: "8080"}]}`, "targetPort"},
		{"targetPort of 16 characters", `{clusterIP: None, selector: {app: x}, ports: [{port: 80, targetPort: ` + strings.Repeat("a", 16) + `}]}`, "targetPort"},
		{"targetPort 65536", `{clusterIP: None, selector: {app: x}, ports: [{port: 80, targetPort: 65536}]}`, "targetPort"},
		{"appProtocol", `{clusterIP: None, selector: {app: x}, ports: [{port: 80, appProtocol: a..b/c}]}`, "appProtocol"},
		{"loadBalancerClass", `{type: LoadBalancer, loadBalancerClass: a..b/c, selector: {app: x}, ports: [{port: 80}]}`, "oadBalancerClass"},
		{"network with host bits", `{type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.1/8], selector: {app: x}, ports: [{port: 80}]}`, "oadBalancerSourceRanges"},
		{"IPv6 in a cluster of IPv4", `{clusterIP: None, ipFamilies: [IPv6], selector: {app: x}}`, "not configured on this cluster"},
		{"two families in a cluster of one", `{clusterIP: None, ipFamilyPolicy: RequireDualStack, selector: {app: x}}`, "not configured for dual-stack"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, shared, "half")
			s.AddNodes("a", "b")
			err := s.createFromYAML("demo", test.spec)
			if apierrors.IsInvalid(err) {
				s.wantRefusal(err, test.says)
				return
			}
			s.Must(err)
			s.WaitLocalService("demo", "the LocalService tells why it is not ready", func(ls *v1alpha1.LocalService) error {
				return errors.Join(
					framework.CheckCondition(ls, v1alpha1.ConditionReady, metav1.ConditionFalse, ""),
					framework.CheckConditionSays(ls, v1alpha1.ConditionReady, test.says),
				)
			})
			s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec = s.NewLocalService("demo").Spec })
			s.MustOwn(s.WaitReady("demo"), 2)
		})
	}
}
