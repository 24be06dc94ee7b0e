package framework

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/workqueue"

	typed "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned/typed/localservice/v1alpha1"
)

const (
	// SceneLabel is the label of nodes that holds their scene.
	SceneLabel = "scene"
	// parallelRequests is how many requests InParallel makes at a time.
	parallelRequests = 16
)

// scenes counts scenes, to give each a unique name, even with -count.
var scenes atomic.Int32

// Scene holds what a test works in: a namespace of a cluster, and nodes that only the LocalServices of this namespace
// select. Its methods fail the test on errors that have nothing to do with what is tested.
type Scene struct {
	*Cluster
	T         testing.TB
	Namespace string

	mark Mark
}

// NewScene makes a scene, whose name begins with a word about the test. At the end of the test, its LocalServices and
// nodes are deleted, because they would load a controller; the namespace ends with the cluster.
func (c *Cluster) NewScene(t testing.TB, word string) *Scene {
	t.Helper()
	s := &Scene{Cluster: c, T: t, Namespace: fmt.Sprintf("%s-%d", word, scenes.Add(1))}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}
	_, err := c.Kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	s.Must(err)
	t.Cleanup(s.leave)
	s.ResetCount()
	return s
}

func (s *Scene) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), DefaultTimeout)
	defer cancel()
	nodes := metav1.ListOptions{LabelSelector: SceneLabel + "=" + s.Namespace}
	err := errors.Join(
		s.LocalServiceClient().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		s.Kube.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, nodes),
	)
	if err != nil && s.Running() {
		s.T.Logf("clean up after the test: %v", err)
	}
}

// In returns the scene for a subtest.
func (s *Scene) In(t testing.TB) *Scene {
	sub := *s
	sub.T = t
	return &sub
}

// Ctx returns a context that is done when the test ends.
func (s *Scene) Ctx() context.Context { return s.T.Context() }

// Must fails the test, with the state of the scene, on an error.
func (s *Scene) Must(err error) {
	s.T.Helper()
	if err != nil {
		s.Fatalf("%v", err)
	}
}

// Fatalf fails the test with the state of the scene.
func (s *Scene) Fatalf(format string, args ...any) {
	s.T.Helper()
	s.T.Fatalf("%s\n%s", fmt.Sprintf(format, args...), s.Describe(s.Namespace))
}

// Eventually polls until check returns nil, and fails with the state of the scene if that takes too long.
func (s *Scene) Eventually(what string, check func(ctx context.Context) error) {
	s.T.Helper()
	s.Cluster.Eventually(s.T, s.Namespace, what, check)
}

// MustKubectl runs kubectl in the scene's namespace.
func (s *Scene) MustKubectl(args ...string) string {
	s.T.Helper()
	out, err := s.Kubectl(s.Ctx(), append([]string{"--namespace=" + s.Namespace}, args...)...)
	s.Must(err)
	return out
}

// InParallel calls a function for each number below count, several at a time, and fails the test on their errors.
func (s *Scene) InParallel(count int, do func(i int) error) {
	s.T.Helper()
	errs := make([]error, count)
	workqueue.ParallelizeUntil(s.Ctx(), parallelRequests, count, func(i int) { errs[i] = do(i) })
	s.Must(errors.Join(errs...))
}

// WaitServiceAccount waits until the namespace has its service account, which pods need and another controller creates.
func (s *Scene) WaitServiceAccount() {
	s.T.Helper()
	s.Eventually("the namespace has a service account", func(ctx context.Context) error {
		_, err := s.Kube.CoreV1().ServiceAccounts(s.Namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// ResetCount restarts counting now.
func (s *Scene) ResetCount() { s.mark = s.Audit.Mark() }

// AllRequests returns all clients' requests since the count was last reset.
func (s *Scene) AllRequests() Requests { return s.Audit.Since(s.mark) }

// Requests returns the controllers' requests about this namespace since the count was last reset.
func (s *Scene) Requests() Requests { return s.AllRequests().ByController().Namespace(s.Namespace) }

// WantWrites fails unless the controllers' writes of a resource since the count was reset are exactly these.
func (s *Scene) WantWrites(resource, want string) {
	s.T.Helper()
	if got := s.Requests().Resource(resource).Writes().String(); got != want {
		s.Fatalf("the controller's writes of %s: %s; want %s", resource, got, want)
	}
}

// WantNoWrites fails if controllers have written anything since the count was reset.
func (s *Scene) WantNoWrites(when string) {
	s.T.Helper()
	if writes := s.Requests().Writes(); len(writes) > 0 {
		s.Fatalf("%s, the controller wrote: %s", when, writes)
	}
}

// LocalServiceClient returns the client for the LocalServices of the scene.
func (s *Scene) LocalServiceClient() typed.LocalServiceInterface {
	return s.LocalServices.LocalserviceV1alpha1().LocalServices(s.Namespace)
}

// ServiceClient returns the client for the Services of the scene.
func (s *Scene) ServiceClient() corev1client.ServiceInterface {
	return s.Kube.CoreV1().Services(s.Namespace)
}

// PodClient returns the client for the pods of the scene.
func (s *Scene) PodClient() corev1client.PodInterface { return s.Kube.CoreV1().Pods(s.Namespace) }

// NodeName returns the full name of a node of this scene.
func (s *Scene) NodeName(name string) string { return s.Namespace + "-" + name }

// AddNodes creates nodes, and returns their full names.
func (s *Scene) AddNodes(names ...string) []string {
	s.T.Helper()
	for i, name := range names {
		names[i] = s.NodeName(name)
		s.CreateNode(names[i], nil)
	}
	return names
}

// CreateNode creates a node with labels in addition to that of the scene. name is the full name.
func (s *Scene) CreateNode(name string, more map[string]string) {
	s.T.Helper()
	labels := map[string]string{SceneLabel: s.Namespace}
	maps.Copy(labels, more)
	_, err := s.Kube.CoreV1().Nodes().Create(s.Ctx(), NewNode(name, labels), metav1.CreateOptions{})
	s.Must(err)
}

// PatchNode changes a node with a JSON merge patch.
func (s *Scene) PatchNode(name, patch string, subresources ...string) {
	s.T.Helper()
	nodes, options := s.Kube.CoreV1().Nodes(), metav1.PatchOptions{}
	_, err := nodes.Patch(s.Ctx(), name, types.MergePatchType, []byte(patch), options, subresources...)
	s.Must(err)
}

// DeleteNode deletes a node.
func (s *Scene) DeleteNode(name string) {
	s.T.Helper()
	s.Must(s.Kube.CoreV1().Nodes().Delete(s.Ctx(), name, metav1.DeleteOptions{}))
}
