package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// app is the label that LocalService demo selects pods by.
var app = map[string]string{"app": "demo"}

// withFinalizer keeps a deleted pod until the test removes the finalizer.
func withFinalizer(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/hold"} }

func onHostNetwork(pod *corev1.Pod) {
	pod.Spec.HostNetwork = true
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 8080}}
}

// createMirrorPod does what a kubelet does for a static pod: it creates a mirror pod at the API server, with the
// permissions of a kubelet.
func (s *scene) createMirrorPod(name, node string) {
	s.T.Helper()
	config := rest.CopyConfig(s.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + node, Groups: []string{"system:nodes"}}
	kubelet, err := kubernetes.NewForConfig(config)
	s.Must(err)
	pod := framework.NewPod(name, node, app, func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "0123456789abcdef"}
		pod.OwnerReferences = []metav1.OwnerReference{s.controlledByNode(node)}
		pod.Spec.Tolerations = []corev1.Toleration{{
			Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
		}}
	})
	_, err = kubelet.CoreV1().Pods(s.Namespace).Create(s.Ctx(), pod, metav1.CreateOptions{})
	s.Must(err)
}

// controlledByNode is the controller reference of a node, which has nothing to do with any LocalService.
func (s *scene) controlledByNode(name string) metav1.OwnerReference {
	s.T.Helper()
	node, err := s.Kube.CoreV1().Nodes().Get(s.Ctx(), name, metav1.GetOptions{})
	s.Must(err)
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID, Controller: new(true)}
}

// TestPodsFromBefore tests a controller that is started in a cluster with running pods: the API server accepts the
// label of each kind of pod that a LocalService selects, by one write, and no other pods are written.
func TestPodsFromBefore(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "before")
	nodes := s.AddNodes("a", "b", "ip-10-0-0-3.ec2.internal", strings.Repeat("x", 70)+".example.com")
	s.Create("demo")
	labelled := map[string]string{} // the pods to label, each with its node
	create := func(name, node string, labels map[string]string, changes ...func(*corev1.Pod)) {
		s.CreatePod(name, node, labels, changes...)
		labelled[name] = node
	}
	for i := range 30 {
		create(fmt.Sprintf("pod-%d", i), nodes[i%len(nodes)], app)
	}
	create("host-network", nodes[1], app, onHostNetwork)
	create("stale", nodes[0], map[string]string{"app": "demo", nodeLabel: nodes[1]})
	create("running", nodes[1], app)
	s.PatchPod("running", `{"status":{"phase":"Running"}}`, "status")
	create("terminating", nodes[2], app, withFinalizer)
	s.Must(s.PodClient().Delete(s.Ctx(), "terminating", metav1.DeleteOptions{}))
	create("bound", "", app)
	s.BindPod("bound", nodes[0], nil)
	s.createMirrorPod("static", nodes[0])
	labelled["bound"], labelled["static"] = nodes[0], nodes[0]
	var untouched []*corev1.Pod
	for _, phase := range []string{"Succeeded", "Failed"} {
		name := strings.ToLower(phase)
		s.CreatePod(name, nodes[0], app)
		s.PatchPod(name, fmt.Sprintf(`{"status":{"phase":%q}}`, phase), "status")
		untouched = append(untouched, s.GetPod(name))
	}
	untouched = append(untouched,
		s.CreatePod("right", nodes[0], map[string]string{"app": "demo", nodeLabel: nodes[0]}),
		s.CreatePod("not-selected", nodes[0], map[string]string{"app": "other"}),
		s.CreatePod("not-scheduled", "", app))

	s.ResetCount()
	s.NewController(t)
	for name, node := range labelled {
		s.WaitLabelled(name, node)
	}
	s.WaitReady("demo")
	f := s.newFence()
	f.passPods()
	f.passLocalServices()
	s.WantWrites("pods", fmt.Sprintf("%d patch pods 200", len(labelled)))
	for _, pod := range untouched {
		if now := s.GetPod(pod.Name); now.ResourceVersion != pod.ResourceVersion {
			s.Fatalf("pod %s was changed: its labels were %v and are %v", pod.Name, pod.Labels, now.Labels)
		}
	}
	if reads := s.Requests().Resource("pods").Verb("get", "list", "watch"); len(reads) > 0 {
		t.Errorf("beside filling its cache, the controller also read: %s", reads)
	}
}

// TestPodsInATerminatingNamespace tests pods whose namespace is being deleted: they are labelled as long as they exist,
// because they may still serve, and are deleted without errors and without retries.
func TestPodsInATerminatingNamespace(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "podsdoomed")
	f := s.newFence()
	node := s.AddNodes("a")[0]
	s.CreateReady("demo")
	const count = 20
	each := func(do func(name string)) {
		for i := range count {
			do(fmt.Sprintf("pod-%d", i))
		}
	}
	each(func(name string) { s.CreatePod(name, node, app, withFinalizer) })
	each(func(name string) { s.WaitLabelled(name, node) })
	s.deleteNamespace()
	s.Eventually("the pods are being deleted", func(ctx context.Context) error {
		pods, err := s.PodClient().List(ctx, metav1.ListOptions{})
		doomed := 0
		for i := range pods.Items {
			if pods.Items[i].DeletionTimestamp != nil {
				doomed++
			}
		}
		if err != nil {
			return err
		}
		return framework.Equal("pods", doomed, count)
	})
	f.passAll()
	s.ResetCount()
	each(func(name string) { s.PatchPod(name, `{"metadata":{"labels":{"vm/rack":null}}}`) })
	each(func(name string) { s.WaitLabelled(name, node) })
	f.passPods()
	s.WantWrites("pods", fmt.Sprintf("%d patch pods 200", count))

	s.ResetCount()
	each(func(name string) { s.PatchPod(name, `{"metadata":{"finalizers":null,"labels":{"vm/rack":null}}}`) })
	s.WaitNamespaceGone()
	f.passAll()
	if tries := s.Requests().Resource("pods").Writes(); len(tries) > count {
		s.Fatalf("the controller's writes of %d pods that were gone: %s", count, tries)
	}
	if errs := s.errorsInLog(); len(errs) > 0 {
		s.Fatalf("%d errors in the log about a namespace that was being deleted, the first: %s", len(errs), errs[0])
	}
}

func (s *scene) deleteNamespace() {
	s.T.Helper()
	s.Must(s.Kube.CoreV1().Namespaces().Delete(s.Ctx(), s.Namespace, metav1.DeleteOptions{}))
}

// errorsInLog returns the errors in the controllers' logs about objects of the scene's namespace.
func (s *scene) errorsInLog() (lines []string) {
	for _, controller := range s.Controllers() {
		for _, line := range controller.LogLines(s.Namespace + "/") {
			if strings.HasPrefix(line, "E") {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// TestPodsWrittenByOthers tests that a pod that others write all the time gets its label, that none of their writes is
// lost, and that the controller's writes do not fail because of theirs.
func TestPodsWrittenByOthers(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "others")
	f := s.newFence()
	node := s.AddNodes("a")[0]
	s.CreatePod("pod", node, app)
	patch := func(patchType types.PatchType) func(key, value string) error {
		return func(key, value string) error {
			labels := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
			_, err := s.PodClient().Patch(s.Ctx(), "pod", patchType, []byte(labels), metav1.PatchOptions{})
			return err
		}
	}
	writers := map[string]func(key, value string) error{
		"example.com/merges":               patch(types.MergePatchType),
		"example.com/merges-strategically": patch(types.StrategicMergePatchType),
		// This reads, changes and writes the whole pod, and begins again after a conflict.
		"example.com/updates": func(key, value string) error {
			return framework.RetryConflicts(func() error {
				pod, err := s.PodClient().Get(s.Ctx(), "pod", metav1.GetOptions{})
				if err != nil {
					return err
				}
				pod.Labels[key] = value
				_, err = s.PodClient().Update(s.Ctx(), pod, metav1.UpdateOptions{})
				return err
			})
		},
	}
	s.ResetCount()
	var writing sync.WaitGroup
	var isOver atomic.Bool
	last := map[string]*atomic.Int64{} // what each has written
	for key, write := range writers {
		count := &atomic.Int64{}
		last[key] = count
		writing.Go(func() {
			for !isOver.Load() {
				if err := write(key, fmt.Sprint(count.Add(1))); err != nil {
					t.Errorf("%s: %v", key, err)
					return
				}
			}
		})
	}
	t.Cleanup(func() { isOver.Store(true); writing.Wait() })
	s.Create("demo")
	s.WaitLabelled("pod", node)
	f.passPods() // They keep writing meanwhile.
	isOver.Store(true)
	writing.Wait()
	want := map[string]string{"app": "demo", nodeLabel: node}
	for key, count := range last {
		want[key] = fmt.Sprint(count.Load())
	}
	f.passPods()
	if err := framework.Equal("labels", s.GetPod("pod").Labels, want); err != nil {
		t.Error(err)
	}
	// It may be more than one: the watch may lag, and send an earlier change.
	if own := s.Requests().Resource("pods").Writes(); len(own) == 0 || len(own.Where(framework.Failed)) > 0 {
		s.Fatalf("the controller's writes of the pod: %s; want 1, or very few", own)
	}
}
