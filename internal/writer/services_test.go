package writer

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testobject"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestSlowNext: while one LocalService is held up before its next write, as by a status that takes its time, its writes
// that are under way end, and leave their turns to others. It runs in real time, which does not wait for a mutex.
func TestSlowNext(t *testing.T) {
	const concurrency, held = 4, "held"
	const quick = 2 * concurrency // so many writes have the window grow to the concurrency
	kube := fake.NewClientset()
	underWay := make(chan struct{})
	var begun atomic.Int64
	kube.PrependReactor("create", "services", func(a core.Action) (bool, runtime.Object, error) {
		if a.GetNamespace() == held && begun.Add(1) > quick {
			<-underWay
		}
		return false, nil, nil
	})
	s := NewServices(kube, metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()), concurrency, func(*corev1.Service) {})
	write := func(namespace string, nodes int, next func(int) error) {
		ls := testobject.LocalService(func(ls *v1alpha1.LocalService) { ls.Namespace = namespace })
		templates, err := plan.NewTemplates(ls, v1alpha1.DefaultNodeLabelKey)
		if err != nil {
			t.Error(err)
		}
		var changes []plan.Change
		for i := range nodes {
			node := string(rune('a' + i))
			changes = append(changes, plan.Change{Action: plan.Create, Template: templates[0], Name: "demo-" + node, Node: node})
		}
		if out := s.Write(t.Context(), namespace, changes, next); len(out.Written) != nodes || out.Stopped != nil {
			t.Errorf("%s: %d of %d written, stopped by %v", namespace, len(out.Written), nodes, out.Stopped)
		}
	}
	release, isHeld := make(chan struct{}), make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		calls := 0
		write(held, 20, func(int) error {
			if calls++; calls == quick+concurrency { // All turns but this one are being written.
				close(isHeld)
				<-release
			}
			return nil
		})
	})
	<-isHeld
	close(underWay)
	done := make(chan struct{})
	running.Go(func() {
		write("other", 3, func(int) error { return nil })
		close(done)
	})
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("the writes of another LocalService wait for those that are held up")
	}
	close(release)
	running.Wait()
}
