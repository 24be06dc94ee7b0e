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

// admissionScene is a namespace in a cluster that no other test uses at the same time: admission policies concern all
// of it.
type admissionScene struct {
	*framework.Cluster

	t         *testing.T
	namespace string
	mark      framework.Mark
}

func newAdmissionScene(t *testing.T, opts framework.ClusterOptions) *admissionScene {
	t.Helper()
	s := &admissionScene{Cluster: framework.NewCluster(t, opts), t: t, namespace: "demo"}
	s.createNamespace(s.namespace)
	s.mark = s.Audit.Mark()
	return s
}

// newSharedAdmissionScene is a scene in the cluster of all tests, for one that does not run in parallel. No policy is
// left when the test ends.
func newSharedAdmissionScene(t *testing.T) *admissionScene {
	t.Helper()
	s := &admissionScene{Cluster: cluster, t: t, namespace: newScene(t).namespace, mark: cluster.Audit.Mark()}
	t.Cleanup(func() {
		if _, err := s.Kubectl(context.Background(), "delete", "-l", admissionLabels, admissionKinds); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *admissionScene) ctx() context.Context { return s.t.Context() }

// in is the same scene for a subtest.
func (s *admissionScene) in(t *testing.T) *admissionScene {
	sub := *s
	sub.t = t
	return &sub
}

func (s *admissionScene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%v\n%s", err, s.Describe(s.namespace))
	}
}

func (s *admissionScene) eventually(what string, check func(ctx context.Context) error) {
	s.t.Helper()
	s.EventuallyWithin(s.t, patience, s.namespace, what, check)
}

func (s *admissionScene) kubectl(args ...string) string {
	s.t.Helper()
	out, err := s.Kubectl(s.ctx(), append([]string{"--namespace=" + s.namespace}, args...)...)
	s.must(err)
	return out
}

// createNamespace creates a namespace that pods can be created in.
func (s *admissionScene) createNamespace(name string) {
	s.t.Helper()
	_, err := s.Kube.CoreV1().Namespaces().Create(s.ctx(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	s.must(err)
	s.eventually("the namespace has a service account", func(ctx context.Context) error {
		_, err := s.Kube.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// as is a client with somebody else's permissions.
func (s *admissionScene) as(user string, groups ...string) kubernetes.Interface {
	s.t.Helper()
	config := rest.CopyConfig(s.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	client, err := kubernetes.NewForConfig(config)
	s.must(err)
	return client
}

// createNode creates a node that no machine is behind, and that the scheduler takes for ready. The cluster must run
// without the node lifecycle controller, which knows better.
func (s *admissionScene) createNode(name string) {
	s.t.Helper()
	room := corev1.ResourceList{
		corev1.ResourcePods:   resource.MustParse("1000"),
		corev1.ResourceCPU:    resource.MustParse("100"),
		corev1.ResourceMemory: resource.MustParse("1Ti"),
	}
	node, err := s.Kube.CoreV1().Nodes().Create(s.ctx(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test"}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	if len(node.Spec.Taints) > 0 { // An admission plug-in of Kubernetes makes every new node wait for that controller.
		_, err = s.Kube.CoreV1().Nodes().Patch(s.ctx(), name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
		s.must(err)
	}
}

// localService creates a LocalService for the demo app's pods.
func (s *admissionScene) localService() {
	s.t.Helper()
	_, err := s.LocalServices.LocalserviceV1alpha1().LocalServices(s.namespace).Create(s.ctx(), &v1alpha1.LocalService{
		ObjectMeta: metav1.ObjectMeta{Name: "demo"},
		Spec: v1alpha1.LocalServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: app, Ports: []v1alpha1.ServicePort{{Name: "http", Port: appPort}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
}

// barePod is a pod of the demo app that nothing but its node's kubelet, if there is one, would run.
func barePod(name, node string, labels map[string]string) *corev1.Pod {
	all := map[string]string{"app": "demo"}
	for k, v := range labels {
		all[k] = v
	}
	template := podTemplate()
	template.Spec.TopologySpreadConstraints = nil
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all}, Spec: template.Spec}
	pod.Spec.NodeName = node
	pod.Spec.SchedulerName = noScheduler
	return pod
}

func (s *admissionScene) createPod(pod *corev1.Pod) *corev1.Pod {
	s.t.Helper()
	created, err := s.Kube.CoreV1().Pods(s.namespace).Create(s.ctx(), pod, metav1.CreateOptions{})
	s.must(err)
	return created
}

func (s *admissionScene) pod(name string) *corev1.Pod {
	s.t.Helper()
	pod, err := s.Kube.CoreV1().Pods(s.namespace).Get(s.ctx(), name, metav1.GetOptions{})
	s.must(err)
	return pod
}

func binding(pod, node string, labels map[string]string) *corev1.Binding {
	return &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod, Labels: labels}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
}

func (s *admissionScene) bind(pod, node string, labels map[string]string) {
	s.t.Helper()
	s.must(s.Kube.CoreV1().Pods(s.namespace).Bind(s.ctx(), binding(pod, node, labels), metav1.CreateOptions{}))
}

// wantLabel fails unless a pod's node label is this, or it has none with "".
func (s *admissionScene) wantLabel(pod *corev1.Pod, want string) {
	s.t.Helper()
	if got, has := pod.Labels[nodeLabel]; got != want || has != (want != "") {
		s.t.Errorf("pod %s, with the node %q, has the labels %v; want the node label %q", pod.Name, pod.Spec.NodeName, pod.Labels, want)
	}
}

// admissionDir is artifacts/admission.
func admissionDir(t *testing.T) string {
	t.Helper()
	path, err := framework.ModuleFile("artifacts", "admission")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// installPolicies does what the documentation says, and waits until all policies work.
func (s *admissionScene) installPolicies() {
	s.t.Helper()
	s.applyPolicies(admissionDir(s.t), nodeLabel)
}

func (s *admissionScene) applyPolicies(dir, key string) {
	s.t.Helper()
	s.kubectl("apply", "--validate=strict", "-k", dir)
	s.eventually("all policies work", func(ctx context.Context) error {
		p, err := s.probe(ctx, key)
		if err == nil && p != (probed{true, true, true}) {
			err = fmt.Errorf("those that work: %+v", p)
		}
		return err
	})
}

// removePolicies does what the documentation says, and waits until no policy works any more.
func (s *admissionScene) removePolicies() {
	s.t.Helper()
	s.kubectl("delete", "-l", admissionLabels, admissionKinds)
	s.eventually("no policy works", func(ctx context.Context) error {
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
func (s *admissionScene) probe(ctx context.Context, key string) (p probed, err error) {
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
	if err := pods.Bind(ctx, binding(pod.Name, node, nil), metav1.CreateOptions{}); err != nil {
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
func (s *admissionScene) policies() []string {
	s.t.Helper()
	var names []string
	for kind := range strings.SplitSeq(admissionKinds, ",") {
		list, err := s.Dynamic.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: kind}).List(s.ctx(), metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // An older server.
		}
		s.must(err)
		s.must(list.EachListItem(func(o runtime.Object) error {
			names = append(names, kind+"/"+o.(*unstructured.Unstructured).GetName())
			return nil
		}))
	}
	slices.Sort(names)
	return names
}

// podWrites are the requests by which controllers, ours, have changed pods of this scene.
func (s *admissionScene) podWrites() framework.Requests {
	return s.Audit.Since(s.mark).ByController().Writes().Namespace(s.namespace).
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
func (s *admissionScene) watchPods() *podWatch {
	s.t.Helper()
	pods := s.Kube.CoreV1().Pods(s.namespace)
	list, err := pods.List(s.ctx(), metav1.ListOptions{})
	s.must(err)
	if len(list.Items) > 0 {
		s.t.Fatalf("there are pods already: %d", len(list.Items))
	}
	// The server ends a watch that does not keep up; this goes on where that one has ended.
	w, err := watchtools.NewRetryWatcherWithContext(s.ctx(), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, options)
		},
	})
	s.must(err)
	seen := &podWatch{scheduled: map[string]string{}, uids: map[string]types.UID{}}
	var watching sync.WaitGroup
	watching.Go(func() {
		for e := range w.ResultChan() {
			seen.see(e)
		}
	})
	s.t.Cleanup(func() { w.Stop(); watching.Wait() })
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
func changedPolicies(t *testing.T, before, after string) (dir string) {
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
