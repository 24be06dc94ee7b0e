package fanout

import (
	"net/netip"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Census counts the Services of a cluster as they come and go, so that nobody has to count them all. It is safe for
// concurrent use.
type Census struct {
	mu         sync.Mutex
	cluster    int
	addresses  map[corev1.IPFamily]int // cluster IPs
	namespaces map[string]*counts
	owned      map[types.UID]*counts // by the LocalService that controls them
}

type counts struct{ services, clusterIPs int }

// Change counts a Service that has come (before is nil), gone (after is nil), or changed.
func (c *Census) Change(before, after *Service) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before != nil {
		c.add(before, -1)
	}
	if after != nil {
		c.add(after, 1)
	}
}

func (c *Census) add(service *Service, n int) {
	if c.namespaces == nil {
		c.addresses, c.namespaces, c.owned = map[corev1.IPFamily]int{}, map[string]*counts{}, map[types.UID]*counts{}
	}
	clusterIPs := 0
	if service.hasClusterIP() {
		clusterIPs = n
	}
	for ip := range strings.SplitSeq(service.clusterIPs.Value(), ",") {
		if addr, err := netip.ParseAddr(ip); err == nil { // None is no address.
			c.addresses[familyOf(addr)] += n
		}
	}
	c.cluster += n
	count(c.namespaces, service.GetNamespace(), n, clusterIPs)
	if _, owner := service.LocalService(); owner != "" {
		count(c.owned, owner, n, clusterIPs)
	}
}

func count[K comparable](all map[K]*counts, key K, services, clusterIPs int) {
	of := all[key]
	if of == nil {
		of = &counts{}
		all[key] = of
	}
	of.services += services
	of.clusterIPs += clusterIPs
	if of.services == 0 {
		delete(all, key)
	}
}

// Owned is the number of Services that a LocalService controls.
func (c *Census) Owned(ls *v1alpha1.LocalService) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if owned := c.owned[ls.UID]; owned != nil {
		return owned.services
	}
	return 0
}

// Capacity is what there will be when a LocalService has the Services that it wants, whatever of them is there already:
// so it is the same all the time while they come. The CIDRs are those of the cluster's addresses for Services, nil if
// they are not known.
func (c *Census) Capacity(ls *v1alpha1.LocalService, want int, cidrs []*networkingv1.ServiceCIDR) Capacity {
	c.mu.Lock()
	defer c.mu.Unlock()
	var namespace, owned counts
	if of := c.namespaces[ls.Namespace]; of != nil {
		namespace = *of
	}
	if of := c.owned[ls.UID]; of != nil {
		owned = *of
	}
	out := Capacity{
		InCluster:      c.cluster - owned.services + want,
		InNamespace:    namespace.services - owned.services + want,
		FreeClusterIPs: -1,
	}
	if ls.Spec.ClusterIP == corev1.ClusterIPNone {
		return out
	}
	out.ClusterIPsInNamespace = namespace.clusterIPs - owned.clusterIPs + want
	out.NeededClusterIPs = max(want-owned.clusterIPs, 0)
	for _, family := range families(&ls.Spec, cidrs) {
		if free := max(sizeOf(cidrs, family)-c.addresses[family], 0); out.FreeClusterIPs < 0 || free < out.FreeClusterIPs {
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

// usable is the number of addresses that the API server allocates from a range: all but the first, and of IPv4 the last.
func usable(prefix netip.Prefix) int {
	const most = 30 // A larger range is never used up.
	n := 1<<min(prefix.Addr().BitLen()-prefix.Bits(), most) - 1
	if prefix.Addr().Is4() {
		n--
	}
	return max(n, 0)
}
