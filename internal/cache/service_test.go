package cache

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

func trimmed(t *testing.T, service *corev1.Service) *corev1.Service {
	t.Helper()
	out, err := trimService(service.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTrimService: of the Services that LocalServices control or may adopt, the cache keeps what plans read: for every
// field of the API, a plan from the cache is the same as from the API server. Of others it keeps what conflicts need.
func TestTrimService(t *testing.T) {
	for name, spec := range objects.Specs {
		templates, err := plan.NewTemplates(objects.LocalService(spec), nodeLabelKey, nil)
		if err != nil {
			t.Fatal(err)
		}
		whole := objects.Stored(templates[0].Service("node1"))
		whole.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
		want := whole.DeepCopy()
		want.ManagedFields, want.Status = nil, corev1.ServiceStatus{}
		if diff := cmp.Diff(want, trimmed(t, whole)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
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
		whole := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s", UID: "u", ResourceVersion: "5",
			Labels: c.labels, OwnerReferences: c.owners}, Spec: corev1.ServiceSpec{Selector: map[string]string{"a": "b"}}}
		want := whole.DeepCopy()
		if !c.whole {
			want.Labels, want.Spec = nil, corev1.ServiceSpec{}
		}
		if diff := cmp.Diff(want, trimmed(t, whole)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestSameService: two states of a Service are the same if only what nobody reads differs.
func TestSameService(t *testing.T) {
	templates, err := plan.NewTemplates(objects.LocalService(), nodeLabelKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := objects.Stored(templates[0].Service("node1"))
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
		"port":             {func(s *corev1.Service) { s.Spec.Ports[0].Port++ }, false},
		"terminating":      {func(s *corev1.Service) { s.DeletionTimestamp = new(metav1.Now()) }, false},
	} {
		after := before.DeepCopy()
		c.edit(after)
		if got := isSame(trimmed(t, before), trimmed(t, after)); got != c.same {
			t.Errorf("%s: the same: %v, want %v", name, got, c.same)
		}
	}
}
