package e2e

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestAdmissionOnNodes runs pods in all ways there are, with a real scheduler and real kubelets: no pod is ever seen
// with a node but not its label, and the controller has nothing to write.
func TestAdmissionOnNodes(t *testing.T) {
	s := newSharedAdmissionScene(t)
	s.installPolicies()
	s.localService("demo")
	seen := s.watchPods()

	workloads := s.createWorkloads()
	pods := 6 + 3 + 3 + 3 + 2 // Deployment, DaemonSet, StatefulSet, Job, pods with a node
	static := s.staticPod(nodes[1], map[string]string{nodeLabel: "another-node"})
	pods++
	s.Eventually("all pods run, and those of the Job have run", func(ctx context.Context) error {
		if n := seen.count(); n != pods {
			return fmt.Errorf("%d of %d pods have a node", n, pods)
		}
		out, err := s.Kubectl(ctx, "--namespace="+s.Namespace, "wait", "--for=condition=Ready", "pod", "--selector=app,!job-name", "--timeout=0s")
		if err == nil {
			out, err = s.Kubectl(ctx, "--namespace="+s.Namespace, "wait", "--for=condition=Complete", "job/demo", "--timeout=0s")
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	s.grant("viewer", rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"})
	s.Eventually("who may only see the namespace sees that the policies work", func(ctx context.Context) error {
		// The DaemonSet's, and one that was created with a node. The others have had a label from elsewhere.
		return checkNodeLabels(ctx, s.Namespace, "demo", "viewer", "AtBinding 4 0", "Node labels: set with the binding, by the admission policies.")
	})

	// What others do with pods is none of our business.
	s.MustKubectl("label", "pod", "--all", "team=blue")
	s.MustKubectl("label", "pod", "--all", "team-")
	s.MustKubectl("annotate", "pod", "--all", "note=1")
	s.MustKubectl(append([]string{"delete", "--cascade=foreground", "--timeout=2m"}, workloads...)...)
	s.Eventually("the garbage collector has deleted the pods", func(ctx context.Context) error {
		list, err := s.PodClient().List(ctx, metav1.ListOptions{LabelSelector: "by"})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	})
	for _, r := range s.AllRequests().Writes() {
		refused := r.ResponseStatus.Code == 403 || r.ResponseStatus.Code == 422 || r.ResponseStatus.Code >= 500
		if refused && (r.ObjectRef.Resource == "pods" || r.ObjectRef.Resource == "bindings") && strings.HasPrefix(r.User.Username, "system:") {
			t.Errorf("%s may not %s %s %s: %d", r.User.Username, r.Verb, framework.Resource(&r), r.ObjectRef.Name, r.ResponseStatus.Code)
		}
	}

	if pod := s.GetPod(static); !isReady(pod) || pod.Annotations[corev1.MirrorPodAnnotationKey] == "" {
		t.Errorf("the static pod: annotations %v, status %+v", pod.Annotations, pod.Status)
	}
	seen.check(t)
	if writes := s.podWrites(); len(writes) > 0 {
		t.Errorf("the controller has written to pods: %s", writes)
	}
	if services := s.AllRequests().ByController().Namespace(s.Namespace).Resource("services").Verb("create"); len(services) != len(nodes) {
		t.Errorf("the controller has created %d Services", len(services))
	}
	s.removePolicies()
	if left := s.policies(); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	afterwards := barePod("afterwards", "", nil)
	afterwards.Spec.SchedulerName = ""
	s.Launch(afterwards)
	s.Eventually("the plugin sees that the policies are gone", func(ctx context.Context) error {
		return checkNodeLabels(ctx, s.Namespace, "demo", "viewer", "ByController 1 1",
			"Node labels: set by the controller, after the binding; with the binding on 1 of 2 pods.")
	})
	if t.Failed() {
		t.Log(s.Describe(s.Namespace))
	}
}

// createWorkloads makes pods in all ways there are, and returns the names of what is behind them. All templates but the
// DaemonSet's have a node label from elsewhere.
func (s *scene) createWorkloads() (names []string) {
	s.T.Helper()
	template := func(by string) (corev1.PodTemplateSpec, *metav1.LabelSelector) {
		own := map[string]string{"by": by}
		t := podTemplate()
		maps.Copy(t.Labels, own)
		if by != "daemonset" {
			t.Labels[nodeLabel] = "another-node"
		}
		return t, &metav1.LabelSelector{MatchLabels: own}
	}
	meta := metav1.ObjectMeta{Name: "demo"}
	apps := s.Kube.AppsV1()

	t, selector := template("deployment")
	_, err := apps.Deployments(s.Namespace).Create(s.Ctx(), &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: new(int32(6)), Selector: selector, Template: t}}, metav1.CreateOptions{})
	s.Must(err)
	t, selector = template("daemonset")
	_, err = apps.DaemonSets(s.Namespace).Create(s.Ctx(), &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: t}}, metav1.CreateOptions{})
	s.Must(err)
	t, selector = template("statefulset")
	_, err = apps.StatefulSets(s.Namespace).Create(s.Ctx(), &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)), ServiceName: "demo", Selector: selector, Template: t}}, metav1.CreateOptions{})
	s.Must(err)
	t, _ = template("job")
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	t.Spec.Containers = []corev1.Container{{Name: "help", Image: controllerImage, ImagePullPolicy: corev1.PullNever, Args: []string{"-help"}}}
	_, err = s.Kube.BatchV1().Jobs(s.Namespace).Create(s.Ctx(), &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Completions: new(int32(3)), Parallelism: new(int32(3)), Template: t}}, metav1.CreateOptions{})
	s.Must(err)

	s.wantLabel(s.Launch(barePod("with-node", nodes[0], nil)), nodes[0])
	s.wantLabel(s.Launch(barePod("with-node-and-label", nodes[2], map[string]string{nodeLabel: nodes[0]})), nodes[2])
	return []string{"deployments/demo", "daemonsets/demo", "statefulsets/demo", "jobs/demo"}
}

// TestAdmissionAThousandPods has a real scheduler bind a thousand pods: each is labelled in that write, and the
// controller writes nothing. When the policies are gone, it labels again.
func TestAdmissionAThousandPods(t *testing.T) {
	const pods = 1000
	s := newAdmissionScene(t, framework.ClusterOptions{ControlPlaneOnly: true, Args: []string{"--scheduler", "--controllers", "*,-node-lifecycle-controller"}})
	for i := range 10 {
		s.createNode(fmt.Sprintf("ip-10-0-0-%d.ec2.internal", i))
	}
	s.installPolicies()
	controller := s.NewController(t)
	s.localService("demo")
	seen := s.watchPods()
	s.createPods(pods, func(i int) map[string]string {
		if i%2 == 0 {
			return map[string]string{nodeLabel: "another-node"}
		}
		return nil
	})
	s.Eventually("all pods have a node", func(context.Context) error {
		if n := seen.count(); n != pods {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
	s.Eventually("the controller has made a Service for every node", func(ctx context.Context) error {
		list, err := s.Kube.CoreV1().Services(s.Namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != 10 {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	})
	seen.check(t)
	if writes := s.podWrites(); len(writes) > 0 {
		t.Errorf("the controller has written to pods: %s", writes)
	}
	bound := s.AllRequests().Namespace(s.Namespace).Resource("pods/binding").Verb("create").Where(func(r *framework.Request) bool { return r.ResponseStatus.Code == 201 })
	if len(bound) != pods {
		t.Errorf("the scheduler has bound %d pods", len(bound))
	}
	s.wantFoundOut(controller, "Pods arrive with their node label: the admission policy works", 1)

	s.removePolicies()
	if left := s.policies(); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	s.ResetCount()
	pod := barePod("afterwards", "", map[string]string{nodeLabel: "another-node"})
	pod.Spec.SchedulerName = ""
	s.Launch(pod)
	s.Eventually("the controller labels a new pod", func(context.Context) error {
		if pod := s.GetPod("afterwards"); pod.Spec.NodeName == "" || pod.Labels[nodeLabel] != pod.Spec.NodeName {
			return fmt.Errorf("node %q, labels %v", pod.Spec.NodeName, pod.Labels)
		}
		return nil
	})
	if writes := s.podWrites(); len(writes) != 1 {
		t.Errorf("the controller has written to pods: %s", writes)
	}
	s.wantFoundOut(controller, "Pods arrive without their node label", 0)
	if t.Failed() {
		t.Log(controller.Tail(40))
	}
}

// wantFoundOut fails unless the controller has said once, and tells by its metric, whether the policies work.
func (s *scene) wantFoundOut(controller *framework.Controller, text string, metric int) {
	s.T.Helper()
	if lines := controller.LogLines(text); len(lines) != 1 {
		s.T.Errorf("the controller has said %d times %q", len(lines), text)
	}
	_, body, err := controller.Get(s.Ctx(), "/metrics")
	s.Must(err)
	if want := fmt.Sprintf("\nlocalservice_pods_labelled_at_binding %d\n", metric); !strings.Contains(body, want) {
		s.T.Errorf("want the metric%s", want)
	}
}

// createPods creates pods of the demo app for the scheduler, as fast as it can.
func (s *scene) createPods(n int, labels func(i int) map[string]string) {
	s.T.Helper()
	var creating sync.WaitGroup
	next := make(chan int)
	for range 16 {
		creating.Go(func() {
			for i := range next {
				pod := barePod(fmt.Sprintf("pod-%d", i), "", labels(i))
				pod.Spec.SchedulerName = ""
				if _, err := s.PodClient().Create(s.Ctx(), pod, metav1.CreateOptions{}); err != nil {
					s.T.Error(err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	creating.Wait()
}

// withoutPodGC keeps pods on nodes that there are not: by default they are deleted within a minute.
var withoutPodGC = []string{"--controllers", "*,-pod-garbage-collector-controller"}
