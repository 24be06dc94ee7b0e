package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestEveryPodFromEveryNode is what all is for: a client on any node reaches, by a node's name, all pods on that node
// and no others.
func TestEveryPodFromEveryNode(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	headless, clusterIP, nodePort := s.localService("headless"), s.localService("virtual", framework.WithClusterIP), s.localService("port", framework.OfType(corev1.ServiceTypeNodePort))
	s.deploy(6)
	s.waitForPods(2, nodes...)
	for _, ls := range []*v1alpha1.LocalService{headless, clusterIP, nodePort} {
		s.wantServices(ls, nodes...)
	}
	t.Run("headless", func(t *testing.T) { s.in(t).wantAnswers(nodes, nodes, s.byName(headless)) })
	t.Run("cluster IP", func(t *testing.T) { s.in(t).wantAnswers(nodes, nodes, s.byName(clusterIP)) })
	t.Run("node port", func(t *testing.T) {
		s := s.in(t)
		for i, client := range nodes {
			// At the address of one node, from another one: kube-proxy leads on to the third.
			at := nodes[(i+1)%len(nodes)]
			s.wantAnswers([]string{client}, nodes, s.byNodePort(nodePort, s.addressOf(at)))
		}
	})
}

func (s *scene) addressOf(node string) string {
	s.T.Helper()
	object, err := cluster.Kube.CoreV1().Nodes().Get(s.Ctx(), node, metav1.GetOptions{})
	s.Must(err)
	i := slices.IndexFunc(object.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP })
	if i < 0 {
		s.T.Fatalf("node %s has no address: %+v", node, object.Status.Addresses)
	}
	return object.Status.Addresses[i].Address
}

// TestPodMoves follows a pod that is replaced by one on another node: its new node's name leads to it, and the old
// one's to nothing.
func TestPodMoves(t *testing.T) {
	s := newScene(t)
	ways := []access{s.byName(s.localService("headless")), s.byName(s.localService("virtual", framework.WithClusterIP))}
	s.deploy(1)
	before := s.anyPod()
	s.wantAnswers(nodes, nodes, ways...)
	stop := s.watch(otherThan(before.Spec.NodeName), nodes, ways...)

	uncordon := s.cordon(before.Spec.NodeName)
	s.MustKubectl("delete", "pod", before.Name)
	after := s.anyPod()
	if after.Spec.NodeName == before.Spec.NodeName {
		t.Fatalf("pod %s is on %s again, which is cordoned", after.Name, after.Spec.NodeName)
	}
	s.wantAnswers(nodes, nodes, ways...)
	stop()
	uncordon()
}

// anyPod waits for a ready pod.
func (s *scene) anyPod() *corev1.Pod {
	s.T.Helper()
	var pod *corev1.Pod
	s.Eventually("a pod is ready", func(ctx context.Context) error {
		byNode, err := s.podsByNode(ctx)
		for _, names := range byNode {
			pod, err = s.PodClient().Get(ctx, names[0], metav1.GetOptions{})
			return err
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("there are %v", byNode)
	})
	return pod
}

func otherThan(node string) string {
	return nodes[(slices.Index(nodes, node)+1)%len(nodes)]
}

// TestNodeLabelIsCorrected begins with what sends traffic to wrong nodes until it is corrected: a template that carries
// the label of one node to all pods, and then pods that are labelled by hand.
func TestNodeLabelIsCorrected(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	ways := []access{s.byName(s.localService("headless")), s.byName(s.localService("virtual", framework.WithClusterIP))}
	s.deploy(3, func(template *corev1.PodTemplateSpec) { template.Labels[v1alpha1.DefaultNodeLabelKey] = nodes[0] })
	pods := s.waitForPods(1, nodes...)
	s.wantNodeLabels()
	s.settle(ways...)
	s.wantAnswers(nodes, nodes, ways...)

	s.MustKubectl("label", "--overwrite", "pod", pods[nodes[1]][0], v1alpha1.DefaultNodeLabelKey+"="+nodes[2])
	s.MustKubectl("label", "pod", pods[nodes[0]][0], v1alpha1.DefaultNodeLabelKey+"-")
	s.wantNodeLabels()
	s.settle(ways...)
	s.wantAnswers(nodes, nodes, ways...)
}

// wantNodeLabels waits until all pods are labelled with the node that they are on.
func (s *scene) wantNodeLabels() {
	s.T.Helper()
	s.Eventually("all pods have their node's name in the node label", func(ctx context.Context) error {
		list, err := s.PodClient().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if pod := &list.Items[i]; pod.Labels[v1alpha1.DefaultNodeLabelKey] != pod.Spec.NodeName {
				return fmt.Errorf("pod %s on %s has the labels %v", pod.Name, pod.Spec.NodeName, pod.Labels)
			}
		}
		return nil
	})
}

// settle waits until a correction of labels has come through to DNS and kube-proxy on all nodes. Wrong answers until
// then are what eventually never forgives.
func (s *scene) settle(ways ...access) {
	s.T.Helper()
	for range 3 { // The cluster's DNS has two replicas, which learn of it at different times.
		for _, a := range ways {
			for _, client := range nodes {
				if err := framework.Poll(s.Ctx(), func(ctx context.Context) error { return s.checkAnswers(ctx, client, nodes, a) }); err != nil {
					s.T.Fatalf("the labels were corrected, but answers are still wrong: %v\n%s", err, s.Describe(s.Namespace))
				}
			}
		}
	}
}

// TestKindsOfPods reaches pods of a DaemonSet and of a StatefulSet, one that was put on its node by hand, and one that
// a kubelet runs by itself.
func TestKindsOfPods(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	way := s.byName(s.localService("demo"))

	template, selector := templateOf("daemon")
	template.Spec.TopologySpreadConstraints = nil
	_, err := cluster.Kube.AppsV1().DaemonSets(s.Namespace).Create(s.Ctx(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "daemon"},
		Spec:       appsv1.DaemonSetSpec{Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.waitForPods(1, nodes...)
	s.wantAnswers(nodes[:1], nodes, way)

	template, selector = templateOf("stateful")
	_, err = cluster.Kube.AppsV1().StatefulSets(s.Namespace).Create(s.Ctx(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "stateful"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(3)), PodManagementPolicy: appsv1.ParallelPodManagement, ServiceName: "stateful",
			Selector: selector, Template: template,
		},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.waitForPods(2, nodes...)
	s.wantAnswers(nodes[:1], nodes, way)
	s.MustKubectl("delete", "pod", "stateful-1") // Its successor has the same name.
	s.waitForPods(2, nodes...)
	s.wantAnswers(nodes[:1], nodes, way)

	template, _ = templateOf("bare")
	bare := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	bare.Name, bare.Spec.NodeName = "bare", nodes[1]
	_, err = s.PodClient().Create(s.Ctx(), bare, metav1.CreateOptions{})
	s.Must(err)
	static := staticPod(t, s.Namespace, nodes[2], map[string]string{nodeLabel: nodes[0]})
	s.Eventually("the pods without a controller are ready", func(ctx context.Context) error {
		byNode, err := s.podsByNode(ctx)
		if err == nil && (!slices.Contains(byNode[nodes[1]], "bare") || !slices.Contains(byNode[nodes[2]], static)) {
			err = fmt.Errorf("there are %v", byNode)
		}
		return err
	})
	s.wantNodeLabels()
	mirror, err := s.PodClient().Get(s.Ctx(), static, metav1.GetOptions{})
	s.Must(err)
	s.settle(way)
	s.wantAnswers(nodes, nodes, way)

	s.Eventually("the plugin says who labels pods", func(ctx context.Context) error {
		return checkNodeLabels(ctx, s.Namespace, "demo", "", "ByController 0 8", "Node labels: set by the controller, after the binding.")
	})
	// The kubelet does not take the label for a difference between the static pod and its mirror.
	later, err := s.PodClient().Get(s.Ctx(), static, metav1.GetOptions{})
	s.Must(err)
	if later.UID != mirror.UID {
		t.Errorf("the mirror of the static pod has been replaced: it was %+v, and is %+v", mirror.ObjectMeta, later.ObjectMeta)
	}
}

// templateOf is the demo app as one of several workloads that a LocalService selects together.
func templateOf(workload string) (corev1.PodTemplateSpec, *metav1.LabelSelector) {
	template := podTemplate()
	template.Labels["workload"] = workload
	selector := &metav1.LabelSelector{MatchLabels: template.Labels}
	template.Spec.TopologySpreadConstraints[0].LabelSelector = selector
	return template, selector
}
