package fault

import (
	"fmt"
	"testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestHeldDeletions: deletions that are withheld stay so when there are many more Services, and the controller begins
// anew, until they are confirmed.
func TestHeldDeletions(t *testing.T) {
	w := newWorld(t, shared, 3)
	k := startController(t, shared, "-kubeconfig="+shared.MustControllerKubeconfig(t), "-max-delete-fraction=0.5")
	w.createLocalService("a")
	w.settle("before")
	addOther := func(i int) {
		w.CreateNode(w.NodeName(fmt.Sprintf("h%d", i)), map[string]string{framework.SceneLabel: w.Namespace, "disk": "hdd"})
	}
	for i := range 9 {
		addOther(i)
	}
	w.Update("a", func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector["disk"] = "hdd" })
	w.MustOwn(w.WaitNotReady("a", v1alpha1.ReasonDeletionHeld, "3 of 3 Services"), 3+9)
	k.Kill()
	k.start()
	addOther(9)
	ls := w.WaitLocalService("a", "goes on withholding", func(ls *v1alpha1.LocalService) error {
		return framework.Equal("status.services, status.heldServices", [2]int32{ls.Status.Services, ls.Status.HeldServices},
			[2]int32{10, 3})
	})
	w.MustOwn(ls, 3+10)
	w.Update("a", func(ls *v1alpha1.LocalService) {
		ls.Annotations = map[string]string{v1alpha1.AllowDeletionAnnotationKey: "true"}
	})
	ls = w.WaitReady("a")
	w.MustOwn(ls, 10)
	if held := ls.Status.HeldServices; held != 0 {
		t.Errorf("status.heldServices is %d when nothing is held any more", held)
	}
}
