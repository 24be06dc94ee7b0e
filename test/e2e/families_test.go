package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestBothFamilies tests names with addresses of both IP families, with requests to each address.
func TestBothFamilies(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	dual := func(ls *v1alpha1.LocalService) { ls.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack) }
	s.deploy(int32(len(nodes)))
	ways := map[string]access{
		"headless":    s.byName(s.localService("headless", dual)),
		"cluster IPs": s.byName(s.localService("addresses", framework.WithClusterIP, dual)),
		"hostnames":   s.byHostname(s.hostnames("names", dual)),
	}
	s.waitForPods(1, nodes...)
	for what, url := range ways {
		for _, client := range nodes {
			s.Eventually(fmt.Sprintf("%s of both families, from %s", what, client), func(ctx context.Context) error {
				if err := checkFamilies(ctx, client, url); err != nil {
					return err
				}
				return s.checkAnswers(ctx, client, nodes, url)
			})
		}
	}
}

// checkFamilies returns nil if the names of all nodes have an address of each family.
func checkFamilies(ctx context.Context, client string, url access) error {
	urls := url.urls(nodes)
	replies, err := ask(ctx, client, urls)
	if err != nil {
		return err
	}
	for i, r := range replies {
		has := map[bool]int{} // by whether it is IPv6
		for _, address := range r.Addresses {
			ip, err := netip.ParseAddr(address)
			if err != nil {
				return err
			}
			has[ip.Is6()]++
		}
		if has[true] != 1 || has[false] != 1 {
			return fmt.Errorf("%s has the addresses %v (%s)", urls[i], r.Addresses, r.Error)
		}
	}
	return nil
}
