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

// TestNamesOfRivals tests that of two nodes that want one name, one has it in both modes, the other is reported, and
// the name passes on when the node is gone: at once, although its pods are still there.
func TestNamesOfRivals(t *testing.T) {
	t.Parallel()
	s := newPublishingScene(t, "rivals")
	nodes := s.AddNodes("x-y", "x.y")
	name := nodes[0]
	s.run("holder", nodes[0], "10.8.0.1")
	s.run("other", nodes[1], "10.8.0.2")
	s.Create("demo", framework.WithHostnames, func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = nil })
	s.Create("each")
	for _, ls := range []string{"demo", "each"} {
		s.WaitNotReady(ls, v1alpha1.ReasonNameTaken, fmt.Sprintf("is the name of node %s). Select only one", nodes[0]))
	}
	expect := func(node, address string) {
		s.T.Helper()
		s.Eventually("the names lead to "+node, func(ctx context.Context) error {
			service, err := s.Kube.CoreV1().Services(s.Namespace).Get(ctx, "each-"+name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if err := framework.Equal("the node of the Service", service.Spec.Selector[nodeLabel], node); err != nil {
				return err
			}
			slices, err := s.slicesOf(ctx, "demo")
			if err != nil {
				return err
			}
			var got []string
			for i := range slices {
				for _, e := range slices[i].Endpoints {
					got = append(got, *e.Hostname+"="+e.Addresses[0])
				}
			}
			return framework.Equal("what is published", fmt.Sprint(got), fmt.Sprintf("[%s=%s]", name, address))
		})
	}
	expect(nodes[0], "10.8.0.1")
	s.DeleteNode(nodes[0])
	expect(nodes[1], "10.8.0.2")
	if pod := s.GetPod("holder"); pod.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod of the node that is gone is not there any more, so that nothing was shown: %+v", pod.Status)
	}
	s.WaitReady("each")
}
