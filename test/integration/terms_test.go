package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// termNodes are nodes with the labels that people select by.
var termNodes = map[string]map[string]string{
	"control":  {"node-role.kubernetes.io/control-plane": "", "zone": "a"},
	"plain":    {},
	"a-ssd":    {"zone": "a", "disk": "ssd", "pool": "web", "cpus": "4"},
	"a-hdd":    {"zone": "a", "disk": "hdd", "pool": "batch", "cpus": "16"},
	"b-ssd":    {"zone": "b", "disk": "ssd", "pool": "batch", "cpus": "007"},
	"b-gpu":    {"zone": "b", "gpu": "true", "cpus": "many"},
	"c.dotted": {"zone": "c", "disk": "", "eks.amazonaws.com/compute-type": "fargate"},
}

// termTable are nodeSelectorTerms; NS stands for the namespace, with which the names of the nodes begin.
var termTable = []string{
	"[{matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}]}]",
	"[{matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]}]",
	"[{matchExpressions: [{key: eks.amazonaws.com/compute-type, operator: NotIn, values: [fargate]}]}]",
	"[{matchExpressions: [{key: eks.amazonaws.com/compute-type, operator: In, values: [fargate]}]}]",
	"[{matchExpressions: [{key: pool, operator: In, values: [web, batch]}]}]",
	"[{matchExpressions: [{key: pool, operator: In, values: [web]}]}]",
	"[{matchExpressions: [{key: pool, operator: NotIn, values: [web, batch]}]}]",
	"[{matchExpressions: [{key: zone, operator: In, values: [a, b, none]}]}]",
	"[{matchExpressions: [{key: zone, operator: In, values: [none]}]}]",
	"[{matchExpressions: [{key: zone, operator: NotIn, values: [none]}]}]",
	"[{matchExpressions: [{key: disk, operator: Exists}]}]",
	"[{matchExpressions: [{key: disk, operator: DoesNotExist}]}]",
	`[{matchExpressions: [{key: disk, operator: In, values: [""]}]}]`,
	`[{matchExpressions: [{key: disk, operator: NotIn, values: [""]}]}]`,
	`[{matchExpressions: [{key: cpus, operator: Gt, values: ["4"]}]}]`,
	`[{matchExpressions: [{key: cpus, operator: Gt, values: ["3"]}]}]`,
	`[{matchExpressions: [{key: cpus, operator: Lt, values: ["16"]}]}]`,
	`[{matchExpressions: [{key: cpus, operator: Lt, values: ["7"]}]}]`,
	`[{matchExpressions: [{key: cpus, operator: Gt, values: ["0"]}, {key: cpus, operator: Lt, values: ["8"]}]}]`,
	"[{matchExpressions: [{key: zone, operator: In, values: [a]}, {key: disk, operator: In, values: [ssd]}]}]",
	"[{matchExpressions: [{key: zone, operator: In, values: [a]}]}, {matchExpressions: [{key: gpu, operator: Exists}]}]",
	"[{matchExpressions: [{key: zone, operator: In, values: [none]}]}, {matchExpressions: [{key: gpu, operator: Exists}]}]",
	"[{matchExpressions: [{key: zone, operator: Exists}, {key: zone, operator: DoesNotExist}]}]",
	"[{matchFields: [{key: metadata.name, operator: In, values: [NS-a-ssd]}]}]",
	"[{matchFields: [{key: metadata.name, operator: NotIn, values: [NS-a-ssd]}]}]",
	"[{matchFields: [{key: metadata.name, operator: In, values: [NS-c.dotted]}]}]",
	"[{matchFields: [{key: metadata.name, operator: In, values: [nowhere]}]}]",
	"[{matchFields: [{key: metadata.name, operator: In, values: [NS-plain]}]}, {matchFields: [{key: metadata.name, " +
		"operator: In, values: [NS-control]}]}]",
	"[{matchExpressions: [{key: zone, operator: In, values: [a]}], matchFields: [{key: metadata.name, operator: NotIn, " +
		"values: [NS-a-hdd]}]}]",
	"[{matchExpressions: [{key: zone, operator: In, values: [a, a]}, {key: pool, operator: Exists}, {key: gpu, operator: " +
		"DoesNotExist}, {key: disk, operator: NotIn, values: [hdd]}]}]",
}

// TestNodesAsDaemonSets tests that a LocalService selects the nodes on which Kubernetes would run the pods of a
// DaemonSet with the same nodeSelector and the same terms in its node affinity.
func TestNodesAsDaemonSets(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "terms")
	for name, labels := range termNodes {
		s.CreateNode(s.NodeName(name), labels)
	}
	for i, text := range termTable {
		text = strings.ReplaceAll(text, "NS", s.Namespace)
		name := fmt.Sprintf("t%d", i)
		ls := s.Create(name, spec(headless, "nodeSelectorTerms: "+text))
		s.createDaemonSet(ls, text)
	}
	seen := map[string]bool{}
	for i, text := range termTable {
		s.Eventually("the same nodes are selected by "+text, func(ctx context.Context) error {
			name := fmt.Sprintf("t%d", i)
			ls, err := s.LocalServiceClient().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			want, err := s.daemonSetNodes(ctx, name)
			if err != nil {
				return err
			}
			owned, err := s.OwnedServices(ctx, ls)
			if err != nil {
				return err
			}
			var got []string
			for _, service := range owned {
				got = append(got, service.Annotations[v1alpha1.NodeAnnotationKey])
			}
			slices.Sort(got)
			seen[fmt.Sprint(got)] = true
			if !slices.Equal(got, want) || int(ls.Status.Nodes) != len(want) {
				return fmt.Errorf("the LocalService selects %v (status.nodes: %d), the DaemonSet %v", got, ls.Status.Nodes, want)
			}
			return nil
		})
	}
	if len(seen) < 15 {
		t.Errorf("only %d different sets of nodes: %v", len(seen), slices.Sorted(maps.Keys(seen)))
	}
}

// createDaemonSet creates a DaemonSet with the name, and for the nodes, of a LocalService.
func (s *scene) createDaemonSet(ls *v1alpha1.LocalService, terms string) {
	s.T.Helper()
	affinity := &corev1.NodeSelector{}
	s.Must(yaml.Unmarshal([]byte("{nodeSelectorTerms: "+terms+"}"), affinity))
	labels := map[string]string{"daemonset": ls.Name}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: ls.Name}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			NodeSelector: ls.Spec.NodeSelector,
			Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: affinity}},
			Containers: []corev1.Container{{Name: "app", Image: "none"}}}}}}
	_, err := s.Kube.AppsV1().DaemonSets(s.Namespace).Create(s.Ctx(), set, metav1.CreateOptions{})
	s.Must(err)
}

// daemonSetNodes returns the names of the nodes for which the pods of a DaemonSet are, once all have been created.
func (s *scene) daemonSetNodes(ctx context.Context, name string) (nodes []string, err error) {
	set, err := s.Kube.AppsV1().DaemonSets(s.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pods, err := s.Kube.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "daemonset=" + name})
	if err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		target := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
		nodes = append(nodes, target.MatchFields[0].Values...)
	}
	slices.Sort(nodes)
	if set.Status.ObservedGeneration != set.Generation || int(set.Status.DesiredNumberScheduled) != len(nodes) {
		return nil, fmt.Errorf("DaemonSet %s has pods for %v: %w", name, nodes,
			framework.Equal("status", set.Status, appsv1.DaemonSetStatus{}))
	}
	return nodes, nil
}
