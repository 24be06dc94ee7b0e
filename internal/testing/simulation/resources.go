package simulation

import (
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// definition describes what the API server knows about one resource, and does to its objects.
type definition struct {
	name      string
	kind      schema.GroupVersionKind
	newObject func() Object
	// prepareCreate and prepareUpdate fill in defaults, and say what is wrong with an object. afterCreate and
	// afterUpdate allocate what it needs, once nothing else can refuse it. Each may be nil.
	prepareCreate func(s *APIServer, object Object) error
	afterCreate   func(s *APIServer, object Object, dryRun bool) error
	prepareUpdate func(s *APIServer, subresource string, old, object Object) error
	afterUpdate   func(s *APIServer, old, object Object) error
	// needsVersion is set if an update must name the resource version that it changes.
	needsVersion bool
}

var resources = []definition{
	{name: "localservices", kind: v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.Kind), needsVersion: true,
		newObject:     func() Object { return &v1alpha1.LocalService{} },
		prepareCreate: createLocalService, prepareUpdate: updateLocalService},
	{name: "services", kind: corev1.SchemeGroupVersion.WithKind("Service"),
		newObject:     func() Object { return &corev1.Service{} },
		prepareCreate: createService, afterCreate: allocate,
		prepareUpdate: updateService, afterUpdate: allocateForUpdate},
	{name: "endpointslices", kind: discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
		newObject:     func() Object { return &discoveryv1.EndpointSlice{} },
		prepareCreate: createEndpointSlice, prepareUpdate: updateEndpointSlice},
	{name: "nodes", kind: corev1.SchemeGroupVersion.WithKind("Node"),
		newObject: func() Object { return &corev1.Node{} }},
	{name: "pods", kind: corev1.SchemeGroupVersion.WithKind("Pod"),
		newObject: func() Object { return &corev1.Pod{} }, prepareCreate: createFirst},
	{name: "replicasets", kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		newObject: func() Object { return &appsv1.ReplicaSet{} }, prepareCreate: createFirst},
	{name: "namespaces", kind: corev1.SchemeGroupVersion.WithKind("Namespace"),
		newObject: func() Object { return &corev1.Namespace{} }, prepareCreate: createNamespace},
	{name: "resourcequotas", kind: corev1.SchemeGroupVersion.WithKind("ResourceQuota"),
		newObject: func() Object { return &corev1.ResourceQuota{} }, prepareCreate: createInNamespace},
	{name: "leases", kind: coordinationv1.SchemeGroupVersion.WithKind("Lease"), needsVersion: true,
		newObject: func() Object { return &coordinationv1.Lease{} }, prepareCreate: createInNamespace},
	{name: "events", kind: eventsv1.SchemeGroupVersion.WithKind("Event"),
		newObject: func() Object { return &eventsv1.Event{} }, prepareCreate: createInNamespace},
}

func (r *definition) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.kind.Group, Resource: r.name}
}

func (r *definition) invalid(name string, problems ...*field.Error) error {
	return apierrors.NewInvalid(r.kind.GroupKind(), name, problems)
}

// keepMetadata restores the metadata that no update may change, and returns an error about invalid changes.
func (r *definition) keepMetadata(old, object Object) error {
	if uid := object.GetUID(); uid != old.GetUID() {
		if uid != "" {
			return r.invalid(old.GetName(), field.Invalid(field.NewPath("metadata", "uid"), string(uid),
				"field is immutable"))
		}
		object.SetUID(old.GetUID())
	}
	object.SetName(old.GetName())
	object.SetNamespace(old.GetNamespace())
	object.SetCreationTimestamp(old.GetCreationTimestamp())
	object.SetDeletionTimestamp(old.GetDeletionTimestamp())
	object.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	object.SetGeneration(old.GetGeneration())
	object.SetManagedFields(nil)
	object.GetObjectKind().SetGroupVersionKind(r.kind)
	problems := validation.ValidateObjectMetaAccessorUpdate(object, old, field.NewPath("metadata"))
	if problems = append(problems, validateMetadata(object)...); len(problems) > 0 {
		return r.invalid(old.GetName(), problems...)
	}
	return nil
}

// validateMetadata says what is wrong with the metadata of an object: of labels, owners, finalizers, and of its name.
func validateMetadata(object Object) field.ErrorList {
	return validation.ValidateObjectMetaAccessor(object, object.GetNamespace() != "", validation.NameIsDNSSubdomain,
		field.NewPath("metadata"))
}

// gracePeriod returns how long an object lives after a request to delete it. Only bound pods do.
func (r *definition) gracePeriod(object Object, options *metav1.DeleteOptions) time.Duration {
	pod, isPod := object.(*corev1.Pod)
	if !isPod || pod.Spec.NodeName == "" {
		return 0
	}
	if options.GracePeriodSeconds != nil {
		return time.Duration(*options.GracePeriodSeconds) * time.Second
	}
	return 30 * time.Second
}

// createInNamespace refuses objects in a namespace that does not exist or is being deleted, and objects with invalid
// metadata.
func createInNamespace(s *APIServer, object Object) error {
	t := s.tableOf(object)
	namespace := s.tables["namespaces"].objects[keyOf(&metav1.ObjectMeta{Name: object.GetNamespace()})]
	if namespace == nil {
		return apierrors.NewNotFound(s.tables["namespaces"].groupResource(), object.GetNamespace())
	}
	if namespace.object.GetDeletionTimestamp() == nil {
		if problems := validateMetadata(object); len(problems) > 0 {
			return t.invalid(object.GetName(), problems...)
		}
		return nil
	}
	err := apierrors.NewForbidden(t.groupResource(), object.GetName(), fmt.Errorf(
		"unable to create new content in namespace %s because it is being terminated", object.GetNamespace()))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace",
		Message: fmt.Sprintf("namespace %s is being terminated", object.GetNamespace())})
	return err
}

func createNamespace(_ *APIServer, object Object) error {
	object.SetFinalizers(append(object.GetFinalizers(), string(corev1.FinalizerKubernetes)))
	return nil
}

// createFirst is createInNamespace for objects that count their generations.
func createFirst(s *APIServer, object Object) error {
	object.SetGeneration(1)
	return createInNamespace(s, object)
}

func createEndpointSlice(s *APIServer, object Object) error {
	defaultPorts(object.(*discoveryv1.EndpointSlice))
	return createFirst(s, object)
}

func updateEndpointSlice(_ *APIServer, _ string, old, object Object) error {
	before, after := old.(*discoveryv1.EndpointSlice), object.(*discoveryv1.EndpointSlice)
	if !apiequality.Semantic.DeepEqual(before.Endpoints, after.Endpoints) ||
		!apiequality.Semantic.DeepEqual(before.Ports, after.Ports) || !maps.Equal(before.Labels, after.Labels) {
		object.SetGeneration(old.GetGeneration() + 1)
	}
	defaultPorts(after)
	return nil
}

func defaultPorts(slice *discoveryv1.EndpointSlice) {
	for i := range slice.Ports {
		if slice.Ports[i].Protocol == nil {
			slice.Ports[i].Protocol = new(corev1.ProtocolTCP)
		}
		if slice.Ports[i].Name == nil {
			slice.Ports[i].Name = new("")
		}
	}
}

// checkQuota refuses a Service that a ResourceQuota of its namespace has no room for.
func (s *APIServer) checkQuota(service *corev1.Service) error {
	const counted = corev1.ResourceName("count/services")
	for _, quota := range list[*corev1.ResourceQuota](s) {
		hard, isLimited := quota.Spec.Hard[counted]
		if quota.Namespace != service.Namespace || !isLimited {
			continue
		}
		used := 0
		for key := range s.tables["services"].objects {
			if key.Namespace == service.Namespace {
				used++
			}
		}
		if resource.NewQuantity(int64(used+1), resource.DecimalSI).Cmp(hard) > 0 {
			return apierrors.NewForbidden(s.tables["services"].groupResource(), service.Name, fmt.Errorf(
				"exceeded quota: %s, requested: %s=1, used: %s=%d, limited: %s=%s", quota.Name, counted, counted, used,
				counted, hard.String()))
		}
	}
	return nil
}
