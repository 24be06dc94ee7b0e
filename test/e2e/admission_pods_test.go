package e2e

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestWithoutPermissionForPods: where the API server labels the pods, a controller with -label-pods=false serves both
// modes without a role that mentions pods, and asks for none. A pod that is older than the policies has no label.
func TestWithoutPermissionForPods(t *testing.T) {
	s := newAdmissionScene(t)
	permissions, err := framework.ShippedPermissions(framework.ControllerPermissions, framework.HostnamesPermissions)
	s.Must(err)
	ofPods := []string{"pods", "replicasets", "daemonsets", "statefulsets", "jobs", "replicationcontrollers"}
	for _, permission := range permissions.All() {
		if slices.Contains(ofPods, permission.Resource) {
			permissions = permissions.Without(permission)
		}
	}
	node := s.AddNodes("a")[0]
	s.WaitServiceAccount()
	s.Launch(barePod("older", node, nil))
	s.installPolicies()
	kubeconfig := s.NewAccount(t, s.Namespace, "controller", permissions)
	controller := s.LaunchController(t, "-kubeconfig="+kubeconfig, "-label-pods=false", "-leader-elect=false")
	s.Must(controller.WaitReady(s.Ctx()))

	labels := s.Launch(barePod("new", "", nil)).Labels
	s.BindPod("new", node, nil)
	s.PatchPod("new", `{"status":{"podIP":"10.1.0.1","podIPs":[{"ip":"10.1.0.1"}],
		"conditions":[{"type":"Ready","status":"True"}]}}`, "status")
	selected := func(ls *v1alpha1.LocalService) { ls.Spec.Selector = map[string]string{"app": labels["app"]} }
	s.Create("demo", selected)
	s.Create("names", selected, framework.WithHostnames)
	for _, name := range []string{"demo", "names"} {
		s.Eventually("the node's name of "+name+" answers", func(ctx context.Context) error {
			ls, err := s.LocalServiceClient().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			return framework.Equal("ready names", ls.Status.Ready, "1/1")
		})
	}
	s.wantLabel(s.GetPod("new"), node)
	s.wantLabel(s.GetPod("older"), "")
	asked := s.Audit.Since(0).ByController().Where(func(r *framework.Request) bool {
		return slices.Contains(ofPods, r.ObjectRef.Resource) || r.ResponseStatus.Code == 403
	})
	if len(asked) > 0 {
		t.Errorf("the controller asked for what it may not: %s", asked)
	}
}
