package cache

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

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
