package cache

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testobject"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

func TestCapacityCounts(t *testing.T) {
	service := func(namespace, clusterIP string) *Service {
		return trimmed(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace},
			Spec: corev1.ServiceSpec{ClusterIP: clusterIP, ClusterIPs: []string{clusterIP}}})
	}
	u := &Services{owned: map[owner]*group{}, namespaces: map[string]counts{}}
	capacity := func(ls *v1alpha1.LocalService, want int, expect plan.Capacity) {
		t.Helper()
		if diff := cmp.Diff(expect, u.capacity(ls, want)); diff != "" {
			t.Errorf("capacity (-want +got):\n%s", diff)
		}
	}
	headless, addressed := testobject.LocalService(), testobject.LocalService(testobject.Specs["cluster IP"])
	// A Service of an earlier LocalService of the name is none of this one's.
	earlier := generated(t, testobject.LocalService(testobject.Specs["cluster IP"], func(ls *v1alpha1.LocalService) {
		ls.UID = "earlier"
	}), "node0")
	capacity(headless, 0, plan.Capacity{})
	u.change(nil, service("default", "None"))
	u.change(nil, earlier)
	u.change(nil, service("other", "10.0.0.2"))
	u.change(nil, service("other", "")) // ExternalName
	capacity(headless, 5, plan.Capacity{InCluster: 9, InNamespace: 7})
	wanted := plan.Capacity{InCluster: 9, InNamespace: 7, ClusterIPsInNamespace: 6}
	capacity(addressed, 5, wanted)
	// As the Services come, the numbers stay.
	for i := range 3 {
		u.change(nil, generated(t, addressed, fmt.Sprint("node", i)))
	}
	capacity(addressed, 5, wanted)
	u.change(earlier, service("default", "None"))
	u.change(service("other", ""), nil)
	u.change(service("other", "10.0.0.2"), nil)
	for i := range 3 {
		u.change(generated(t, addressed, fmt.Sprint("node", i)), nil)
	}
	capacity(addressed, 0, plan.Capacity{InCluster: 2, InNamespace: 2})
	if len(u.namespaces) != 1 || len(u.owned) != 0 {
		t.Errorf("%d namespaces and %d LocalServices remembered, want 1 and 0", len(u.namespaces), len(u.owned))
	}
}
