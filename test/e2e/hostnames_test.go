package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// byHostname reaches the names of mode Hostnames.
func (s *scene) byHostname(ls *v1alpha1.LocalService) access {
	return func(name string) string {
		return fmt.Sprintf("http://%s.%s.%s:%d/", naming.Hostname(name), ls.Name, s.Namespace, appPort)
	}
}

// hostnames makes a LocalService with mode Hostnames for the demo app on all nodes.
func (s *scene) hostnames(name string, changes ...framework.Change) *v1alpha1.LocalService {
	s.T.Helper()
	return s.localService(name, append([]framework.Change{framework.WithHostnames}, changes...)...)
}

// TestHostnamesOfEveryWorkload runs pods of a Deployment, of a StatefulSet, and of a DaemonSet on the nodes' own
// network: every node reaches each of them by its node's name.
func TestHostnamesOfEveryWorkload(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	ls := s.hostnames("demo")
	s.deploy(3)
	selector := &metav1.LabelSelector{MatchLabels: app}
	onHost, stateful := podTemplate(), podTemplate()
	onHost.Spec.HostNetwork, onHost.Spec.TerminationGracePeriodSeconds = true, new(int64)
	_, err := s.Kube.AppsV1().DaemonSets(s.Namespace).Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec:       appsv1.DaemonSetSpec{Selector: selector, Template: onHost},
	}, metav1.CreateOptions{})
	s.Must(err)
	stateful.Labels["set"] = "db"
	_, err = s.Kube.AppsV1().StatefulSets(s.Namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)), Template: stateful,
			Selector:            &metav1.LabelSelector{MatchLabels: stateful.Labels},
			PodManagementPolicy: appsv1.ParallelPodManagement},
	}, metav1.CreateOptions{})
	s.Must(err)
	var pods []string
	s.Eventually("all pods are ready", func(ctx context.Context) error {
		byNode, err := s.podsByNode(ctx)
		pods = slices.Concat(slices.Collect(maps.Values(byNode))...)
		return errors.Join(err, framework.Equal("pods", len(pods), 9))
	})
	s.WaitStatusNodes(ls.Name, len(nodes))
	s.wantAnswers(nodes, nodes, s.byHostname(ls))
	for _, name := range pods {
		if pod := s.GetPod(name); pod.Labels[v1alpha1.DefaultNodeLabelKey] != "" {
			t.Errorf("pod %s was labelled: %v", name, pod.Labels)
		}
	}
}

// TestHostnamesFollowReadiness tests that a name leads to no pod that is not ready, or that is terminating.
func TestHostnamesFollowReadiness(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	ls := s.hostnames("demo")
	const gate = "example.com/gate"
	for i, node := range nodes {
		pod := barePod(fmt.Sprint("pod-", i), node, nil)
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}}
		pod.Spec.TerminationGracePeriodSeconds = new(int64(300))
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
			PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 290}}}
		s.Launch(pod)
	}
	set := func(pod string, status corev1.ConditionStatus) {
		t.Helper()
		s.MustKubectl("patch", "pod", pod, "--subresource=status",
			fmt.Sprintf(`--patch={"status":{"conditions":[{"type":%q,"status":%q}]}}`, gate, status))
	}
	for i := range nodes {
		set(fmt.Sprint("pod-", i), corev1.ConditionTrue)
	}
	s.waitForPods(1, nodes...)
	s.wantAnswers(nodes, nodes, s.byHostname(ls))
	set("pod-0", corev1.ConditionFalse)
	s.waitForPods(1, nodes[1:]...)
	s.wantAnswers(nodes, nodes, s.byHostname(ls))
	set("pod-0", corev1.ConditionTrue)
	s.MustKubectl("delete", "pod", "pod-1", "--wait=false")
	s.waitForPods(1, nodes[0], nodes[2])
	s.wantAnswers(nodes, nodes, s.byHostname(ls))
	if pod := s.GetPod("pod-1"); pod.DeletionTimestamp == nil || pod.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod that is ending is not running any more: %+v", pod.Status)
	}
	s.MustKubectl("delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")
}

// TestHostnamesChangeOfMode changes the mode in both directions while clients on all nodes send requests: a client that
// uses the old name until it is gone, and then the new one, always gets an answer, and never from a wrong node.
func TestHostnamesChangeOfMode(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	ls := s.namedByNode()
	s.changeToHostnames(ls, func() {})

	stop := s.watchEither(nodes, s.byHostname(ls), s.byName(ls))
	s.Update(ls.Name, func(ls *v1alpha1.LocalService) { ls.Spec.Mode = v1alpha1.ModeServices })
	s.wantServices(ls, nodes...)
	s.wantAnswers(nodes, nodes, s.byName(ls))
	stop()
}

// TestHostnamesChangeOfLeader kills the leader during a change of the mode: the next one continues.
func TestHostnamesChangeOfLeader(t *testing.T) {
	s := newScene(t)
	s.changeToHostnames(s.namedByNode(), func() {
		leader, err := currentLeader(s.Ctx())
		s.Must(err)
		_, err = s.Kubectl(s.Ctx(), "--namespace="+controllerNamespace, "delete", "pod", leader, "--force",
			"--grace-period=0")
		s.Must(err)
	})
	s.Must(waitRollout(s.Ctx()))
}

// currentLeader returns the pod that holds the Lease.
func currentLeader(ctx context.Context) (string, error) {
	holder, err := cluster.Kubectl(ctx, "--namespace="+controllerNamespace, "get", "lease", controllerName,
		"--output=jsonpath={.spec.holderIdentity}")
	pod, _, _ := strings.Cut(holder, "_")
	return pod, err
}

// namedByNode has the names of a LocalService with mode Services answer.
func (s *scene) namedByNode() *v1alpha1.LocalService {
	s.T.Helper()
	ls := s.localService("demo")
	s.deploy(3)
	s.waitForPods(1, nodes...)
	s.wantServices(ls, nodes...)
	s.wantAnswers(nodes, nodes, s.byName(ls))
	return ls
}

// changeToHostnames changes the mode while clients send requests. It calls meanwhile when the names of both modes
// exist.
func (s *scene) changeToHostnames(ls *v1alpha1.LocalService, meanwhile func()) {
	s.T.Helper()
	stop := s.watchEither(nodes, s.byName(ls), s.byHostname(ls))
	s.Update(ls.Name, framework.WithHostnames)
	s.WaitLocalService(ls.Name, "has the names of both modes", func(ls *v1alpha1.LocalService) error {
		if meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionRetiring) == nil {
			return errors.New("there is no condition " + v1alpha1.ConditionRetiring)
		}
		return nil
	})
	meanwhile()
	s.WaitServices(ls, ls.Name, plan.ServiceName(ls.Name, plan.Source, ""))
	s.wantAnswers(nodes, nodes, s.byHostname(ls))
	stop()
}

// watchEither requests, from each of some nodes, all nodes' names of two kinds at a time, until the function that it
// returns is called. It returns when all clients have started. A node for which neither name answers fails the test,
// and so does an answer from a wrong node.
func (s *scene) watchEither(from []string, before, after access) (stop func()) {
	var stopped atomic.Bool
	var watching, begun sync.WaitGroup
	for _, client := range from {
		begun.Add(1)
		watching.Go(func() {
			asked, begin := 0, sync.OnceFunc(begun.Done)
			defer begin()
			for !stopped.Load() { // What is under way then counts.
				rounds, err := askEither(s.Ctx(), client, before, after)
				if err != nil && s.Ctx().Err() == nil {
					s.T.Error(err)
				}
				asked += rounds
				begin()
			}
			s.T.Logf("from %s, all names were asked for %d times", client, asked)
		})
	}
	stop = sync.OnceFunc(func() {
		stopped.Store(true)
		watching.Wait()
	})
	s.T.Cleanup(stop)
	begun.Wait()
	return stop
}

// askEither sends requests for a while, and returns how many.
func askEither(ctx context.Context, client string, ways ...access) (rounds int, err error) {
	var urls []string
	for _, url := range ways {
		for _, node := range nodes {
			urls = append(urls, url(node))
		}
	}
	replies, err := askRounds(ctx, watchCommand, client, urls)
	var errs []error
	for _, round := range replies {
		problems := map[string][]string{} // of the names of a node
		for i := range round {
			node := nodes[i%len(nodes)]
			_, wrong := round[i].podsOn(node, urls[i], client)
			errs = append(errs, wrong)
			if round[i].Error == "" {
				continue
			}
			if problems[node] = append(problems[node], round[i].Error); len(problems[node]) == len(ways) {
				errs = append(errs, fmt.Errorf("from %s, %s was reached by no name: %q", client, node, problems[node]))
			}
		}
	}
	return len(replies), errors.Join(append(errs, err)...)
}

// TestHostnamesWithoutController tests that the names keep answering while no controller runs, and that the next one
// catches up with the changes.
func TestHostnamesWithoutController(t *testing.T) {
	s := newScene(t)
	ls := s.hostnames("demo")
	s.deploy(6)
	s.waitForPods(2, nodes...)
	s.wantAnswers(nodes, nodes, s.byHostname(ls))
	scale := func(replicas string) {
		t.Helper()
		_, err := s.Kubectl(context.Background(), "--namespace="+controllerNamespace, "scale",
			"deployment/"+controllerName,
			"--replicas="+replicas)
		if err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		scale("2")
		if err := waitRollout(context.Background()); err != nil {
			t.Error(err)
		}
	})
	scale("0")
	s.Eventually("no controller runs", func(ctx context.Context) error {
		list, err := s.Kube.CoreV1().Pods(controllerNamespace).List(ctx,
			metav1.ListOptions{LabelSelector: labels.Set{"app": controllerName}.String()})
		return errors.Join(err, framework.Equal("controllers", len(list.Items), 0))
	})
	s.wantAnswers(nodes, nodes, s.byHostname(ls))
	byNode := s.waitForPods(2, nodes...)
	s.MustKubectl("delete", "pod", byNode[nodes[0]][0], byNode[nodes[1]][0])
	s.waitForPods(2, nodes...)
	scale("2")
	s.wantAnswers(nodes, nodes, s.byHostname(ls))
}
