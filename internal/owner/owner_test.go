package owner

import (
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

func TestSelectorKeys(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "vm/rack", Operator: metav1.LabelSelectorOpExists}}}
	meta := metav1.ObjectMeta{Namespace: "default", Name: "o", UID: "u"}
	replicaSet := &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector}}
	later := replicaSet.DeepCopy()
	later.UID = "later"
	isUnknown := func(err error) bool { return errors.Is(err, ErrUnknownKind) }
	none := []runtime.Object{}
	for name, c := range map[string]struct {
		apiVersion, kind, name string
		objects                []runtime.Object
		want                   string // the keys
		fails                  func(error) bool
	}{
		"ReplicaSet": {"apps/v1", "ReplicaSet", "o", []runtime.Object{replicaSet}, "app vm/rack", nil},
		"DaemonSet": {"apps/v1", "DaemonSet", "o", []runtime.Object{&appsv1.DaemonSet{ObjectMeta: meta,
			Spec: appsv1.DaemonSetSpec{Selector: selector}}}, "app vm/rack", nil},
		"StatefulSet": {"apps/v1", "StatefulSet", "o", []runtime.Object{&appsv1.StatefulSet{ObjectMeta: meta,
			Spec: appsv1.StatefulSetSpec{Selector: selector}}}, "app vm/rack", nil},
		"Job": {"batch/v1", "Job", "o", []runtime.Object{&batchv1.Job{ObjectMeta: meta,
			Spec: batchv1.JobSpec{Selector: selector}}}, "app vm/rack", nil},
		"Job, without a selector": {"batch/v1", "Job", "o", []runtime.Object{&batchv1.Job{ObjectMeta: meta}}, "", nil},
		"ReplicationController": {"v1", "ReplicationController", "o", []runtime.Object{
			&corev1.ReplicationController{ObjectMeta: meta,
				Spec: corev1.ReplicationControllerSpec{Selector: selector.MatchLabels}}}, "app", nil},
		"Node, of a static pod": {"v1", "Node", "o", none, "", nil},
		"an earlier version": {"apps/v1beta2", "ReplicaSet", "o", []runtime.Object{replicaSet}, "app vm/rack",
			nil},
		"gone":                    {"apps/v1", "ReplicaSet", "o", none, "", apierrors.IsNotFound},
		"another one of its name": {"apps/v1", "ReplicaSet", "o", []runtime.Object{later}, "", apierrors.IsNotFound},
		"an invalid name":         {"apps/v1", "ReplicaSet", "o/..", none, "", apierrors.IsNotFound},
		"unknown kind":            {"example.com/v1", "CloneSet", "o", none, "", isUnknown},
		"a kind of this name":     {"example.com/v1", "ReplicaSet", "o", []runtime.Object{replicaSet}, "", isUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			kube := fake.NewClientset(c.objects...)
			keys, err := SelectorKeys(t.Context(), kube, "default", &metav1.OwnerReference{APIVersion: c.apiVersion,
				Kind: c.kind, Name: c.name, UID: "u"})
			slices.Sort(keys)
			if got := strings.Join(keys, " "); got != c.want || (keys == nil) != (err != nil) {
				t.Errorf("keys %q, want %q", keys, c.want)
			}
			if (err != nil) != (c.fails != nil) || err != nil && !c.fails(err) {
				t.Errorf("error %v", err)
			}
			for _, request := range kube.Actions() {
				if strings.Contains(c.name, "/") {
					t.Errorf("request %v", request)
				}
			}
		})
	}
}
