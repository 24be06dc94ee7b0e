package integration

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// teams is a policy that refuses Services without a label.
const teams = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: teams-NAMESPACE}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [services]}
  validations:
  - {expression: "has(object.metadata.labels) && 'team' in object.metadata.labels", message: name your team}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: teams-NAMESPACE}
spec:
  policyName: teams-NAMESPACE
  validationActions: [Deny]
  matchResources:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
`

// TestForeignSlices tests mode Hostnames where another manager, as Cilium ClusterMesh, publishes endpoints for the
// Service with the names, and where a policy asks for a label on every Service: the controller leaves the EndpointSlice
// of the other manager alone, and everything that it creates has the labels of serviceMetadata.
func TestForeignSlices(t *testing.T) {
	t.Parallel()
	s := newPublishingScene(t, "foreign")
	pass := s.newSliceFence()
	defer s.Apply(teams)()
	s.run("a", s.AddNodes("a")[0], "10.1.0.1")
	ls := s.CreateReady("demo", framework.WithHostnames, func(ls *v1alpha1.LocalService) {
		ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: map[string]string{"team": "x"},
			Annotations: map[string]string{"service.cilium.io/global": "true",
				"external-dns.example.com/hostname": "a"}}
	})
	s.wantNames("a=10.1.0.1")
	own := s.MustOwn(ls, 2)
	published, copied := own["demo"], s.published()
	for name, service := range own {
		if service.Labels["team"] != "x" || service.Annotations["service.cilium.io/global"] != "true" ||
			(service.Annotations["external-dns.example.com/hostname"] != "") != (name == "demo") {
			t.Errorf("the metadata of %s: %v %v", name, service.Labels, service.Annotations)
		}
	}
	if copied.Labels["team"] != "x" {
		t.Errorf("the labels of the copy: %v", copied.Labels)
	}

	foreign := copied.DeepCopy()
	foreign.ObjectMeta = metav1.ObjectMeta{Name: "demo-mesh", Labels: copied.Labels,
		OwnerReferences: copied.OwnerReferences}
	foreign.Labels[discoveryv1.LabelManagedBy] = "endpointslice-mesh-controller.cilium.io"
	foreign.Endpoints[0].Addresses = []string{"10.9.9.9"}
	client := s.Kube.DiscoveryV1().EndpointSlices(s.Namespace)
	foreign, err := client.Create(t.Context(), foreign, metav1.CreateOptions{})
	s.Must(err)
	s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.ServiceMetadata.Labels["team"] = "y" })
	s.setPodStatus("a", "10.1.0.1", "NotReady")
	s.wantNames("a=10.1.0.1!", "a=10.9.9.9")
	pass()
	now, err := client.Get(t.Context(), foreign.Name, metav1.GetOptions{})
	s.Must(err)
	if now.UID != foreign.UID || now.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the EndpointSlice of the other manager was changed: from %+v to %+v", foreign, now)
	}
	if relabelled, err := client.Get(t.Context(), copied.Name, metav1.GetOptions{}); err != nil ||
		relabelled.Labels["team"] != "y" || published.UID != s.GetService("demo").UID {
		t.Errorf("the copy has no new label: %v, %v", relabelled.Labels, err)
	}
}
