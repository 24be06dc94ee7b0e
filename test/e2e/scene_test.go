package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	// patience is how long to wait for anything. Most takes a second; this is for machines that are busy.
	patience = 90 * time.Second
	appPort  = 8080
)

// app is the label of all pods in a scene that its LocalServices select.
var app = map[string]string{"app": "demo"}

// scene is a test's namespace.
type scene struct {
	t         *testing.T
	namespace string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	namespaces := cluster.Kube.CoreV1().Namespaces()
	ns, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := namespaces.Delete(context.Background(), ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return &scene{t: t, namespace: ns.Name}
}

func (s *scene) ctx() context.Context { return s.t.Context() }

func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%v\n%s", err, state(s.namespace))
	}
}

// eventually polls until check returns nil. An answer from a wrong node is not waited for to get right.
func (s *scene) eventually(what string, check func(ctx context.Context) error) {
	s.t.Helper()
	var wrong *wrongNodeError
	err := framework.Poll(s.ctx(), patience, func(ctx context.Context) error {
		err := check(ctx)
		if errors.As(err, &wrong) {
			return nil
		}
		return err
	})
	if wrong != nil {
		err = wrong
	}
	if err != nil {
		s.t.Fatalf("not so: %s\n%v\n%s", what, err, state(s.namespace))
	}
}

// kubectl runs kubectl in the scene's namespace.
func (s *scene) kubectl(args ...string) string {
	s.t.Helper()
	out, err := cluster.Kubectl(s.ctx(), append([]string{"--namespace=" + s.namespace}, args...)...)
	s.must(err)
	return out
}

// The demo app, in all the ways there are to run pods.

func podTemplate() corev1.PodTemplateSpec {
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(app)},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  new(false),
			TerminationGracePeriodSeconds: new(int64(2)),
			Containers: []corev1.Container{{
				Name:            "app",
				Image:           appImage,
				ImagePullPolicy: corev1.PullNever,
				Env:             []corev1.EnvVar{{Name: "POD", ValueFrom: field("metadata.name")}, {Name: "NODE", ValueFrom: field("spec.nodeName")}},
				ReadinessProbe: &corev1.Probe{
					PeriodSeconds: 1,
					ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(appPort)}},
				},
			}},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
				TopologyKey:       corev1.LabelHostname,
				MaxSkew:           1,
				WhenUnsatisfiable: corev1.DoNotSchedule,
				NodeTaintsPolicy:  new(corev1.NodeInclusionPolicyHonor),
				LabelSelector:     &metav1.LabelSelector{MatchLabels: app},
			}},
		},
	}
}

// deploy makes a Deployment, with as many pods on each node as on the others.
func (s *scene) deploy(replicas int32, edit ...func(*corev1.PodTemplateSpec)) {
	s.t.Helper()
	template := podTemplate()
	for _, e := range edit {
		e(&template)
	}
	_, err := cluster.Kube.AppsV1().Deployments(s.namespace).Create(s.ctx(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "demo"},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: app}, Template: template},
	}, metav1.CreateOptions{})
	s.must(err)
}

// staticPod has a node's kubelet run a pod of the demo app from a file until the test ends, and returns the name of the
// pod by which the kubelet shows it at the API server.
func staticPod(t *testing.T, namespace, node string, labels map[string]string) (name string) {
	t.Helper()
	pod := barePod("static", "", labels)
	pod.APIVersion, pod.Kind, pod.Namespace = "v1", "Pod", namespace
	pod.Spec.SchedulerName = ""
	data, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(filepath.Dir(cluster.Kubeconfig), "static-pods", node, namespace+".json")
	if err := os.WriteFile(manifest, data, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(manifest); err != nil {
			t.Error(err)
		}
	})
	return pod.Name + "-" + node
}

// localService makes a headless LocalService for the demo app.
func (s *scene) localService(name string, edit ...func(*v1alpha1.LocalServiceSpec)) *v1alpha1.LocalService {
	s.t.Helper()
	ls := &v1alpha1.LocalService{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.LocalServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Selector:  app,
			Ports:     []v1alpha1.ServicePort{{Name: "http", Port: appPort}},
		},
	}
	for _, e := range edit {
		e(&ls.Spec)
	}
	ls, err := cluster.LocalServices.LocalserviceV1alpha1().LocalServices(s.namespace).Create(s.ctx(), ls, metav1.CreateOptions{})
	s.must(err)
	return ls
}

// withClusterIP is a LocalService whose Services have addresses, behind which kube-proxy is.
func withClusterIP(spec *v1alpha1.LocalServiceSpec) { spec.ClusterIP = "" }

func withNodePort(spec *v1alpha1.LocalServiceSpec) {
	spec.ClusterIP, spec.Type = "", corev1.ServiceTypeNodePort
}

// podsByNode are the names of the demo app's pods that are ready and stay, by node.
func (s *scene) podsByNode(ctx context.Context) (map[string][]string, error) {
	list, err := cluster.Kube.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.FormatLabels(app)})
	if err != nil {
		return nil, err
	}
	byNode := map[string][]string{}
	for i := range list.Items {
		if pod := &list.Items[i]; isReady(pod) && pod.DeletionTimestamp == nil {
			byNode[pod.Spec.NodeName] = append(byNode[pod.Spec.NodeName], pod.Name)
		}
	}
	return byNode, nil
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// waitForPods waits until so many pods are ready on each of the nodes, and none elsewhere. It returns their names.
func (s *scene) waitForPods(perNode int, on ...string) map[string][]string {
	s.t.Helper()
	var byNode map[string][]string
	s.eventually(fmt.Sprintf("%d pods are ready on each of %v", perNode, on), func(ctx context.Context) (err error) {
		if byNode, err = s.podsByNode(ctx); err != nil {
			return err
		}
		for _, node := range on {
			if len(byNode[node]) != perNode {
				return fmt.Errorf("there are %v", byNode)
			}
		}
		if len(byNode) != len(on) {
			return fmt.Errorf("there are %v", byNode)
		}
		return nil
	})
	return byNode
}

// serviceName is the name of a node's Service.
func serviceName(localService, node string) string { return naming.ServiceName(localService, node) }

// services are the Services that a LocalService controls, by name.
func (s *scene) services(ctx context.Context, ls *v1alpha1.LocalService) (map[string]*corev1.Service, error) {
	list, err := cluster.Kube.CoreV1().Services(ls.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	own := map[string]*corev1.Service{}
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], ls) {
			own[list.Items[i].Name] = &list.Items[i]
		}
	}
	return own, nil
}

// wantServices waits until a LocalService has the Services of these nodes, no others, and says that it is ready.
func (s *scene) wantServices(ls *v1alpha1.LocalService, of ...string) {
	s.t.Helper()
	want := map[string]bool{}
	for _, node := range of {
		want[serviceName(ls.Name, node)] = true
	}
	s.eventually(fmt.Sprintf("%s has the Services of %v", ls.Name, of), func(ctx context.Context) error {
		own, err := s.services(ctx, ls)
		if err != nil {
			return err
		}
		if got := slices.Sorted(maps.Keys(own)); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
			return fmt.Errorf("it has %v", got)
		}
		now, err := cluster.LocalServices.LocalserviceV1alpha1().LocalServices(ls.Namespace).Get(ctx, ls.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if st := now.Status; st.ObservedGeneration != now.Generation || int(st.Nodes) != len(of) || int(st.Services) != len(of) {
			return fmt.Errorf("its generation is %d, and its status %+v", now.Generation, st)
		}
		return nil
	})
}

// access is how to ask for what a node's Service has behind it.
type access func(node string) question

// byName asks a LocalService's Services by their names: each address of headless ones, and often enough to meet every
// pod, by chance, behind a cluster IP.
func (s *scene) byName(ls *v1alpha1.LocalService) access {
	times := 0
	if ls.Spec.ClusterIP != corev1.ClusterIPNone {
		times = 20
	}
	return func(node string) question {
		return question{URL: fmt.Sprintf("http://%s.%s:%d/", serviceName(ls.Name, node), s.namespace, appPort), Times: times}
	}
}

// byNodePort asks a LocalService's Services at the node ports that they have, of a node with this address.
func (s *scene) byNodePort(ls *v1alpha1.LocalService, address string) access {
	s.t.Helper()
	own, err := s.services(s.ctx(), ls)
	s.must(err)
	return func(node string) question {
		port := 0
		if service := own[serviceName(ls.Name, node)]; service != nil {
			port = int(service.Spec.Ports[0].NodePort)
		}
		return question{URL: "http://" + net.JoinHostPort(address, strconv.Itoa(port)) + "/", Times: 20}
	}
}

// wrongNodeError is an answer from another node than the one in the Service's name: what must never happen.
type wrongNodeError struct {
	url, client, want string
	got               answer
}

func (e *wrongNodeError) Error() string {
	return fmt.Sprintf("WRONG NODE: %s, asked from %s, answered from %s, by pod %s; want %s", e.url, e.client, e.got.node, e.got.pod, e.want)
}

// checkAnswers asks for nodes' Services from one node. It returns nil if those that have ready pods were answered by
// all of these, and the others not at all.
func (s *scene) checkAnswers(ctx context.Context, client string, of []string, a access) error {
	byNode, err := s.podsByNode(ctx)
	if err != nil {
		return err
	}
	answers, err := askNodes(ctx, client, of, a)
	if err != nil {
		return err
	}
	var errs []error
	for _, node := range of {
		pods := map[string]bool{}
		for _, got := range answers[node].answers {
			pods[got.pod] = true
		}
		got, want := slices.Sorted(maps.Keys(pods)), slices.Sorted(slices.Values(byNode[node]))
		if !slices.Equal(got, want) || len(want) > 0 && answers[node].err != "" {
			errs = append(errs, fmt.Errorf("%s, asked from %s, was answered by %v (%s); ready on %s are %v",
				a(node).URL, client, got, answers[node].err, node, want))
		}
	}
	return errors.Join(errs...)
}

// nodeAnswers is what a node's Service has answered.
type nodeAnswers struct {
	answers []answer
	err     string
}

// askNodes asks for nodes' Services from one node. An answer from a wrong node is an error.
func askNodes(ctx context.Context, client string, of []string, a access) (map[string]nodeAnswers, error) {
	questions := make([]question, len(of))
	for i, node := range of {
		questions[i] = a(node)
	}
	replies, err := ask(ctx, client, questions)
	if err != nil {
		return nil, err
	}
	var errs []error
	all := map[string]nodeAnswers{}
	for i, node := range of {
		n := nodeAnswers{err: replies[i].Error}
		for _, body := range replies[i].Bodies {
			got, err := parseAnswer(body)
			if err == nil && got.node != node {
				err = &wrongNodeError{url: questions[i].URL, client: client, want: node, got: got}
			}
			errs = append(errs, err)
			n.answers = append(n.answers, got)
		}
		all[node] = n
	}
	return all, errors.Join(errs...)
}

// wantAnswers waits until, from each of some nodes, the Services of all nodes are answered by exactly their pods.
func (s *scene) wantAnswers(from, of []string, ways ...access) {
	s.t.Helper()
	for _, a := range ways {
		for _, client := range from {
			s.eventually(fmt.Sprintf("from %s, every pod of %v can be reached through its node's name", client, of), func(ctx context.Context) error {
				return s.checkAnswers(ctx, client, of, a)
			})
		}
	}
}

// watch asks for nodes' Services again and again until the function that it returns is called. An answer from a wrong
// node fails the test. When watch returns, something has been answered.
func (s *scene) watch(client string, of []string, ways ...access) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.ctx())
	answered := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		first := sync.OnceFunc(func() { close(answered) })
		for ctx.Err() == nil {
			for _, a := range ways {
				answers, err := askNodes(ctx, client, of, a)
				if wrong := (*wrongNodeError)(nil); errors.As(err, &wrong) {
					s.t.Error(wrong)
					return
				}
				if slices.ContainsFunc(slices.Collect(maps.Values(answers)), func(n nodeAnswers) bool { return len(n.answers) > 0 }) {
					first()
				}
			}
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		watching.Wait()
	})
	s.t.Cleanup(stop)
	select {
	case <-answered:
	case <-time.After(patience):
		s.t.Fatalf("nothing was answered within %v\n%s", patience, state(s.namespace))
	}
	return stop
}

// cordon keeps new pods off a node until the test ends, or the function that it returns is called.
func (s *scene) cordon(node string) (uncordon func()) {
	s.t.Helper()
	s.kubectl("cordon", node)
	uncordon = sync.OnceFunc(func() {
		if _, err := cluster.Kubectl(context.Background(), "uncordon", node); err != nil && !strings.Contains(err.Error(), "NotFound") {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(uncordon)
	return uncordon
}

// controllerPods are the controller's pods that stay.
func controllerPods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := cluster.Kube.CoreV1().Pods(controllerNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + controllerName})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil }), nil
}
