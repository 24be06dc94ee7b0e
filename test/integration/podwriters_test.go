package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// otherWriter is somebody who writes a pod's labels and annotations over and over: a counter, under a key of its own.
type otherWriter struct {
	key   string
	write func(ctx context.Context, pod, key, value string) (*corev1.Pod, error)

	last string // what it has written last
	err  error  // what ended it, nil if it was told to stop
}

// otherWriters write in the ways in which programs do.
func (s *scene) otherWriters() []*otherWriter {
	metadata := func(key, value string) string {
		return fmt.Sprintf(`{"metadata":{"labels":{%q:%q},"annotations":{%q:%q}}}`, key, value, key, value)
	}
	patch := func(patchType types.PatchType) func(ctx context.Context, pod, key, value string) (*corev1.Pod, error) {
		return func(ctx context.Context, pod, key, value string) (*corev1.Pod, error) {
			return s.PodClient().Patch(ctx, pod, patchType, []byte(metadata(key, value)), metav1.PatchOptions{})
		}
	}
	return []*otherWriter{
		{key: "example.com/merges", write: patch(types.MergePatchType)},
		{key: "example.com/merges-strategically", write: patch(types.StrategicMergePatchType)},
		// Reads, changes and writes the whole pod, and begins again if somebody else was quicker.
		{key: "example.com/updates", write: func(ctx context.Context, name, key, value string) (updated *corev1.Pod, err error) {
			for updated == nil && (err == nil || apierrors.IsConflict(err)) {
				var pod *corev1.Pod
				if pod, err = s.PodClient().Get(ctx, name, metav1.GetOptions{}); err != nil {
					return nil, err
				}
				pod.Labels[key] = value
				metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
				updated, err = s.PodClient().Update(ctx, pod, metav1.UpdateOptions{})
				if err != nil {
					updated = nil
				}
			}
			return updated, err
		}},
	}
}

// run writes until stop is closed. It fails if it finds that its last word was lost, or that the node label, once seen,
// was. It says when it has begun, or failed.
func (w *otherWriter) run(ctx context.Context, s *scene, pod string, begun chan<- struct{}, stop <-chan struct{}) {
	const writesBefore = 5
	labelled := false
	check := func(now *corev1.Pod, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", w.key, err)
		case now.Labels[w.key] != w.last || now.Annotations[w.key] != w.last:
			return fmt.Errorf("%s: has written %q, and finds %q and %q", w.key, w.last, now.Labels[w.key], now.Annotations[w.key])
		case labelled && now.Labels[nodeLabel] == "":
			return fmt.Errorf("%s: the node label was there, and is not any more", w.key)
		}
		labelled = now.Labels[nodeLabel] != ""
		return nil
	}
	for i := 1; w.err == nil; i++ {
		if w.err = check(s.PodClient().Get(ctx, pod, metav1.GetOptions{})); w.err == nil {
			w.last = fmt.Sprint(i)
			w.err = check(w.write(ctx, pod, w.key, w.last))
		}
		if w.err != nil || i == writesBefore {
			begun <- struct{}{}
		}
		select {
		case <-stop:
			return
		default:
		}
	}
}

// TestPodsWrittenByOthers tests that the label arrives on a pod that others write all the time, that nothing of what
// they write is lost, and that it takes no more writes than it must.
func TestPodsWrittenByOthers(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "others")
	f := s.newFence()
	node := s.AddNodes("a")[0]
	began := s.Audit.Mark()
	s.CreatePod("pod", node, map[string]string{"app": "demo"})
	writers := s.otherWriters()
	begun, stop, ended := make(chan struct{}, 2*len(writers)), make(chan struct{}), make(chan struct{}, len(writers))
	for _, w := range writers {
		go func() {
			w.run(s.Ctx(), s, "pod", begun, stop)
			ended <- struct{}{}
		}()
	}
	for range writers {
		<-begun
	}
	s.ResetCount()
	s.Create("demo")
	s.WaitLabelled("pod", node)
	f.passPods() // They go on writing meanwhile.
	close(stop)
	for range writers {
		<-ended
	}
	f.passPods()
	pod := s.GetPod("pod")
	labels, annotations := map[string]string{"app": "demo", nodeLabel: node}, map[string]string{}
	for _, w := range writers {
		if w.err != nil {
			s.Fatalf("%v", w.err)
		}
		labels[w.key], annotations[w.key] = w.last, w.last
	}
	if err := errors.Join(framework.Equal("labels", pod.Labels, labels), framework.Equal("annotations", pod.Annotations, annotations)); err != nil {
		t.Error(err)
	}
	all := s.Audit.Since(began).Namespace(s.Namespace).Resource("pods").Name("pod")
	writes := s.Requests().Resource("pods").Writes()
	t.Logf("all requests for the pod: %s; those of the controller: %s", all, writes)
	// It is written once, and once more, without effect, only if the watch is behind and tells of a change from before.
	changes := all.Writes().Where(framework.Succeeded)
	if n := len(writes); n < 1 || n > 1+len(changes)-n || len(writes.Where(framework.Failed)) > 0 {
		s.Fatalf("the controller's writes of the pod: %s; want 1, or very few", writes)
	}
}

// TestPodsAmongManyLocalServices tests a namespace with thousands of LocalServices: a pod is written once, whether one
// of them selects it or a thousand do, and not at all if none does.
func TestPodsAmongManyLocalServices(t *testing.T) {
	t.Parallel()
	// A cluster of its own, which goes away sooner than so many objects would.
	s := &scene{framework.NewCluster(t, controlPlane()).KeepScene(t, "thousands")}
	s.NewController(t)
	f := s.newFence()
	node := s.AddNodes("a")[0]
	const count = 2000 // half of them select the same pods
	noNode := func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = map[string]string{"disk": "none"} }
	s.InParallel(count, func(i int) error {
		ls := s.NewLocalService(fmt.Sprintf("demo-%d", i), noNode)
		if i%2 == 0 {
			ls.Spec.Selector = map[string]string{"app": "shared"}
		}
		_, err := s.LocalServiceClient().Create(s.Ctx(), ls, metav1.CreateOptions{})
		return err
	})
	s.ResetCount()
	untouched := []*corev1.Pod{
		s.CreatePod("of-none", node, map[string]string{"app": "demo"}),
		s.CreatePod("of-none-either", node, map[string]string{"app": fmt.Sprintf("demo-%d", count+1)}),
		s.CreatePod("without-labels", node, nil),
	}
	for pod, app := range map[string]string{"of-one": "demo-1", "of-another": fmt.Sprintf("demo-%d", count-1), "of-a-thousand": "shared"} {
		s.CreatePod(pod, node, map[string]string{"app": app})
		s.WaitLabelled(pod, node)
		f.passPods()
		s.wantOnePatch(pod)
	}
	// One more selects a pod that is there already, with all of its pairs.
	late := s.CreatePod("of-a-late-one", node, map[string]string{"app": "late", "tier": "web"})
	s.Create("late", noNode, func(ls *v1alpha1.LocalService) { ls.Spec.Selector["tier"] = "web" })
	s.WaitLabelled(late.Name, node)
	f.passPods()
	s.wantOnePatch(late.Name)
	for _, pod := range untouched {
		s.wantPodUntouched(pod)
	}
	s.WantWrites("pods", "4 patch pods 200")
}
