package cache

import (
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
)

// TestTrimPod: a labelled pod takes little memory. An unlabelled one keeps its labels, and when it was scheduled.
func TestTrimPod(t *testing.T) {
	if size := unsafe.Sizeof(Pod{}); size > 64 {
		t.Errorf("a labelled pod takes %d bytes", size)
	}
	controller := metav1.OwnerReference{Kind: "ReplicaSet", Name: "r", UID: "r", Controller: new(true)}
	for name, c := range map[string]struct {
		labels         []string
		node           string
		labelled       bool
		withController bool // is kept
	}{
		"unlabelled":       {[]string{"app=demo"}, "node1", false, false},
		"labelled":         {[]string{"app=demo", "vm/rack=node1"}, "node1", true, false},
		"wrongly labelled": {[]string{"app=demo", "vm/rack=node2"}, "node1", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			full := objects.Pod("p", c.node, objects.Labelled(c.labels...))
			full.OwnerReferences = []metav1.OwnerReference{{Name: "x"}, controller}
			full.Status.Conditions = append(full.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled,
				Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(17, 0)})
			p, err := trimPod(full, nodeLabelKey)
			if err != nil {
				t.Fatal(err)
			}
			if p.Node() != c.node || p.NeedsLabel() == c.labelled {
				t.Errorf("%+v", p)
			}
			if owner := p.Controller(); (owner != nil) != c.withController || owner != nil && owner.UID != "r" {
				t.Errorf("controller %v", owner)
			}
			if got := p.Scheduled().Unix() == 17; got == c.labelled {
				t.Errorf("scheduled at %s", p.Scheduled())
			}
			if whole := p.GetUID() == "uid-p" && p.Labels() == plan.LabelStringOf(full.Labels); whole == c.labelled {
				t.Errorf("UID %q and labels %q of a pod that is labelled: %v", p.GetUID(), p.Labels(), c.labelled)
			}
		})
	}
}
