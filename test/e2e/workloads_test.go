package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// workload is one of each kind, and its pods.
type workload struct {
	kind, spec string
	pods       int
}

var workloads = []workload{
	{"apps/v1 Deployment", "replicas: 2, selector: {matchLabels: {SELECTED}}", 2},
	{"apps/v1 ReplicaSet", "replicas: 2, selector: {matchExpressions: [{key: KEY, operator: In, values: [VALUE]}]}", 2},
	{"apps/v1 DaemonSet", "selector: {matchLabels: {SELECTED}}", len(nodes)},
	{"apps/v1 StatefulSet", "replicas: 2, selector: {matchLabels: {SELECTED}}, podManagementPolicy: Parallel", 2},
	{"v1 ReplicationController", "replicas: 2, selector: {SELECTED}", 2},
	{"batch/v1 Job", "parallelism: 2, completions: 2, manualSelector: true, selector: {matchLabels: {SELECTED}}", 2},
}

// manifest returns the manifest of a workload whose pods have the node label with another value. It may select by that.
func (w *workload) manifest(namespace string, selects bool) string {
	version, kind, _ := strings.Cut(w.kind, " ")
	name, policy := strings.ToLower(kind), ""
	labels := "app: demo, by: " + name
	selected, key, value := labels, "by", name
	if labels += ", vm/rack: rack1"; selects {
		selected, key, value = labels, "vm/rack", "rack1"
	}
	if kind == "Job" {
		policy = "restartPolicy: Never, "
	}
	return strings.NewReplacer("SELECTED", selected, "KEY", key, "VALUE", value).Replace(
		fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: %s}, spec: {%s, "+
			"template: {metadata: {labels: {%s}}, spec: {%sterminationGracePeriodSeconds: 1, "+
			"containers: [{name: app, image: %s, imagePullPolicy: Never}]}}}}",
			version, kind, name, namespace, w.spec, labels, policy, appImage))
}

// TestWorkloadsKeepTheirPods: a workload that selects by the node label keeps its pods, and makes no others. A label of
// a template that nothing selects by is corrected.
func TestWorkloadsKeepTheirPods(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.wantServices(s.localService("demo"), nodes...)
	s.ResetCount()
	want := 0
	for _, w := range workloads {
		s.Apply(w.manifest(s.Namespace, true))
		want += w.pods
	}
	s.Eventually("each pod has an event", s.allReported(want))
	stale := s.wantStaleLabelCorrected()
	time.Sleep(5 * time.Second) // A ReplicaSet made a hundred pods in this time.
	created := s.AllRequests().Namespace(s.Namespace).Resource("pods").Verb("create").Where(framework.Succeeded)
	if len(created) != want+stale {
		t.Errorf("%d pods were created, want %d", len(created), want+stale)
	}
	s.Must(s.allReported(want)(s.Ctx())) // and none is gone
}

// allReported returns a check that as many pods of the workloads exist, each with its label and its owner, and that one
// event says of each owner that it selects them.
func (s *scene) allReported(want int) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		list, err := s.PodClient().List(ctx, metav1.ListOptions{LabelSelector: nodeLabel + "=rack1"})
		if err != nil || len(list.Items) != want {
			return fmt.Errorf("%d pods, want %d: %w", len(list.Items), want, err)
		}
		events, err := s.Kube.CoreV1().Events(s.Namespace).List(ctx,
			metav1.ListOptions{FieldSelector: "reason=NodeLabelRefused"})
		if err != nil {
			return err
		}
		for i := range list.Items {
			owner := metav1.GetControllerOf(&list.Items[i])
			n := 0
			for _, event := range events.Items {
				if owner != nil &&
					strings.Contains(event.Message, owner.Kind+" "+owner.Name+" selects its pods by ") {
					n++
				}
			}
			if n != 1 {
				return fmt.Errorf("pod %s of %v has %d events: %v", list.Items[i].Name, owner, n, events.Items)
			}
		}
		return nil
	}
}

// wantStaleLabelCorrected creates a Deployment whose template, but not its selector, has the label. It returns how many
// pods there are.
func (s *scene) wantStaleLabelCorrected() (pods int) {
	s.T.Helper()
	stale := workloads[0]
	s.Apply(strings.ReplaceAll(stale.manifest(s.Namespace, false), "deployment", "stale"))
	s.Eventually("the pods of a Deployment that does not select by it have the label of their node",
		func(ctx context.Context) error {
			list, err := s.PodClient().List(ctx, metav1.ListOptions{LabelSelector: "by=stale"})
			if err != nil || len(list.Items) != stale.pods {
				return fmt.Errorf("%d pods, want %d: %w", len(list.Items), stale.pods, err)
			}
			for _, pod := range list.Items {
				if node := pod.Spec.NodeName; node == "" || pod.Labels[nodeLabel] != node {
					return fmt.Errorf("pod %s, on node %q, has the label %s", pod.Name, node, pod.Labels[nodeLabel])
				}
			}
			return nil
		})
	return stale.pods
}

// wantWorkloadsRefused fails unless the API server refuses each workload that selects by the node label.
func (s *scene) wantWorkloadsRefused() {
	s.T.Helper()
	for _, w := range workloads {
		_, _, err := s.Playground(s.Ctx(), []byte(w.manifest(s.Namespace, true)), "kubectl", "apply", "-n", s.Namespace,
			"-f", "-")
		if err == nil || !strings.Contains(err.Error(), "Leave the label out of spec.selector") {
			s.T.Errorf("%s: %v", w.kind, err)
		}
	}
}
