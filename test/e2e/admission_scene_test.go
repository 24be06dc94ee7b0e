package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	nodeLabel = v1alpha1.DefaultNodeLabelKey
	// noScheduler is the scheduler of pods that only the test binds.
	noScheduler = "none"
	// admissionLabels select all objects of artifacts/admission, as its documentation says.
	admissionLabels = "app.kubernetes.io/name=local-service-controller"
	// admissionKinds are the kinds of artifacts/admission, in the order in which they are best deleted.
	admissionKinds = "mutatingadmissionpolicybindings,mutatingadmissionpolicies,validatingadmissionpolicybindings,validatingadmissionpolicies"
)

// newAdmissionScene is a scene in a cluster that no other test uses at the same time: admission policies concern all of
// it.
func newAdmissionScene(t *testing.T, opts framework.ClusterOptions) *scene {
	t.Helper()
	s := &scene{framework.NewCluster(t, opts).NewScene(t, "admission")}
	s.WaitServiceAccount()
	return s
}

// newSharedAdmissionScene is a scene in the cluster of all tests, for one that does not run in parallel. No policy is
// left when the test ends.
func newSharedAdmissionScene(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	t.Cleanup(func() {
		if _, err := s.Kubectl(context.Background(), "delete", "-l", admissionLabels, admissionKinds); err != nil {
			t.Error(err)
		}
	})
	return s
}

// as is a client with somebody else's permissions.
func (s *scene) as(user string, groups ...string) kubernetes.Interface {
	s.T.Helper()
	config := rest.CopyConfig(s.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	client, err := kubernetes.NewForConfig(config)
	s.Must(err)
	return client
}

// createNode creates a node that no machine is behind, and that the scheduler takes for ready. The cluster must run
// without the node lifecycle controller, which knows better.
func (s *scene) createNode(name string) {
	s.T.Helper()
	room := corev1.ResourceList{
		corev1.ResourcePods:   resource.MustParse("1000"),
		corev1.ResourceCPU:    resource.MustParse("100"),
		corev1.ResourceMemory: resource.MustParse("1Ti"),
	}
	node, err := s.Kube.CoreV1().Nodes().Create(s.Ctx(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test"}},
		},
	}, metav1.CreateOptions{})
	s.Must(err)
	if len(node.Spec.Taints) > 0 { // An admission plug-in of Kubernetes makes every new node wait for that controller.
		_, err = s.Kube.CoreV1().Nodes().Patch(s.Ctx(), name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
		s.Must(err)
	}
}

// barePod is a pod of the demo app that nothing but its node's kubelet, if there is one, would run.
func barePod(name, node string, labels map[string]string) *corev1.Pod {
	all := map[string]string{"app": "demo"}
	for k, v := range labels {
		all[k] = v
	}
	template := podTemplate()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all}, Spec: template.Spec}
	pod.Spec.NodeName = node
	pod.Spec.SchedulerName = noScheduler
	return pod
}

// wantLabel fails unless a pod's node label is this, or it has none with "".
func (s *scene) wantLabel(pod *corev1.Pod, want string) {
	s.T.Helper()
	if got, has := pod.Labels[nodeLabel]; got != want || has != (want != "") {
		s.T.Errorf("pod %s, with the node %q, has the labels %v; want the node label %q", pod.Name, pod.Spec.NodeName, pod.Labels, want)
	}
}

// admissionDir is artifacts/admission.
func admissionDir(t testing.TB) string {
	t.Helper()
	return framework.MustModuleFile(t, "artifacts", "admission")
}

// installPolicies does what the documentation says, and waits until all policies work.
func (s *scene) installPolicies() {
	s.T.Helper()
	s.applyPolicies(admissionDir(s.T), nodeLabel)
}

func (s *scene) applyPolicies(dir, key string) {
	s.T.Helper()
	s.MustKubectl("apply", "--validate=strict", "-k", dir)
	s.Eventually("all policies work", func(ctx context.Context) error {
		p, err := s.probe(ctx, key)
		if err == nil && p != (probed{true, true, true}) {
			err = fmt.Errorf("those that work: %+v", p)
		}
		return err
	})
}

// removePolicies does what the documentation says, and waits until no policy works any more.
func (s *scene) removePolicies() {
	s.T.Helper()
	s.MustKubectl("delete", "-l", admissionLabels, admissionKinds)
	s.Eventually("no policy works", func(ctx context.Context) error {
		p, err := s.probe(ctx, nodeLabel)
		if err == nil && p != (probed{}) {
			err = fmt.Errorf("those that work: %+v", p)
		}
		return err
	})
}

// probed says which policies work.
type probed struct{ atBinding, atCreation, guard bool }

// probe finds out which policies work. What it writes is in a namespace of its own, on a node that there is not.
func (s *scene) probe(ctx context.Context, key string) (p probed, err error) {
	const namespace, node = "default", "probe"
	pods := s.Kube.CoreV1().Pods(namespace)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	created, err := pods.Create(ctx, barePod("probe", node, nil), dry)
	if err != nil {
		return p, err
	}
	p.atCreation = created.Labels[key] == node
	pod := barePod("", "", nil)
	pod.GenerateName = "probe-"
	if pod, err = pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return p, err
	}
	defer func() {
		err = errors.Join(err, pods.Delete(context.WithoutCancel(ctx), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	}()
	if err := pods.Bind(ctx, framework.NewBinding(pod.Name, node, nil), metav1.CreateOptions{}); err != nil {
		return p, err
	}
	bound, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return p, err
	}
	p.atBinding = bound.Labels[key] == node
	_, err = pods.Patch(ctx, pod.Name, types.MergePatchType, labelPatch(key, "false"), metav1.PatchOptions{DryRun: dry.DryRun})
	if apierrors.IsForbidden(err) {
		p.guard, err = true, nil
	}
	return p, err
}

func labelPatch(key, value string) []byte {
	return fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, key, value)
}

// policies are the names of all admission policies and their bindings in the cluster, with their kinds.
func (s *scene) policies() []string {
	s.T.Helper()
	var names []string
	for kind := range strings.SplitSeq(admissionKinds, ",") {
		list, err := s.Dynamic.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: kind}).List(s.Ctx(), metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // An older server.
		}
		s.Must(err)
		s.Must(list.EachListItem(func(o runtime.Object) error {
			names = append(names, kind+"/"+o.(*unstructured.Unstructured).GetName())
			return nil
		}))
	}
	slices.Sort(names)
	return names
}

// podWrites are the requests by which controllers, ours, have changed pods of this scene.
func (s *scene) podWrites() framework.Requests {
	return s.AllRequests().ByController().Writes().Namespace(s.Namespace).
		Where(func(r *framework.Request) bool { return r.ObjectRef.Resource == "pods" })
}

// podWatch is what a watch has shown of the pods of a namespace.
type podWatch struct {
	mu        sync.Mutex
	scheduled map[string]string    // the nodes of the pods, by name, also of those that are gone
	uids      map[string]types.UID // by name
	wrong     []string             // what should not have been seen
}

// watchPods watches all pods of the scene, until the end of the test, from before there are any.
func (s *scene) watchPods() *podWatch {
	s.T.Helper()
	pods := s.PodClient()
	list, err := pods.List(s.Ctx(), metav1.ListOptions{})
	s.Must(err)
	if len(list.Items) > 0 {
		s.T.Fatalf("there are pods already: %d", len(list.Items))
	}
	// The server ends a watch that does not keep up; this goes on where that one has ended.
	w, err := watchtools.NewRetryWatcherWithContext(s.Ctx(), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, options)
		},
	})
	s.Must(err)
	seen := &podWatch{scheduled: map[string]string{}, uids: map[string]types.UID{}}
	var watching sync.WaitGroup
	watching.Go(func() {
		for e := range w.ResultChan() {
			seen.see(e)
		}
	})
	s.T.Cleanup(func() { w.Stop(); watching.Wait() })
	return seen
}

func (w *podWatch) see(e watch.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pod, ok := e.Object.(*corev1.Pod)
	switch {
	case e.Type == watch.Bookmark:
		return
	case !ok:
		w.wrong = append(w.wrong, fmt.Sprintf("%s %v", e.Type, e.Object))
		return
	}
	// A kubelet that took our label for a difference would make the mirror of a static pod anew for ever.
	if uid, known := w.uids[pod.Name]; known && uid != pod.UID {
		w.wrong = append(w.wrong, fmt.Sprintf("%s %s: another pod of that name, with the labels %v", e.Type, pod.Name, pod.Labels))
	}
	w.uids[pod.Name] = pod.UID
	if pod.Spec.NodeName != "" {
		w.scheduled[pod.Name] = pod.Spec.NodeName
	}
	if pod.Labels[nodeLabel] != pod.Spec.NodeName {
		w.wrong = append(w.wrong, fmt.Sprintf("%s %s: node %q, labels %v", e.Type, pod.Name, pod.Spec.NodeName, pod.Labels))
	}
}

// count is how many pods have been seen with a node.
func (w *podWatch) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.scheduled)
}

// check fails if any pod was seen with a node but not its label, or with a label but not that node, or was replaced.
func (w *podWatch) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wrong := range w.wrong[:min(len(w.wrong), 10)] {
		t.Errorf("seen: %s", wrong)
	}
	if len(w.wrong) > 10 {
		t.Errorf("and so on, %d in all", len(w.wrong))
	}
}

// changedPolicies is a copy of artifacts/admission in which a text is replaced, as its documentation says to.
func changedPolicies(t testing.TB, before, after string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	files, err := filepath.Glob(filepath.Join(admissionDir(t), "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), []byte(strings.ReplaceAll(string(data), before, after)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
