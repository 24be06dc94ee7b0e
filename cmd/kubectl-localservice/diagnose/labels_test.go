package diagnose

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// managedBy adds what a manager has set of a pod's metadata.
func managedBy(manager, metadata string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":` + metadata + `}`),
		})
	}
}

var (
	created      = managedBy("kube-controller-manager", `{"f:generateName":{},"f:labels":{".":{},"f:app":{}}}`)
	fromTemplate = managedBy("kube-controller-manager",
		`{"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:vm/rack":{}}}`)
	byController = managedBy(v1alpha1.FieldManager, `{"f:labels":{"f:vm/rack":{}}}`)
	byHand       = managedBy("kubectl-label", `{"f:labels":{"f:vm/rack":{}}}`)
	byKubelet    = managedBy("kubelet", `{}`)
)

func scheduledAt(second int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled,
			LastTransitionTime: metav1.Time{Time: time.Unix(second, 0)}})
	}
}

func createdAt(second int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.Time{Time: time.Unix(second, 0)} }
}

func TestNodeLabels(t *testing.T) {
	long := strings.Repeat("n", 64)
	for name, c := range map[string]struct {
		pods []*corev1.Pod
		want NodeLabels
		line string // a part of it; none with ""
	}{
		"no pods": {},
		"with the binding": {
			pods: []*corev1.Pod{aPod("0", "n1", created, withoutLabel), aPod("a", "n1", created, byKubelet),
				aPod("b", "n2", created)},
			want: NodeLabels{AtBinding, 2, 0}, line: "set with the binding, by the admission policies.",
		},
		"by the controller": {
			pods: []*corev1.Pod{aPod("a", "n1", created, byController, byKubelet)},
			want: NodeLabels{ByController, 0, 1}, line: "set by the controller, after the binding.",
		},
		"corrected by the controller, and confirmed by somebody": {
			pods: []*corev1.Pod{aPod("a", "n1", byHand, created, byController, byHand)},
			want: NodeLabels{ByController, 0, 1}, line: "by the controller",
		},
		"the policies are new": {
			pods: []*corev1.Pod{aPod("c", "n1", created, byController, scheduledAt(1)),
				aPod("b", "n1", created, scheduledAt(3)), aPod("a", "n2", created, byController, scheduledAt(2))},
			want: NodeLabels{AtBinding, 1, 2}, line: "by the admission policies; by the controller on 2 of 3 pods.",
		},
		"the policies are gone": {
			pods: []*corev1.Pod{aPod("a", "n1", created, byController, scheduledAt(2)),
				aPod("b", "n2", created, scheduledAt(1))},
			want: NodeLabels{ByController, 1, 1}, line: "by the controller, after the binding; with the binding on " +
				"1 of 2 pods.",
		},
		"waited for a node": {
			pods: []*corev1.Pod{aPod("a", "n1", created, createdAt(1), scheduledAt(3)),
				aPod("b", "n2", created, byController, createdAt(2))},
			want: NodeLabels{AtBinding, 1, 1}, line: "by the controller on 1 of 2 pods",
		},
		"their template's":                {pods: []*corev1.Pod{aPod("a", "n1", fromTemplate)}},
		"somebody's":                      {pods: []*corev1.Pod{aPod("a", "n1", created, byHand)}},
		"not labelled":                    {pods: []*corev1.Pod{aPod("a", "n1", created, withoutLabel)}},
		"labelled wrongly":                {pods: []*corev1.Pod{aPod("a", "n1", created, labelled("n2"))}},
		"not scheduled":                   {pods: []*corev1.Pod{aPod("a", "", created)}},
		"without managed fields":          {pods: []*corev1.Pod{aPod("a", "n1")}},
		"left to the controller, as long": {pods: []*corev1.Pod{aPod("a", long, created, byController)}},
		"another app's": {pods: []*corev1.Pod{aPod("a", "n1", created,
			func(p *corev1.Pod) { p.Labels["app"] = "other" })}},
		"with an entry without fields": {
			pods: []*corev1.Pod{aPod("a", "n1", created, byKubelet,
				func(p *corev1.Pod) { p.ManagedFields[1].FieldsV1 = nil })},
			want: NodeLabels{AtBinding, 1, 0}, line: "by the admission policies",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := listOf(t, Input{LocalService: localService(), Pods: c.pods}).NodeLabels
			if got != c.want {
				t.Errorf("got %+v; want %+v", got, c.want)
			}
			if line := got.String(); !strings.Contains(line, c.line) || (line == "") != (c.line == "") {
				t.Errorf("%+v is %q; want %q", got, line, c.line)
			}
		})
	}
}
