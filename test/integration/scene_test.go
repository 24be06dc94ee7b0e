package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	localserviceclient "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned/typed/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	// sceneLabel is the label of nodes that says which scene they belong to.
	sceneLabel = "scene"
	// nodeLabel is the label that this program is about.
	nodeLabel = v1alpha1.DefaultNodeLabelKey
	// cleanupTimeout bounds what is done after a test.
	cleanupTimeout = 20 * time.Second
)

// scenes counts scenes, to give each a name that no other has, also with -count.
var scenes atomic.Int32

// scene is where a test plays: a namespace, and nodes that only the LocalServices of this namespace select.
type scene struct {
	*framework.Cluster
	t         *testing.T
	namespace string
	// mark is the position in the audit log that counting begins at.
	mark framework.Mark
}

// newScene makes a namespace for a test. Its name begins with a word about the test.
func newScene(t *testing.T, cluster *framework.Cluster, word string) *scene {
	t.Helper()
	s := makeScene(t, cluster, word)
	t.Cleanup(s.leave)
	return s
}

// makeScene makes a namespace that outlives the test.
func makeScene(t *testing.T, cluster *framework.Cluster, word string) *scene {
	t.Helper()
	s := &scene{Cluster: cluster, t: t, namespace: fmt.Sprintf("%s-%d", word, scenes.Add(1))}
	s.createNamespace(s.namespace)
	s.resetCount()
	return s
}

func (s *scene) createNamespace(name string) {
	s.t.Helper()
	_, err := s.Kube.CoreV1().Namespaces().Create(s.ctx(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	s.must(err)
}

// leave removes what would keep the controller busy. The namespace itself ends with the cluster.
func (s *scene) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	err := errors.Join(
		s.localServices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		s.Kube.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: sceneLabel + "=" + s.namespace}),
	)
	if err != nil && s.Running() {
		s.t.Logf("clean up after the test: %v", err)
	}
}

func (s *scene) ctx() context.Context { return s.t.Context() }

// must fails the test on an error that has nothing to do with what is tested.
func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) localServices() localserviceclient.LocalServiceInterface {
	return s.LocalServices.LocalserviceV1alpha1().LocalServices(s.namespace)
}

func (s *scene) services() corev1client.ServiceInterface {
	return s.Kube.CoreV1().Services(s.namespace)
}

func (s *scene) pods() corev1client.PodInterface { return s.Kube.CoreV1().Pods(s.namespace) }

// eventually polls until check returns nil, and fails with the state of the scene if that takes too long.
func (s *scene) eventually(what string, check func(ctx context.Context) error) {
	s.t.Helper()
	s.Eventually(s.t, s.namespace, what, check)
}

// fatalf fails the test with the state of the scene.
func (s *scene) fatalf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), s.Describe(s.namespace))
}

// resetCount has counting begin now.
func (s *scene) resetCount() { s.mark = s.Audit.Mark() }

// requests are the controller's requests about this namespace since the count was last reset.
func (s *scene) requests() framework.Requests {
	return s.Audit.Since(s.mark).ByController().Namespace(s.namespace)
}

// wantWrites fails unless the controller's writes of a resource since the count was reset are exactly these.
func (s *scene) wantWrites(resource, want string) {
	s.t.Helper()
	if got := s.requests().Resource(resource).Writes().String(); got != want {
		s.fatalf("the controller's writes of %s: %s; want %s", resource, got, want)
	}
}

// node is the name of a node of this scene.
func (s *scene) node(name string) string { return s.namespace + "-" + name }

// addNodes makes nodes, and returns their names.
func (s *scene) addNodes(names ...string) []string {
	s.t.Helper()
	for i, name := range names {
		names[i] = s.node(name)
		s.createNode(names[i], nil)
	}
	return names
}

// createNode makes a node with some labels beside that of the scene.
func (s *scene) createNode(name string, more map[string]string) {
	s.t.Helper()
	_, err := s.Kube.CoreV1().Nodes().Create(s.ctx(), s.nodeObject(name, more), metav1.CreateOptions{})
	s.must(err)
}

func (s *scene) nodeObject(name string, more map[string]string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{sceneLabel: s.namespace}}}
	maps.Copy(node.Labels, more)
	return node
}

// patchNode changes a node with a JSON merge patch.
func (s *scene) patchNode(name, patch string, subresources ...string) {
	s.t.Helper()
	_, err := s.Kube.CoreV1().Nodes().Patch(s.ctx(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	s.must(err)
}

func (s *scene) deleteNode(name string) {
	s.t.Helper()
	s.must(s.Kube.CoreV1().Nodes().Delete(s.ctx(), name, metav1.DeleteOptions{}))
}

// change is a change of a LocalService.
type change func(ls *v1alpha1.LocalService)

// localService is a headless LocalService for all nodes of the scene, with some changes.
func (s *scene) localService(name string, changes ...change) *v1alpha1.LocalService {
	ls := &v1alpha1.LocalService{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace},
		Spec: v1alpha1.LocalServiceSpec{
			ClusterIP:    corev1.ClusterIPNone,
			Ports:        []v1alpha1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
			Selector:     map[string]string{"app": name},
			NodeSelector: map[string]string{sceneLabel: s.namespace},
		},
	}
	for _, c := range changes {
		c(ls)
	}
	return ls
}

// withClusterIP is the change to Services with an address.
func withClusterIP(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = "" }

// ofType is the change to Services of a type other than ClusterIP.
func ofType(serviceType corev1.ServiceType) change {
	return func(ls *v1alpha1.LocalService) { ls.Spec.Type, ls.Spec.ClusterIP = serviceType, "" }
}

// create makes a LocalService.
func (s *scene) create(name string, changes ...change) *v1alpha1.LocalService {
	s.t.Helper()
	ls, err := s.localServices().Create(s.ctx(), s.localService(name, changes...), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	s.must(err)
	return ls
}

// createReady makes a LocalService and waits until it is ready.
func (s *scene) createReady(name string, changes ...change) *v1alpha1.LocalService {
	s.t.Helper()
	s.create(name, changes...)
	return s.waitReady(name)
}

// update changes a LocalService.
func (s *scene) update(name string, changes ...change) {
	s.t.Helper()
	s.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		ls, err := s.localServices().Get(s.ctx(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range changes {
			c(ls)
		}
		_, err = s.localServices().Update(s.ctx(), ls, metav1.UpdateOptions{})
		return err
	}))
}

// waitReady waits until a LocalService says that it is ready, as `kubectl wait` does, and knows of all nodes that it
// selects: a controller that has not heard yet of a node that was just made may say that it is ready before.
func (s *scene) waitReady(name string) *v1alpha1.LocalService {
	s.t.Helper()
	var ls *v1alpha1.LocalService
	s.eventually(name+" is ready", func(ctx context.Context) (err error) {
		if ls, err = s.localServices().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if err := checkReady(ls); err != nil {
			return err
		}
		nodes, err := s.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: labels.Set(ls.Spec.NodeSelector).String()})
		if err != nil {
			return err
		}
		return equal("status.nodes", int(ls.Status.Nodes), len(nodes.Items))
	})
	return ls
}

func checkReady(ls *v1alpha1.LocalService) error {
	return errors.Join(
		checkCondition(ls, v1alpha1.ConditionReady, metav1.ConditionTrue, ""),
		checkCondition(ls, v1alpha1.ConditionProgressing, metav1.ConditionFalse, ""),
		checkCondition(ls, v1alpha1.ConditionConflicted, metav1.ConditionFalse, ""),
		equal("status.services", ls.Status.Services, ls.Status.Nodes),
	)
}

// checkCondition compares a condition that speaks of the LocalService's present spec. Any reason will do for "".
func checkCondition(ls *v1alpha1.LocalService, conditionType string, status metav1.ConditionStatus, reason string) error {
	c := meta.FindStatusCondition(ls.Status.Conditions, conditionType)
	if c == nil {
		return fmt.Errorf("there is no condition %s", conditionType)
	}
	if c.Status != status || reason != "" && c.Reason != reason {
		return fmt.Errorf("condition %s is %s (%s: %s); want %s (%s)", conditionType, c.Status, c.Reason, c.Message, status, reason)
	}
	return errors.Join(
		equal("status.observedGeneration", ls.Status.ObservedGeneration, ls.Generation),
		equal("observedGeneration of condition "+conditionType, c.ObservedGeneration, ls.Generation),
	)
}

// waitServices waits until a LocalService, which need not be ready, controls the Services of these names and no others.
func (s *scene) waitServices(ls *v1alpha1.LocalService, names ...string) {
	s.t.Helper()
	slices.Sort(names)
	s.eventually(fmt.Sprintf("%s controls exactly %v", ls.Name, names), func(ctx context.Context) error {
		owned, err := s.ownedServices(ctx, ls)
		if err != nil {
			return err
		}
		return equal("names", slices.Sorted(maps.Keys(owned)), names)
	})
}

// ownedServices are the Services that a LocalService controls, by name.
func (s *scene) ownedServices(ctx context.Context, ls *v1alpha1.LocalService) (map[string]*corev1.Service, error) {
	list, err := s.services().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	owned := map[string]*corev1.Service{}
	for i := range list.Items {
		if service := &list.Items[i]; metav1.IsControlledBy(service, ls) {
			owned[service.Name] = service
		}
	}
	return owned, nil
}

// mustOwn are the Services that a LocalService controls, by name; it fails unless there are so many.
func (s *scene) mustOwn(ls *v1alpha1.LocalService, count int) map[string]*corev1.Service {
	s.t.Helper()
	owned, err := s.ownedServices(s.ctx(), ls)
	s.must(err)
	if len(owned) != count {
		s.fatalf("%s controls %d Services; want %d", ls.Name, len(owned), count)
	}
	return owned
}

func (s *scene) getService(name string) *corev1.Service {
	s.t.Helper()
	service, err := s.services().Get(s.ctx(), name, metav1.GetOptions{})
	s.must(err)
	return service
}

func (s *scene) createService(service *corev1.Service) *corev1.Service {
	s.t.Helper()
	created, err := s.services().Create(s.ctx(), service, metav1.CreateOptions{})
	s.must(err)
	return created
}

// foreignService is a Service that has nothing to do with any LocalService, ready to be created.
func foreignService(name string, labels map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Selector:  map[string]string{"app": "somebody-elses"},
			Ports:     []corev1.ServicePort{{Port: 1234}},
		},
	}
}

// editService changes a Service by hand.
func (s *scene) editService(name string, edit func(service *corev1.Service)) {
	s.t.Helper()
	s.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		service, err := s.services().Get(s.ctx(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(service)
		_, err = s.services().Update(s.ctx(), service, metav1.UpdateOptions{FieldManager: "by-hand"})
		return err
	}))
}

func (s *scene) deleteService(name string) {
	s.t.Helper()
	s.must(s.services().Delete(s.ctx(), name, metav1.DeleteOptions{}))
}

// waitServiceReplaced waits until a Service has another UID than it had.
func (s *scene) waitServiceReplaced(old *corev1.Service) *corev1.Service {
	s.t.Helper()
	var service *corev1.Service
	s.eventually("Service "+old.Name+" is a new one", func(ctx context.Context) (err error) {
		if service, err = s.services().Get(ctx, old.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		if service.UID == old.UID {
			return errors.New("it is still the old one")
		}
		return nil
	})
	return service
}

// waitGone waits until an object is gone.
func (s *scene) waitGone(what string, get func(ctx context.Context) error) {
	s.t.Helper()
	s.eventually(what+" is gone", func(ctx context.Context) error {
		if err := get(ctx); err == nil {
			return errors.New("it is still there")
		} else if !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}

func (s *scene) waitServiceGone(name string) {
	s.t.Helper()
	s.waitGone("Service "+name, func(ctx context.Context) error {
		_, err := s.services().Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

func (s *scene) waitLocalServiceGone(name string) {
	s.t.Helper()
	s.waitGone("LocalService "+name, func(ctx context.Context) error {
		_, err := s.localServices().Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

// events are the events about an object of this scene that have a reason.
func (s *scene) events(ctx context.Context, name, reason string) ([]corev1.Event, error) {
	list, err := s.Kube.CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=" + reason})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// equal returns an error that tells the difference, nil for none.
func equal[T any](what string, got, want T) error {
	g, err1 := json.Marshal(got)
	w, err2 := json.Marshal(want)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if string(g) != string(w) {
		return fmt.Errorf("%s: got %s; want %s", what, g, w)
	}
	return nil
}
