package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestServiceIsWhole: the cache keeps everything of our Services that plans read, and shares it between nodes.
func TestServiceIsWhole(t *testing.T) {
	for _, spec := range specNames() {
		t.Run(spec, func(t *testing.T) {
			var first *Service
			for _, node := range []string{"node1", "ip-10-0-0-3.ec2.internal", "n"} {
				want := stored(template(t, localService(specs[spec])).Service(node))
				want.Annotations[corev1.LastAppliedConfigAnnotation] = "{}"
				want.CreationTimestamp, want.ManagedFields = metav1.NewTime(time.Unix(1, 0)),
					[]metav1.ManagedFieldsEntry{{Manager: "x"}}
				service := kept(want)
				want.Status, want.CreationTimestamp, want.ManagedFields = corev1.ServiceStatus{}, metav1.Time{}, nil
				delete(want.Annotations, corev1.LastAppliedConfigAnnotation)
				if diff := cmp.Diff(want, Whole(service, nodeLabelKey)); diff != "" {
					t.Errorf("node %s (-want +got):\n%s", node, diff)
				}
				if first == nil {
					first = service
				}
				if service.content != first.content && spec != "variables" {
					t.Errorf("the Services of nodes %s and %s share no content", first.Node.Value(), node)
				}
			}
		})
	}
}

// TestSameService: only the resource version may differ between two states of a Service that are the same to us.
func TestSameService(t *testing.T) {
	ls := localService()
	for name, c := range map[string]struct {
		edit func(*corev1.Service)
		same bool
	}{
		"resource version": {func(s *corev1.Service) { s.ResourceVersion = "8" }, true},
		"status":           {func(s *corev1.Service) { s.Status.LoadBalancer.Ingress = nil }, true},
		"UID":              {func(s *corev1.Service) { s.UID = "another" }, false},
		"label":            {func(s *corev1.Service) { s.Labels["x"] = "y" }, false},
		"controller":       {func(s *corev1.Service) { s.OwnerReferences = nil }, false},
		"node":             {func(s *corev1.Service) { s.Annotations[v1alpha1.NodeAnnotationKey] = "x" }, false},
		"address":          {func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"10.0.0.1"} }, false},
		"terminating":      {func(s *corev1.Service) { s.DeletionTimestamp = new(metav1.Now()) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			whole := stored(template(t, ls).Service("node1"))
			before := kept(whole)
			c.edit(whole)
			if got := before.Same(kept(whole)); got != c.same {
				t.Errorf("the same: %v, want %v", got, c.same)
			}
		})
	}
}

// TestTrimServicesOfOthers: of the Services of others, only what conflicts need is kept.
func TestTrimServicesOfOthers(t *testing.T) {
	controlled := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind, Name: "x",
			UID: "uid-x", Controller: new(true)}}
	}
	for name, c := range map[string]struct {
		owners []metav1.OwnerReference
		labels map[string]string
		whole  bool
	}{
		"of nobody":                       {nil, nil, false},
		"of nobody, with the owner label": {nil, map[string]string{"owner": "demo"}, true},
		"of another controller":           {controlled("Other"), map[string]string{"owner": "demo"}, false},
		"of a LocalService":               {controlled("LocalService"), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			full := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s", UID: "u",
				ResourceVersion: "5", Labels: c.labels, OwnerReferences: c.owners},
				Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1", "fd00::1"},
					Selector: map[string]string{"a": "b"}}}
			s := kept(full)
			if got := s.content.Value() != ""; got != c.whole {
				t.Errorf("kept whole: %v, want %v", got, c.whole)
			}
			if s.Controller.Value() != ControllerOf(full) {
				t.Errorf("controller %v", s.Controller.Value())
			}
			if s.GetNamespace() != "n" || s.GetName() != "s" || s.UID != "u" || s.GetResourceVersion() != "5" ||
				c.whole != (s.clusterIPs.Value() == "10.96.0.1,fd00::1") {
				t.Errorf("lost: %+v", s)
			}
		})
	}
}
