package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestUndecodableLocalService tests that a LocalService that does not fit the type, as an older, or edited,
// CustomResourceDefinition lets it be stored, harms no other one, and that log, event, status and metric name it.
func TestUndecodableLocalService(t *testing.T) {
	t.Parallel()
	s := newScene(t, framework.NewCluster(t, controlPlane()), "odd")
	const loosened = `[{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec",
		"value": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}]`
	crds, options := s.Dynamic.Resource(framework.CRDs), metav1.PatchOptions{}
	_, err := crds.Patch(s.Ctx(), framework.CRDName, types.JSONPatchType, []byte(loosened), options)
	s.Must(err)
	controller := s.NewController(t)
	s.AddNodes("a", "b")
	s.CreateReady("before")
	specs := map[string]string{
		"number": `clusterIP: None, selector: {app: demo}, ports: [{port: 80, targetPort: 4294967296}]`,
		"list":   `clusterIP: None, selector: [app]`,
		"text":   `clusterIP: None, selector: {app: demo}, ports: many`,
	}
	for name, spec := range specs {
		s.Eventually("the API server stores "+name, func(context.Context) error { return s.createFromYAML(name, spec) })
	}
	s.MustOwn(s.CreateReady("after"), 2)
	stored := s.Dynamic.Resource(localServiceResource).Namespace(s.Namespace)
	tells := func(controller *framework.Controller) {
		t.Helper()
		for name := range specs {
			s.Eventually(name+" is reported", func(ctx context.Context) error {
				ls, err := stored.Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				conditions, _, _ := unstructured.NestedSlice(ls.Object, "status", "conditions")
				_, metrics, err := controller.Get(ctx, "/metrics")
				events, eventsErr := s.Events(ctx, name, v1alpha1.ReasonInvalidSpec)
				metric := fmt.Sprintf(`localservice_invalid{name="%s",namespace="%s"} 1`, name, s.Namespace)
				switch {
				case err != nil || eventsErr != nil:
					return errors.Join(err, eventsErr)
				case !strings.Contains(fmt.Sprint(conditions), "reason:"+v1alpha1.ReasonInvalidSpec):
					return fmt.Errorf("conditions %v", conditions)
				case len(events) != 1 || events[0].Type != corev1.EventTypeWarning:
					return fmt.Errorf("events %v", events)
				case !strings.Contains(metrics, metric):
					return fmt.Errorf("no metric %s", metric)
				}
				return nil
			})
		}
	}
	tells(controller)
	for name := range specs {
		if len(controller.LogLines(s.Namespace+"/"+name, "cannot be read")) == 0 {
			t.Errorf("the log does not mention %s", name)
		}
	}
	// The same holds for a controller that starts with them.
	s.Must(controller.Stop())
	controller = s.NewController(t)
	tells(controller)
	s.AddNodes("c")
	for _, name := range []string{"before", "after"} {
		s.Eventually(name+" follows", func(ctx context.Context) error {
			_, err := s.ServiceClient().Get(ctx, name+"-"+s.NodeName("c"), metav1.GetOptions{})
			return err
		})
	}
	// A corrected one works. A deleted one is no longer reported.
	patch := `{"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}`
	_, err = stored.Patch(s.Ctx(), "number", types.MergePatchType, []byte(patch), options)
	s.Must(err)
	for _, name := range []string{"list", "text"} {
		s.Must(stored.Delete(s.Ctx(), name, metav1.DeleteOptions{}))
	}
	s.WaitStatusNodes("number", 3)
	s.Eventually("nothing is invalid", func(ctx context.Context) error {
		_, metrics, err := controller.Get(ctx, "/metrics")
		if err == nil && strings.Contains(metrics, "localservice_invalid{") {
			err = errors.New("a metric says so")
		}
		return err
	})
}
