package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// hold is a finalizer of nobody, which keeps an object that is deleted until the test takes it away.
const hold = "example.com/hold"

func withFinalizer(pod *corev1.Pod) { pod.Finalizers = []string{hold} }

func onHostNetwork(pod *corev1.Pod) {
	pod.Spec.HostNetwork = true
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 8080}}
}

// podsAsKubelet is a client for what the kubelet of a node does about pods of the scene. The API server lets it do no
// more than a kubelet may.
func (s *scene) podsAsKubelet(node string) corev1client.PodInterface {
	s.T.Helper()
	config := rest.CopyConfig(s.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + node, Groups: []string{"system:nodes"}}
	client, err := kubernetes.NewForConfig(config)
	s.Must(err)
	return client.CoreV1().Pods(s.Namespace)
}

// createMirrorPod does what a kubelet does for a static pod, which only it knows: it shows it to the API server.
func (s *scene) createMirrorPod(name, node string, labels map[string]string) *corev1.Pod {
	s.T.Helper()
	const hash = "0123456789abcdef0123456789abcdef"
	pod, err := s.podsAsKubelet(node).Create(s.Ctx(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: labels,
			Annotations: map[string]string{
				corev1.MirrorPodAnnotationKey: hash,
				"kubernetes.io/config.hash":   hash,
				"kubernetes.io/config.source": "file",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: s.NodeUID(node), Controller: new(true)}},
		},
		Spec: corev1.PodSpec{
			NodeName:    node,
			Containers:  []corev1.Container{{Name: "app", Image: "app"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
		},
	}, metav1.CreateOptions{})
	s.Must(err)
	return pod
}

// TestPodsFromBefore tests a controller that is started in a cluster that is at work already: the pods of each kind
// that a LocalService selects are written once, and no others.
func TestPodsFromBefore(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "before")
	nodes := s.AddNodes("a", "b", "c")
	app := map[string]string{"app": "demo"}
	s.Create("demo")
	labelled := map[string]string{} // the pods to label, each with its node
	const count = 30
	for i := range count {
		name := fmt.Sprintf("pod-%d", i)
		labelled[name] = nodes[i%len(nodes)]
		s.CreatePod(name, labelled[name], app)
	}
	s.CreatePod("bound", "", app)
	s.BindPod("bound", nodes[0], nil)
	s.CreatePod("host-network", nodes[1], app, onHostNetwork)
	s.createMirrorPod("static", nodes[2], app)
	s.CreatePod("stale", nodes[0], map[string]string{"app": "demo", nodeLabel: nodes[1]})
	s.CreatePod("running", nodes[1], app)
	s.PatchPod("running", `{"status":{"phase":"Running"}}`, "status")
	s.CreatePod("terminating", nodes[2], app, withFinalizer)
	s.Must(s.PodClient().Delete(s.Ctx(), "terminating", metav1.DeleteOptions{}))
	for name, node := range map[string]string{"bound": nodes[0], "host-network": nodes[1], "static": nodes[2],
		"stale": nodes[0], "running": nodes[1], "terminating": nodes[2]} {
		labelled[name] = node
	}
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
		s.wantPodUntouched(pod)
	}
	if reads := s.Requests().Resource("pods").Verb("get", "list", "watch"); len(reads) > 0 {
		t.Errorf("beside filling its cache, the controller also read: %s", reads)
	}
}

// TestPodsCompleted tests that a pod that completes keeps the label that it has, and is of no interest from then on.
func TestPodsCompleted(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{"Succeeded", "Failed"} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			s, f, node := newLabelledPod(t, "completed")
			s.PatchPod("pod", fmt.Sprintf(`{"status":{"phase":%q}}`, phase), "status")
			f.passPods()
			if err := framework.Equal("label", s.GetPod("pod").Labels[nodeLabel], node); err != nil {
				t.Error(err)
			}
			s.PatchPod("pod", `{"metadata":{"labels":{"vm/rack":"elsewhere"}}}`)
			f.passPods()
			// Nor does a LocalService that comes to select it make a difference.
			s.CreateReady("demo2", func(ls *v1alpha1.LocalService) {
				ls.Spec.Selector = map[string]string{"app": "demo"}
			})
			f.passLocalServices()
			f.passPods()
			s.WantWrites("pods", "none")
			if err := framework.Equal("label", s.GetPod("pod").Labels[nodeLabel], "elsewhere"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPodsInATerminatingNamespace tests pods whose namespace is being deleted: they are labelled as long as they are
// there, because they may still serve, and they go without errors and without retries.
func TestPodsInATerminatingNamespace(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "podsdoomed")
	f := s.newFence()
	node := s.AddNodes("a")[0]
	s.CreateReady("demo")
	const count = 20
	name := func(i int) string { return fmt.Sprintf("pod-%d", i) }
	for i := range count {
		s.CreatePod(name(i), node, map[string]string{"app": "demo"}, withFinalizer)
	}
	for i := range count {
		s.WaitLabelled(name(i), node)
	}
	s.deleteNamespace()
	s.Eventually("the pods are being deleted", func(ctx context.Context) error {
		pods, err := s.PodClient().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		doomed := 0
		for i := range pods.Items {
			if pods.Items[i].DeletionTimestamp != nil {
				doomed++
			}
		}
		return framework.Equal("pods", doomed, count)
	})
	f.passAll()
	s.ResetCount()
	for i := range count {
		s.PatchPod(name(i), `{"metadata":{"labels":{"vm/rack":null}}}`)
	}
	for i := range count {
		s.WaitLabelled(name(i), node)
	}
	f.passPods()
	s.WantWrites("pods", fmt.Sprintf("%d patch pods 200", count))

	s.ResetCount()
	for i := range count {
		s.PatchPod(name(i), `{"metadata":{"finalizers":null,"labels":{"vm/rack":null}}}`)
	}
	for i := range count {
		s.WaitPodGone(name(i))
	}
	s.WaitNamespaceGone()
	f.passAll()
	s.wantNoRetries(count)
	if errs := s.errorsInLog(); len(errs) > 0 {
		s.Fatalf("%d errors in the log about a namespace that was being deleted, the first: %s", len(errs), errs[0])
	}
}

// TestPodsGoneMeanwhile tests a controller that hears of pods when they are gone already, with their namespace: it
// tries none again.
func TestPodsGoneMeanwhile(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "podsgone")
	controller := s.NewController(t, "-v=4", "-label-all-pods")
	f := s.newFence()
	node := s.AddNodes("a")[0]
	const count = 100
	create := func(i int) error {
		_, err := s.PodClient().Create(s.Ctx(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i), Labels: map[string]string{"app": "demo"}},
			Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: new(int64),
				Containers: []corev1.Container{{Name: "app", Image: "app"}}},
		}, metav1.CreateOptions{})
		return err
	}
	s.CreatePod("first", node, nil) // When this is possible, the namespace is complete.
	f.passAll()
	resume := s.pause(controller)
	s.ResetCount()
	s.InParallel(count, create)
	s.deleteNamespace()
	s.WaitNamespaceGone()
	resume()
	f.passAll()
	tries := s.Requests().Resource("pods").Writes()
	t.Logf("the controller's writes of pods that were gone: %s", tries)
	s.wantNoRetries(count)
	if errs := s.errorsInLog(); len(errs) > 0 {
		s.Fatalf("%d errors in the log about pods that were gone, the first: %s", len(errs), errs[0])
	}
}

func (s *scene) deleteNamespace() {
	s.T.Helper()
	s.Must(s.Kube.CoreV1().Namespaces().Delete(s.Ctx(), s.Namespace, metav1.DeleteOptions{}))
}

// wantNoRetries fails if the controller has tried to write a pod more than once for each time that it has heard of it
// since the count was reset: when it was there at first, or made, and when others wrote it.
func (s *scene) wantNoRetries(pods int) {
	s.T.Helper()
	tries := map[string]int{}
	writes := s.Requests().Resource("pods").Writes()
	for i := range writes {
		tries[writes[i].ObjectRef.Name]++
	}
	if len(tries) > pods {
		s.Fatalf("the controller's writes of pods: %s; want no more than %d pods", writes, pods)
	}
	all := s.AllRequests().Namespace(s.Namespace).Writes()
	for pod, n := range tries {
		if changes := all.Name(pod).Where(framework.Succeeded); n > 1+len(changes) {
			s.Fatalf("the controller tried to write pod %s %d times; all writes of it: %s", pod, n, all.Name(pod))
		}
	}
}

// errorsInLog are the errors in the controllers' logs about objects of the scene's namespace.
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
