package cache

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
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
	cidr := func(age time.Duration, cidrs ...string) *networkingv1.ServiceCIDR {
		return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
			Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
	}
	u := &Services{owned: map[owner]*group{}, namespaces: map[string]counts{}, addresses: map[corev1.IPFamily]int{}}
	capacity := func(ls *v1alpha1.LocalService, want int, cidrs []*networkingv1.ServiceCIDR, expect plan.Capacity) {
		t.Helper()
		if diff := cmp.Diff(expect, u.capacity(ls, want, cidrs)); diff != "" {
			t.Errorf("capacity (-want +got):\n%s", diff)
		}
	}
	headless, addressed := testobject.LocalService(), testobject.LocalService(testobject.Specs["cluster IP"])
	cidrs := []*networkingv1.ServiceCIDR{cidr(time.Hour, "10.1.0.0/30"), cidr(2*time.Hour, "10.0.0.0/29", "fd00::/112")}
	// A Service of an earlier LocalService of the name is none of this one's.
	earlier := generated(t, testobject.LocalService(testobject.Specs["cluster IP"], func(ls *v1alpha1.LocalService) {
		ls.UID = "earlier"
	}), "node0")
	capacity(headless, 0, nil, plan.Capacity{FreeClusterIPs: -1})
	u.change(nil, service("default", "None"))
	u.change(nil, earlier)
	u.change(nil, service("other", "10.0.0.2"))
	u.change(nil, service("other", "")) // ExternalName
	capacity(headless, 5, cidrs, plan.Capacity{InCluster: 9, InNamespace: 7, FreeClusterIPs: -1})
	wanted := plan.Capacity{InCluster: 9, InNamespace: 7, ClusterIPsInNamespace: 6, NeededClusterIPs: 5,
		FreeClusterIPs: 6 + 2 - 2}
	capacity(addressed, 5, cidrs, wanted)
	// As the Services come, the numbers stay, but for what is still needed and free.
	for i := range 3 {
		u.change(nil, generated(t, addressed, fmt.Sprint("node", i)))
	}
	wanted.NeededClusterIPs, wanted.FreeClusterIPs = 2, 3
	capacity(addressed, 5, cidrs, wanted)
	// Addresses of the other family are another matter.
	wanted.FreeClusterIPs = 1<<16 - 1
	capacity(testobject.LocalService(testobject.Specs["IPv6"]), 5, cidrs, wanted)
	wanted.FreeClusterIPs = 3
	capacity(testobject.LocalService(testobject.Specs["dual stack by families"]), 5, cidrs, wanted)
	wanted.FreeClusterIPs = 1 // of the scarcer family
	capacity(testobject.LocalService(testobject.Specs["cluster IP"], func(ls *v1alpha1.LocalService) {
		ls.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	}), 5, []*networkingv1.ServiceCIDR{cidr(time.Hour, "10.0.0.0/24", "fd00::/127")}, wanted)
	wanted.FreeClusterIPs = 0 // of the first family, of which none is left
	capacity(testobject.LocalService(testobject.Specs["cluster IP"], func(ls *v1alpha1.LocalService) {
		ls.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	}), 5, []*networkingv1.ServiceCIDR{cidr(time.Hour, "10.0.0.0/30", "fd00::/112")}, wanted)
	u.change(earlier, service("default", "None"))
	u.change(service("other", ""), nil)
	u.change(service("other", "10.0.0.2"), nil)
	for i := range 3 {
		u.change(generated(t, addressed, fmt.Sprint("node", i)), nil)
	}
	capacity(addressed, 0, cidrs, plan.Capacity{InCluster: 2, InNamespace: 2, FreeClusterIPs: 8})
	if len(u.namespaces) != 1 || len(u.owned) != 0 {
		t.Errorf("%d namespaces and %d LocalServices remembered, want 1 and 0", len(u.namespaces), len(u.owned))
	}
}
