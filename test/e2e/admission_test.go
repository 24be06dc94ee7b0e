package e2e

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

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

	pods := 3
	for _, w := range workloads { // Their templates have the label of another node.
		s.Apply(w.manifest(s.Namespace, false))
		pods += w.pods
	}
	s.Launch(barePod("with-node", nodes[0], nil))
	s.Launch(barePod("with-node-and-label", nodes[2], map[string]string{nodeLabel: nodes[0]}))
	static := s.staticPod(nodes[1], map[string]string{nodeLabel: "another-node"})
	s.Eventually("all pods have a node", func(context.Context) error {
		return framework.Equal("pods with a node", seen.count(), pods)
	})
	s.MustKubectl("wait", "--for=condition=Ready", "pod", "--selector=app", "--timeout=2m")

	// Writes of pods by others do not matter.
	s.MustKubectl("label", "pod", "--all", "team=blue")
	s.MustKubectl("label", "pod", "--all", "team-")
	s.MustKubectl("annotate", "pod", "--all", "note=1")
	s.MustKubectl("delete", "deployments,replicasets,daemonsets,statefulsets,replicationcontrollers,jobs", "--all",
		"--cascade=foreground", "--timeout=2m")
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
