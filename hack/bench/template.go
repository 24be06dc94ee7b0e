package main

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// createOptions holds those with which the controller creates Services.
var createOptions = metav1.CreateOptions{FieldManager: v1alpha1.FieldManager}

// serviceTemplate is the Service of some LocalService and node, to make those of others from.
type serviceTemplate struct {
	service     *corev1.Service
	owner, node string
}

// copyFor returns the Service of another LocalService and node.
func (t *serviceTemplate) copyFor(owner *v1alpha1.LocalService, node string) *corev1.Service {
	service := t.service.DeepCopy()
	rename := strings.NewReplacer(t.owner, owner.Name, t.node, node)
	service.Namespace, service.Name = owner.Namespace, rename.Replace(service.Name)
	for _, values := range []map[string]string{service.Labels, service.Annotations, service.Spec.Selector} {
		for key, value := range values {
			values[key] = rename.Replace(value)
		}
	}
	service.OwnerReferences[0].Name, service.OwnerReferences[0].UID = owner.Name, owner.UID
	return service
}

// templateService is a Service that the controller itself has made, as the template for what the bare clients send. One
// is enough for a run.
func (s *scene) templateService(ctx context.Context) *serviceTemplate {
	if s.serviceTemplate == nil {
		ctx, cancel := context.WithTimeout(ctx, framework.DefaultTimeout)
		defer cancel()
		own := s.newScene(ctx, s.cluster, 1)
		owner := own.createLocalServices(ctx, "template", 1)[0]
		mark := s.Audit.Mark()
		own.withController(ctx, func(ctx context.Context, _ *controller) {
			try(s.await(ctx, mark, 1, createdServices))
		})
		services := s.Kube.CoreV1().Services(own.name)
		made := &try(services.List(ctx, metav1.ListOptions{})).Items[0]
		s.serviceTemplate = &serviceTemplate{sent(made), owner.Name, own.nodes[0]}
		own.leave(ctx)
		must(services.Delete(ctx, made.Name, metav1.DeleteOptions{}))
	}
	return s.serviceTemplate
}

// sent is a headless Service as it was before the API server set its own fields. The controller fills in the API's
// defaults itself.
func sent(service *corev1.Service) *corev1.Service {
	s := &corev1.Service{Spec: service.Spec}
	s.Name, s.Labels, s.Annotations = service.Name, service.Labels, service.Annotations
	s.OwnerReferences = service.OwnerReferences
	s.Spec.ClusterIPs, s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = nil, nil, nil
	return s
}
