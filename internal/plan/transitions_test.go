package plan

import (
	stdcmp "cmp"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
)

// TestImmutableTransitions: which changes of a spec the API server accepts as an update of a Service, and which field
// keeps it from others.
func TestImmutableTransitions(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     string // "" for no update
	}{
		{"headless", "cluster IP", "clusterIP"},
		{"cluster IP", "headless", "clusterIP"},
		{"headless", "node port", "clusterIP"},
		{"node port", "headless", "clusterIP"},
		{"headless", "load balancer", "clusterIP"},
		{"load balancer, everything set", "headless", "clusterIP"},
		{"cluster IP", "node port", "Update"},
		{"node port", "cluster IP", "Update"},
		{"cluster IP", "load balancer", "Update"},
		{"cluster IP", "load balancer, everything set", "Update"}, // A class can be set with the type.
		{"load balancer, everything set", "cluster IP", "Update"},
		{"node port", "load balancer", "Update"},
		{"load balancer", "node port", "Update"},
		{"load balancer", "load balancer, everything set", "loadBalancerClass"}, // A class cannot be set later.
		{"load balancer, everything set", "load balancer", "Update"},            // The class stays.
		{"cluster IP", "dual stack, preferred", "Update"},
		{"dual stack, preferred", "cluster IP", "Update"},
		{"cluster IP", "dual stack by families", "Update"},
		{"dual stack by families", "cluster IP", "Update"},
		{"cluster IP", "IPv6", "ipFamilies"}, // Another first family.
		{"IPv6", "dual stack by families", "ipFamilies"},
		{"IPv6", "dual stack, preferred", "Update"}, // No family is requested: the first one stays.
		{"IPv6", "cluster IP", ""},
	} {
		before, after := template(t, localService(specs[c.from])), template(t, localService(specs[c.to]))
		action, found := changeOn(after, stored(before.Service("node2")), "node2")
		if got := stdcmp.Or(found.immutable, string(action)); got != c.want {
			t.Errorf("from %q to %q: %q, want %q", c.from, c.to, got, c.want)
		}
	}
}

// TestAdoption: a Service is adopted if, and only if, nobody controls it, its owner label has the LocalService's name,
// and its selector has the node's. Other external changes make no difference.
func TestAdoption(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*corev1.Service)
		want Action
	}{
		"as it was left":                      {func(*corev1.Service) {}, Adopt},
		"with another port":                   {func(s *corev1.Service) { s.Spec.Ports[0].Port = 1 }, Adopt},
		"without annotations":                 {func(s *corev1.Service) { s.Annotations = nil }, Adopt},
		"with an owner that does not control": {func(s *corev1.Service) { s.OwnerReferences = owner(false) }, Adopt},
		"with an address, and headless now": {func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.96.0.1", []string{"10.96.0.1"}
		}, Adopt}, // This is refused: see TestImmutable in package writer.
		"controlled by somebody else":       {func(s *corev1.Service) { s.OwnerReferences = owner(true) }, Conflict},
		"of a LocalService of another name": {func(s *corev1.Service) { s.Labels["owner"] = "other" }, Conflict},
		"without the owner label":           {func(s *corev1.Service) { delete(s.Labels, "owner") }, Conflict},
		"of another node": {func(s *corev1.Service) { s.Spec.Selector[nodeLabelKey] = "node1" },
			Conflict},
		"without a selector": {func(s *corev1.Service) { s.Spec.Selector = nil }, Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			tmpl := template(t, localService())
			left := stored(tmpl.Service("node2"))
			left.OwnerReferences = nil
			c.edit(left)
			plan := Compute(newCluster(left).input(tmpl, "node2"))
			if len(all(plan)) != 1 || len(plan.Changes[c.want]) != 1 {
				t.Errorf("got %v, want %s", actions(plan), c.want)
			}
		})
	}
}

// TestAdoptionKeepsOwners: an adoption replaces only the LocalService's own reference, whatever the names of others.
func TestAdoptionKeepsOwners(t *testing.T) {
	tmpl := template(t, localService())
	left := stored(tmpl.Service("node2"))
	ours := left.OwnerReferences[0]
	theirs := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: ours.Name, UID: "theirs"}
	idle := ours
	idle.Controller = nil
	left.OwnerReferences = []metav1.OwnerReference{idle, theirs}
	_, adopted := patched(t, tmpl, left, "node2")
	if diff := cmp.Diff([]metav1.OwnerReference{theirs, ours}, adopted.OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}

func owner(controls bool) []metav1.OwnerReference {
	theirs := objects.ControlledBy("v1", "ConfigMap", "theirs")
	theirs[0].Controller = &controls
	return theirs
}
