package integration

import (
	"fmt"
	"sync"
	"time"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// fenceRounds is how often a fence is passed. The work that an event causes begins before that of the first round's
// event, and may then still be under way on another worker; not so when the second round is through.
const fenceRounds = 2

// fence tells that the controller has seen, and dealt with, all that happened before: it makes something else happen
// that the controller must react to, and waits for that reaction. Events of one resource come in their order. So what
// has not happened after a fence of the right resource does not happen. It has a namespace of its own, which the
// requests of the scene do not count.
type fence struct {
	*scene
	node string
}

const fenceName = "fence"

// freeFences are the fences of the shared cluster that no test uses. Making one is more work than passing it.
var freeFences struct {
	sync.Mutex
	fences []*fence
}

// newFence returns a fence for this test, in good time before it is needed.
func (s *scene) newFence() *fence {
	s.T.Helper()
	if s.Cluster != shared {
		return s.makeFence(newScene(s.T, s.Cluster, s.Namespace+"-fence"))
	}
	f := takeFence()
	if f == nil {
		f = s.makeFence(&scene{s.KeepScene(s.T, fenceName)})
	}
	s.T.Cleanup(func() {
		if !s.T.Failed() { // Otherwise it may be what has failed.
			freeFences.Lock()
			defer freeFences.Unlock()
			freeFences.fences = append(freeFences.fences, f)
		}
	})
	return &fence{scene: f.in(s.T), node: f.node}
}

func takeFence() *fence {
	freeFences.Lock()
	defer freeFences.Unlock()
	last := len(freeFences.fences) - 1
	if last < 0 {
		return nil
	}
	f := freeFences.fences[last]
	freeFences.fences = freeFences.fences[:last]
	return f
}

func (s *scene) makeFence(in *scene) *fence {
	s.T.Helper()
	f := &fence{scene: in, node: in.Namespace}
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

// passServices is for what events of Services cause.
func (f *fence) passServices() {
	f.T.Helper()
	f.rounds(func() {
		old := f.GetService(f.service())
		f.DeleteService(old.Name)
		f.WaitServiceReplaced(old)
	})
}

// passNodes is for what events of nodes cause.
func (f *fence) passNodes() {
	f.T.Helper()
	f.rounds(func() {
		f.PatchNode(f.node, fmt.Sprintf(`{"metadata": {"labels": {%q: "elsewhere"}}}`, framework.SceneLabel))
		f.WaitServiceGone(f.service())
		f.PatchNode(f.node, fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, framework.SceneLabel, f.Namespace))
		f.WaitServiceExists(f.service())
	})
}

// passLocalServices is for what events of LocalServices cause. The status that the controller writes is such an event,
// so this is also for what its own writes cause.
func (f *fence) passLocalServices() {
	f.T.Helper()
	f.rounds(func() {
		f.Update(fenceName, func(ls *v1alpha1.LocalService) {
			ls.Spec.PublishNotReadyAddresses = !ls.Spec.PublishNotReadyAddresses
		})
		f.WaitReady(fenceName)
	})
}

// passPods is for what events of pods cause.
func (f *fence) passPods() {
	f.T.Helper()
	f.rounds(func() {
		name := fmt.Sprintf("fence-%d", time.Now().UnixNano())
		f.CreatePod(name, f.node, map[string]string{"app": fenceName})
		f.WaitLabelled(name, f.node)
	})
}

// passAll is for all that can have happened.
func (f *fence) passAll() {
	f.T.Helper()
	f.passServices()
	f.passNodes()
	f.passPods()
	f.passLocalServices()
}
