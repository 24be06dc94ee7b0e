package cache

import (
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Usage counts the Services of the cluster as they come and go, so that nobody has to count them all. It is safe for
// concurrent use.
type Usage struct {
	mu         sync.Mutex
	cluster    int
	addresses  map[corev1.IPFamily]int // cluster IPs
	namespaces map[string]counts
	owned      map[types.UID]counts // by the LocalService that controls them
}

type counts struct{ services, clusterIPs int }

func newUsage() *Usage {
	return &Usage{addresses: map[corev1.IPFamily]int{}, namespaces: map[string]counts{}, owned: map[types.UID]counts{}}
}

// change counts a Service that has come (before is nil), gone (after is nil), or changed.
func (u *Usage) change(before, after *Service) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if before != nil {
		u.add(before, -1)
	}
	if after != nil {
		u.add(after, 1)
	}
}

func (u *Usage) add(service *Service, n int) {
	c := counts{services: n}
	if service.hasClusterIP() {
		c.clusterIPs = n
	}
	for _, ip := range service.ClusterIPs() {
		if addr, err := netip.ParseAddr(ip); err == nil { // None is none.
			u.addresses[familyOf(addr)] += n
		}
	}
	u.cluster += n
	add(u.namespaces, service.GetNamespace(), c)
	if controller := service.Controller(); controller.IsLocalService() {
		add(u.owned, controller.UID, c)
	}
}

func add[K comparable](all map[K]counts, key K, c counts) {
	sum := counts{all[key].services + c.services, all[key].clusterIPs + c.clusterIPs}
	if all[key] = sum; sum.services == 0 {
		delete(all, key)
	}
}

// capacity takes the ServiceCIDRs of the cluster, none if they are not known.
func (u *Usage) capacity(ls *v1alpha1.LocalService, want int, cidrs []*networkingv1.ServiceCIDR) plan.Capacity {
	u.mu.Lock()
	defer u.mu.Unlock()
	namespace, owned := u.namespaces[ls.Namespace], u.owned[ls.UID]
	out := plan.Capacity{
		InCluster:      u.cluster - owned.services + want,
		InNamespace:    namespace.services - owned.services + want,
		FreeClusterIPs: -1,
	}
	if ls.Spec.ClusterIP == corev1.ClusterIPNone {
		return out
	}
	out.ClusterIPsInNamespace = namespace.clusterIPs - owned.clusterIPs + want
	out.NeededClusterIPs = max(want-owned.clusterIPs, 0)
	for _, family := range families(&ls.Spec, cidrs) {
		if free := max(sizeOf(cidrs, family)-u.addresses[family], 0); out.FreeClusterIPs < 0 ||
			free < out.FreeClusterIPs {
			out.FreeClusterIPs = free
		}
	}
	return out
}

// families are those of which each Service needs an address: the ones that the spec names, or the cluster's first one,
// which is that of the oldest CIDR's first range. None are, if the cluster's are not known.
func families(spec *v1alpha1.LocalServiceSpec, cidrs []*networkingv1.ServiceCIDR) []corev1.IPFamily {
	var oldest *networkingv1.ServiceCIDR
	for _, cidr := range cidrs {
		if oldest == nil || cidr.CreationTimestamp.Before(&oldest.CreationTimestamp) {
			oldest = cidr
		}
	}
	if oldest == nil {
		return nil
	}
	if spec.IPFamilyPolicy != nil && *spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack {
		return []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	if len(spec.IPFamilies) > 0 {
		return spec.IPFamilies
	}
	for _, cidr := range oldest.Spec.CIDRs {
		if prefix, err := netip.ParsePrefix(cidr); err == nil {
			return []corev1.IPFamily{familyOf(prefix.Addr())}
		}
	}
	return nil
}

func familyOf(addr netip.Addr) corev1.IPFamily {
	if addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// sizeOf is the number of addresses of a family in CIDRs.
func sizeOf(cidrs []*networkingv1.ServiceCIDR, family corev1.IPFamily) int {
	size := 0
	for _, cidr := range cidrs {
		for _, s := range cidr.Spec.CIDRs {
			if prefix, err := netip.ParsePrefix(s); err == nil && familyOf(prefix.Addr()) == family {
				size += usable(prefix)
			}
		}
	}
	return size
}

// usable is the number of addresses that the API server allocates from a range: all but the first, and of IPv4 the
// last.
func usable(prefix netip.Prefix) int {
	const most = 30 // A larger range is never used up.
	n := 1<<min(prefix.Addr().BitLen()-prefix.Bits(), most) - 1
	if prefix.Addr().Is4() {
		n--
	}
	return max(n, 0)
}
