// Package v1alpha1 is version v1alpha1 of the localservice.dev API group: the
// LocalService, a Service template that is fanned out into one Service per node.
//
// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
// +groupName=localservice.dev
package v1alpha1
