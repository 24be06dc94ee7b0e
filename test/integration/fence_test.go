package integration

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// fenceRounds is how often a fence is passed. The work that an event causes begins before that of the first round's
// event, and may still be in progress on another worker during that round, but not after the second one.
const fenceRounds = 2

// fence ensures that the controller has observed, and handled, all previous events: it causes another event that the
// controller must react to, and waits for that reaction. Events of one resource arrive in their order. So what has not
// happened after a fence of the right resource will not happen. A fence has a namespace of its own, whose requests do
// not count as those of the scene.
type fence struct {
	*scene
	node string
}

const fenceName = "fence"

// newFence returns a fence for this test. Call it some time before the fence is needed.
func (s *scene) newFence() *fence {
	s.T.Helper()
	f := &fence{scene: newScene(s.T, s.Cluster, fenceName)}
	f.node = f.Namespace
	f.CreateNode(f.node, nil)
	f.CreateNode(f.node+"-stays", nil) // A selector that matches nothing would delete nothing.
	f.CreateReady(fenceName)
	return f
}

func (f *fence) service() string { return fenceName + "-" + f.node }

// rounds passes a fence often enough.
func (f *fence) rounds(pass func()) {
	f.T.Helper()
	for range fenceRounds {
		pass()
	}
}

// passServices waits until all previous events of Services are handled.
func (f *fence) passServices() {
	f.T.Helper()
	f.rounds(func() {
		old := f.GetService(f.service())
		f.Must(f.ServiceClient().Delete(f.Ctx(), old.Name, metav1.DeleteOptions{}))
		f.WaitService(old.Name, old.UID)
	})
}

// passNodes waits until all previous events of nodes are handled.
func (f *fence) passNodes() {
	f.T.Helper()
	f.rounds(func() {
		f.PatchNode(f.node, fmt.Sprintf(`{"metadata": {"labels": {%q: "elsewhere"}}}`, framework.SceneLabel))
		f.WaitServiceGone(f.service())
		f.PatchNode(f.node, fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, framework.SceneLabel, f.Namespace))
		f.WaitService(f.service(), "")
	})
}

// passLocalServices waits until all previous events of LocalServices are handled. They include the writes of the status
// by the controller.
func (f *fence) passLocalServices() {
	f.T.Helper()
	f.rounds(func() {
		f.Update(fenceName, func(ls *v1alpha1.LocalService) {
			ls.Spec.PublishNotReadyAddresses = !ls.Spec.PublishNotReadyAddresses
		})
		f.WaitReady(fenceName)
	})
}

// passPods waits until all previous events of pods are handled.
func (f *fence) passPods() {
	f.T.Helper()
	f.rounds(func() {
		name := fmt.Sprintf("fence-%d", time.Now().UnixNano())
		f.CreatePod(name, f.node, map[string]string{"app": fenceName})
		f.WaitLabelled(name, f.node)
	})
}

// passAll waits until all previous events are handled.
func (f *fence) passAll() {
	f.T.Helper()
	f.passServices()
	f.passNodes()
	f.passPods()
	f.passLocalServices()
}
