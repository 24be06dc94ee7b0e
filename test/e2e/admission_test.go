package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestAdmissionOnNodes runs pods of every kind of workload, with a real scheduler and real kubelets: no pod is ever
// seen with a node but without its label, and the controller writes nothing. After the policies are deleted, it labels
// again.
func TestAdmissionOnNodes(t *testing.T) {
	s := newScene(t)
	removePolicies := func(ctx context.Context) error {
		_, err := s.Kubectl(ctx, "delete", "-l", admissionLabels, admissionKinds)
		return err
	}
	t.Cleanup(func() {
		if err := removePolicies(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s.installPolicies()
	s.wantServices(s.localService("demo"), nodes...)
	s.wantWorkloadsRefused()
	seen := s.watchPods()

	pods := s.createWorkloads() + 3
	s.Launch(barePod("with-node", nodes[0], nil))
	s.Launch(barePod("with-node-and-label", nodes[2], map[string]string{nodeLabel: nodes[0]}))
	static := s.staticPod(nodes[1], map[string]string{nodeLabel: "another-node"})
	s.Eventually("all pods have a node", func(context.Context) error {
		return framework.Equal("pods with a node", seen.count(), pods)
	})
	s.MustKubectl("wait", "--for=condition=Ready", "pod", "--selector=app,!job-name", "--timeout=2m")
	s.MustKubectl("wait", "--for=condition=Complete", "job/demo", "--timeout=2m")

	// Writes of pods by others do not matter.
	s.MustKubectl("label", "pod", "--all", "team=blue")
	s.MustKubectl("label", "pod", "--all", "team-")
	s.MustKubectl("annotate", "pod", "--all", "note=1")
	s.MustKubectl("delete", "deployments,daemonsets,statefulsets,jobs", "--all", "--cascade=foreground", "--timeout=2m")
	s.MustKubectl("wait", "--for=delete", "pod", "--selector=by", "--timeout=2m")
	refused := s.AllRequests().Writes().Where(func(r *framework.Request) bool {
		code, resource := r.ResponseStatus.Code, r.ObjectRef.Resource
		return (code == 403 || code == 422 || code >= 500) && (resource == "pods" || resource == "bindings") &&
			strings.HasPrefix(r.User.Username, "system:")
	})
	if len(refused) > 0 {
		t.Errorf("Kubernetes itself may not: %s, the first as %s", refused, refused[0].User.Username)
	}
	if pod := s.GetPod(static); !isReady(pod) || pod.Annotations[corev1.MirrorPodAnnotationKey] == "" {
		t.Errorf("the static pod: annotations %v, status %+v", pod.Annotations, pod.Status)
	}
	seen.check(t)
	s.WantWrites("pods", "none")

	s.Must(removePolicies(s.Ctx()))
	s.waitPolicies(nodeLabel, probed{})
	afterwards := barePod("afterwards", "", nil)
	afterwards.Spec.SchedulerName = ""
	s.Launch(afterwards)
	s.Eventually("the controller labels a pod", func(context.Context) error {
		return framework.Equal("writes of pods", s.Requests().Resource("pods").Writes().String(), "1 patch pods 200")
	})
}

// createWorkloads creates pods of every kind of workload, and returns their number. All templates except the
// DaemonSet's have the label of another node.
func (s *scene) createWorkloads() (pods int) {
	s.T.Helper()
	demo, options := metav1.ObjectMeta{Name: "demo"}, metav1.CreateOptions{}
	template := func(by string) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
		t := podTemplate()
		t.Labels["by"], t.Labels[nodeLabel] = by, "another-node"
		return &metav1.LabelSelector{MatchLabels: map[string]string{"by": by}}, t
	}
	deployment, statefulSet := &appsv1.Deployment{ObjectMeta: demo}, &appsv1.StatefulSet{ObjectMeta: demo}
	daemonSet, job := &appsv1.DaemonSet{ObjectMeta: demo}, &batchv1.Job{ObjectMeta: demo}
	deployment.Spec.Selector, deployment.Spec.Template = template("deployment")
	deployment.Spec.Replicas = new(int32(6))
	statefulSet.Spec.Selector, statefulSet.Spec.Template = template("statefulset")
	statefulSet.Spec.Replicas = new(int32(3))
	daemonSet.Spec.Selector, daemonSet.Spec.Template = template("daemonset")
	delete(daemonSet.Spec.Template.Labels, nodeLabel)
	_, job.Spec.Template = template("job")
	job.Spec.Completions, job.Spec.Parallelism = new(int32(3)), new(int32(3))
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job.Spec.Template.Spec.Containers = []corev1.Container{
		{Name: "help", Image: controllerImage, ImagePullPolicy: corev1.PullNever, Args: []string{"-help"}},
	}
	apps := s.Kube.AppsV1()
	_, err1 := apps.Deployments(s.Namespace).Create(s.Ctx(), deployment, options)
	_, err2 := apps.StatefulSets(s.Namespace).Create(s.Ctx(), statefulSet, options)
	_, err3 := apps.DaemonSets(s.Namespace).Create(s.Ctx(), daemonSet, options)
	_, err4 := s.Kube.BatchV1().Jobs(s.Namespace).Create(s.Ctx(), job, options)
	s.Must(errors.Join(err1, err2, err3, err4))
	return 6 + 3 + len(nodes) + 3
}
