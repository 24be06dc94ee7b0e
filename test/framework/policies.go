package framework

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// denyingPolicy makes the API server refuse some requests in the scene's namespace.
const denyingPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAMESPACE}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
    resourceRules: [{operations: [OPERATION], apiGroups: [GROUP], apiVersions: ["*"], resources: [RESOURCE]}]
  validations: [{expression: ALLOWED, message: refused by a policy}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAMESPACE}
spec: {policyName: NAMESPACE, validationActions: [Deny]}
`

// Deny makes the API server soon refuse requests for a resource in this scene's namespace for which a CEL expression is
// false, until the function that it returns is called. The resource may have its group after a dot.
func (s *Scene) Deny(resource, operation, allowed string) (undo func()) {
	s.T.Helper()
	kind := schema.ParseGroupResource(resource)
	return s.Apply(strings.NewReplacer("OPERATION", operation, "GROUP", strconv.Quote(kind.Group), "RESOURCE",
		kind.Resource, "ALLOWED", strconv.Quote(allowed)).Replace(denyingPolicy))
}

// mutatingPolicy makes the API server change all objects of a resource in the scene's namespace.
const mutatingPolicy = `
apiVersion: admissionregistration.k8s.io/VERSION
kind: MutatingAdmissionPolicy
metadata: {name: NAMESPACE}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
    resourceRules: [{operations: [CREATE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: [RESOURCE]}]
  reinvocationPolicy: Never
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: EXPRESSION}}]
---
apiVersion: admissionregistration.k8s.io/VERSION
kind: MutatingAdmissionPolicyBinding
metadata: {name: NAMESPACE}
spec: {policyName: NAMESPACE}
`

// mutate makes the API server change all objects of a resource in the scene's namespace, until the function that it
// returns is called. Before Kubernetes 1.36, mutating policies are not in v1, but otherwise the same.
func (s *Scene) mutate(resource, expression string) (undo func()) {
	s.T.Helper()
	version := ""
	for _, version = range []string{"v1", "v1beta1", "v1alpha1"} {
		resources, err := s.Kube.Discovery().ServerResourcesForGroupVersion("admissionregistration.k8s.io/" + version)
		if err == nil && slices.ContainsFunc(resources.APIResources,
			func(r metav1.APIResource) bool { return r.Name == "mutatingadmissionpolicies" }) {
			break
		}
	}
	return s.Apply(strings.NewReplacer("VERSION", version, "EXPRESSION", strconv.Quote(expression), "RESOURCE",
		resource).Replace(mutatingPolicy))
}

// MutatePods makes the API server give all pods of the scene's namespace a label, and an annotation that differs at
// each write, until the function that it returns is called.
func (s *Scene) MutatePods(label, value string) (undo func()) {
	s.T.Helper()
	undo = s.mutate("pods", `[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("`+label+
		`"), value: "`+value+`"}, JSONPatch{op: "add", path: "/metadata/annotations", value: `+
		`{"seen": object.metadata.?resourceVersion.orValue("")}}]`)
	s.Eventually("the policy is in force", func(ctx context.Context) error {
		created, err := s.PodClient().Create(ctx, NewPod("any", "", map[string]string{"a": "b"}),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && created.Labels[label] != value {
			err = errors.New("it changes nothing")
		}
		return err
	})
	return undo
}

// Mutate makes the API server change all Services of the scene's namespace, and waits until isChanged reports it of
// one.
func (s *Scene) Mutate(expression string, isChanged func(*corev1.ServiceSpec) bool) {
	s.T.Helper()
	s.mutate("services", expression)
	s.Eventually("the policy is in force", func(ctx context.Context) error {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "any"},
			Spec: corev1.ServiceSpec{Type: "LoadBalancer",
				Ports: []corev1.ServicePort{{Port: 80}}, Selector: map[string]string{"app": "x"}}}
		dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		service, err := s.ServiceClient().Create(ctx, service, dryRun)
		if err == nil && !isChanged(&service.Spec) {
			err = errors.New("it changes nothing")
		}
		return err
	})
}
