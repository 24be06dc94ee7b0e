package fanout

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestServiceIsWhole: what a cache keeps of our Services is all that plans read, and the same for all nodes.
func TestServiceIsWhole(t *testing.T) {
	for _, spec := range specNames() {
		t.Run(spec, func(t *testing.T) {
			tmpl := template(t, localService(specs[spec]))
			var first *Service
			for _, node := range []string{"node1", "ip-10-0-0-3.ec2.internal", "n"} {
				want := stored(tmpl.Service(node))
				want.Annotations[corev1.LastAppliedConfigAnnotation] = "{}"
				want.CreationTimestamp, want.ManagedFields = metav1.NewTime(time.Unix(1, 0)), []metav1.ManagedFieldsEntry{{Manager: "x"}}
				service := kept(want)
				want.Status, want.CreationTimestamp, want.ManagedFields = corev1.ServiceStatus{}, metav1.Time{}, nil
				delete(want.Annotations, corev1.LastAppliedConfigAnnotation)
				if diff := cmp.Diff(want, service.Full(nodeLabelKey)); diff != "" {
					t.Errorf("node %s (-want +got):\n%s", node, diff)
				}
				if first == nil {
					first = service
				}
				if service.shape != first.shape {
					t.Errorf("the Services of nodes %s and %s have nothing in common", first.node, node)
				}
			}
		})
	}
}

// TestShapesDiffer: Services that differ in what a plan decides share nothing, even if a value of one happens to be its
// node's name.
func TestShapesDiffer(t *testing.T) {
	tmpl := template(t, localService(func(ls *v1alpha1.LocalService) {
		ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: map[string]string{"team": "a"}}
		ls.Spec.Selector["app"] = "a"
	}))
	c := newCluster()
	for _, node := range []string{"a", "b"} {
		s := stored(tmpl.Service(node))
		s.Labels["team"], s.Spec.Selector["app"] = node, node
		c[s.Name] = s
	}
	if diff := cmp.Diff([]string{"Update demo-b"}, actions(Compute(c.input(tmpl, "a", "b")))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestServicesOfOthersTakeLittle: of the Services of others only what conflicts and counts need is kept.
func TestServicesOfOthersTakeLittle(t *testing.T) {
	controlled := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind, Name: "x", UID: "uid-x", Controller: new(true)}}
	}
	for name, c := range map[string]struct {
		owners []metav1.OwnerReference
		labels map[string]string
		whole  bool
		owner  string
	}{
		"of nobody":                       {nil, nil, false, ""},
		"of nobody, with the owner label": {nil, map[string]string{"owner": "demo"}, true, ""},
		"of another controller":           {controlled("Other"), map[string]string{"owner": "demo"}, false, ""},
		"of a LocalService":               {controlled("LocalService"), nil, true, "x"},
	} {
		t.Run(name, func(t *testing.T) {
			full := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s", UID: "u", ResourceVersion: "5", Labels: c.labels, OwnerReferences: c.owners},
				Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1", "fd00::1"}, Selector: map[string]string{"a": "b"}}}
			s := kept(full)
			if owner, _ := s.LocalService(); owner != c.owner || (s.shape.Value() != "") != c.whole {
				t.Errorf("controlled by LocalService %q, shape %q; want %q and a shape: %v", owner, s.shape.Value(), c.owner, c.whole)
			}
			if s.GetNamespace() != "n" || s.GetName() != "s" || s.UID() != "u" || s.GetResourceVersion() != "5" || !s.hasClusterIP() {
				t.Errorf("lost: %+v", s)
			}
		})
	}
}
