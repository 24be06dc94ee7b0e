package writer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testobject"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// creations are those of a LocalService on nodes that are named by their numbers.
func creations(t *testing.T, namespace string, nodes int) (changes []plan.Change) {
	t.Helper()
	ls := testobject.LocalService(func(ls *v1alpha1.LocalService) { ls.Namespace = namespace })
	templates, err := plan.NewTemplates(ls, v1alpha1.DefaultNodeLabelKey)
	if err != nil {
		t.Error(err)
	}
	for i := range nodes {
		node := fmt.Sprintf("n%02d", i)
		changes = append(changes, plan.Change{Action: plan.Create, Template: templates[0], Name: "demo-" + node, Node: node})
	}
	return changes
}

func newTestServices(kube kubernetes.Interface, concurrency int) *Services {
	return NewServices(kube, metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()), concurrency,
		rand.Shuffle,
		func(metav1.Object, int64) {})
}

// TestRefusedOnesDoNotComeFirst: a batch is given up after ten refusals in a row. Where a policy refuses the first half
// of the nodes, by name, those of the other half get their Services all the same, in the first few tries.
func TestRefusedOnesDoNotComeFirst(t *testing.T) {
	const nodes = 40
	kube := fake.NewClientset()
	kube.PrependReactor("create", "services", func(a core.Action) (bool, runtime.Object, error) {
		service := a.(core.CreateAction).GetObject().(*corev1.Service)
		return service.Name < fmt.Sprintf("demo-n%02d", nodes/2), nil, apierrors.NewForbidden(corev1.Resource("services"),
			service.Name, errors.New("by a policy"))
	})
	s, changes, written := newTestServices(kube, 4), creations(t, "default", nodes), 0
	for try := 0; written < nodes/2 && try < 10; try++ {
		out := s.Write(t.Context(), "default", slices.Clone(changes), func(int) error { return nil }, always)
		written += len(out.Written)
		changes = slices.DeleteFunc(changes, func(change plan.Change) bool {
			return slices.ContainsFunc(out.Written, func(w Written) bool { return w.Change.Name == change.Name })
		})
	}
	if written != nodes/2 {
		t.Errorf("%d of %d that are not refused have been made", written, nodes/2)
	}
}

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
	s := newTestServices(kube, concurrency)
	write := func(namespace string, nodes int, next func(int) error) {
		out := s.Write(t.Context(), namespace, creations(t, namespace, nodes), next, always)
		if len(out.Written) != nodes || out.Stopped != nil {
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
