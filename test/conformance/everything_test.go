package conformance

import (
	"context"
	"errors"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// testNamespaces selects the namespaces that Kubernetes' tests make.
const testNamespaces = "e2e-run"

// everything creates the LocalServices of everything.yaml in each namespace that Kubernetes' tests make.
type everything struct {
	cluster *framework.Cluster
	objects []v1alpha1.LocalService

	mu      sync.Mutex
	created int
	errs    []error
}

// publishEverything begins to create LocalServices, until the test ends.
func publishEverything(t *testing.T, cluster *framework.Cluster) *everything {
	t.Helper()
	cluster.RunKubectl(t, "apply", "--validate=strict", "--filename=everything-policy.yaml")
	e := &everything{cluster: cluster}
	objects, err := framework.ReadObjects("everything.yaml")
	for _, object := range objects {
		ls, notOne := framework.ToLocalService(object)
		e.objects, err = append(e.objects, ls), errors.Join(err, notOne)
	}
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(cluster.Kube, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = testNamespaces }))
	_, err = factory.Core().V1().Namespaces().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { e.publish(t.Context(), object.(*corev1.Namespace).Name) },
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	t.Cleanup(func() { close(stop); factory.Shutdown() })
	return e
}

// publish creates the LocalServices in a namespace, unless it is being deleted already.
func (e *everything) publish(ctx context.Context, namespace string) {
	client := e.cluster.LocalServices.LocalserviceV1alpha1().LocalServices(namespace)
	for i := range e.objects {
		_, err := client.Create(ctx, &e.objects[i], metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		gone := apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) ||
			ctx.Err() != nil
		e.mu.Lock()
		if err == nil {
			e.created++
		} else if !gone {
			e.errs = append(e.errs, err)
		}
		e.mu.Unlock()
	}
}

// check fails unless LocalServices were created without errors, and the controller has published names for them, which
// have followed the pods of the tests.
func (e *everything) check(t *testing.T) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := errors.Join(e.errs...); err != nil {
		t.Errorf("create LocalServices: %v", err)
	}
	writes := e.cluster.Audit.Since(0).ByController().Writes()
	created := writes.Verb("create").Where(framework.Succeeded)
	if services := len(created.Resource("services")); services < e.created {
		t.Errorf("there were %d LocalServices, and the controller has created only %d Services", e.created, services)
	}
	followed := writes.Verb("update").Resource("endpointslices").Where(framework.Succeeded)
	if len(followed) == 0 && *focus == "" {
		t.Error("the controller has copied no endpoint of a pod")
	}
	t.Logf("there were %d LocalServices; the controller's writes: %s", e.created, writes)
}
