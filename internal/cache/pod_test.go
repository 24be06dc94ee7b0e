package cache

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTrimPod: a labelled pod takes little memory. An unlabelled one keeps its labels.
func TestTrimPod(t *testing.T) {
	controller := metav1.OwnerReference{Kind: "ReplicaSet", Name: "r", UID: "r", Controller: new(true)}
	for name, c := range map[string]struct {
		labels         map[string]string
		node           string
		labelled       bool
		withController bool // is kept
	}{
		"unlabelled":       {map[string]string{"app": "demo"}, "node1", false, false},
		"labelled":         {map[string]string{"app": "demo", "vm/rack": "node1"}, "node1", true, false},
		"wrongly labelled": {map[string]string{"app": "demo", "vm/rack": "node2"}, "node1", false, true},
		"not scheduled":    {map[string]string{"vm/rack": ""}, "", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := trimPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u",
				Labels: c.labels, OwnerReferences: []metav1.OwnerReference{{Name: "x"}, controller}},
				Spec: corev1.PodSpec{NodeName: c.node}}, nodeLabelKey)
			if err != nil {
				t.Fatal(err)
			}
			if p.Node() != c.node || p.Labelled() != c.labelled {
				t.Errorf("%+v", p)
			}
			if owner := p.Controller(); (owner != nil) != c.withController || owner != nil && owner.UID != "r" {
				t.Errorf("controller %v", owner)
			}
			if whole := p.GetUID() == "u" && p.Labels() == labelsOf(c.labels); whole == c.labelled {
				t.Errorf("UID %q and labels %q of a pod that is labelled: %v", p.GetUID(), p.Labels(), c.labelled)
			}
		})
	}
}
