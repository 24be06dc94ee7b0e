package integration

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestContestedFieldFollowsSpec tests that where a policy changes a part of a field, all Services get the rest of that
// field when the spec changes, and not only the first one.
func TestContestedFieldFollowsSpec(t *testing.T) {
	t.Parallel()
	const nodes = 20
	withTeam := func(version string) change {
		return func(ls *v1alpha1.LocalService) {
			ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{
				Labels: map[string]string{"team": "ours", "version": version}}
		}
	}
	// The policy is known to be in force by what it does to a Service of type LoadBalancer.
	const marked = `object.spec.type == "LoadBalancer" ? ` +
		`[JSONPatch{op: "add", path: "/spec/sessionAffinity", value: "ClientIP"}] : `
	isMarked := func(s *corev1.ServiceSpec) bool { return s.SessionAffinity == "ClientIP" }
	for field, c := range map[string]struct {
		sets   string // by the policy
		before change
		after  change
		has    func(*corev1.Service) bool // what the spec asks for after the change
	}{
		"ports": {`[JSONPatch{op: "add", path: "/spec/ports/0/appProtocol", value: "example.com/theirs"}]`,
			func(*v1alpha1.LocalService) {},
			func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].TargetPort.IntVal = 9090 },
			func(s *corev1.Service) bool { return s.Spec.Ports[0].TargetPort.IntVal == 9090 }},
		"selector": {`[JSONPatch{op: "add", path: "/spec/selector/theirs", value: "x"}]`,
			func(*v1alpha1.LocalService) {},
			func(ls *v1alpha1.LocalService) { ls.Spec.Selector["app"] = "next" },
			func(s *corev1.Service) bool { return s.Spec.Selector["app"] == "next" }},
		"labels": {`[JSONPatch{op: "add", path: "/metadata/labels/team", value: "theirs"}]`,
			withTeam("1"), withTeam("2"),
			func(s *corev1.Service) bool { return s.Labels["version"] == "2" }},
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, shared, "partly")
			s.AddManyNodes(nodes)
			s.mutate(marked+c.sets, isMarked)
			s.Create("demo", framework.WithClusterIP, c.before)
			s.WaitNotReady("demo", v1alpha1.ReasonContested, "as it sets them: "+field)
			s.ResetCount()
			s.Update("demo", c.after)
			s.waitAllServices(c.has)
			s.WaitNotReady("demo", v1alpha1.ReasonContested, "as it sets them: "+field)
			if writes := s.Requests().Resource("services").Writes(); len(writes) > nodes+1 {
				t.Errorf("the controller's writes: %s", writes)
			}
		})
	}
}

// waitAllServices waits until all Services of the scene are so.
func (s *scene) waitAllServices(isSo func(*corev1.Service) bool) {
	s.T.Helper()
	s.Eventually("all Services are as they are to be", func(ctx context.Context) error {
		list, err := s.ServiceClient().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		n := 0
		for i := range list.Items {
			if isSo(&list.Items[i]) {
				n++
			}
		}
		if n < len(list.Items) {
			return fmt.Errorf("%d of %d are", n, len(list.Items))
		}
		return nil
	})
}
