package integration

import (
	"testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestUnselected tests that a nodeSelector that matches no node deletes nothing of a node that exists, also not when
// the controller begins anew, and that all goes on when it is corrected.
func TestUnselected(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "typo")
	controller := s.NewController(t)
	nodes := s.AddNodes("a", "b", "c")
	ls := s.CreateReady("demo")
	before := s.MustOwn(ls, 3)
	s.Update("demo", func(ls *v1alpha1.LocalService) {
		ls.Spec.NodeSelector["disk"] = "sdd"
		ls.Spec.Ports[0].Port = 81
	})
	s.WaitNotReady("demo", v1alpha1.ReasonNoNodesSelected, "3 Services of nodes that exist are kept")
	s.DeleteNode(nodes[2])
	s.WaitServices(ls, "demo-"+nodes[0], "demo-"+nodes[1])
	s.Must(controller.Stop())
	s.NewController(t)
	s.newFence().passAll()
	s.MustOwn(ls, 2)
	s.Update("demo", func(ls *v1alpha1.LocalService) { delete(ls.Spec.NodeSelector, "disk") })
	s.WaitReady("demo")
	for name, service := range s.MustOwn(ls, 2) {
		if before[name] == nil || before[name].UID != service.UID || service.Spec.Ports[0].Port != 81 {
			t.Errorf("Service %s was recreated, or does not follow the spec: %+v", name, service)
		}
	}
}

// TestUnselectedByLabels tests the same when the only node that is selected loses its label.
func TestUnselectedByLabels(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "labels")
	node := s.AddNodes("a")[0]
	ls := s.CreateReady("demo")
	s.PatchNode(node, `{"metadata": {"labels": {"`+framework.SceneLabel+`": null}}}`)
	s.WaitNotReady("demo", v1alpha1.ReasonNoNodesSelected, "1 Services of nodes that exist are kept")
	s.MustOwn(ls, 1)
	s.PatchNode(node, `{"metadata": {"labels": {"`+framework.SceneLabel+`": "`+s.Namespace+`"}}}`)
	s.WaitReady("demo")
}
