package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestEveryPodFromEveryNode tests the purpose of everything: a client on any node reaches, by a node's name and at its
// addresses of both IP families, all pods on that node and no others. One of the pods is static: its kubelet creates a
// mirror pod, and does not recreate that because of a label that is not in its file.
func TestEveryPodFromEveryNode(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	dual := func(ls *v1alpha1.LocalService) { ls.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack) }
	headless, clusterIP := s.localService("headless", dual), s.localService("virtual", framework.WithClusterIP, dual)
	nodePort := s.localService("port", framework.OfType(corev1.ServiceTypeNodePort))
	hostnames := s.hostnames("names", dual)
	s.deploy(6)
	s.waitForPods(2, nodes...)
	for _, ls := range []*v1alpha1.LocalService{headless, clusterIP, nodePort} {
		s.wantServices(ls, nodes...)
	}
	static := s.staticPod(nodes[1], nil)
	s.WaitLabelled(static, nodes[1])
	mirror := s.GetPod(static)
	s.Eventually("the static pod is ready", func(ctx context.Context) error {
		byNode, err := s.podsByNode(ctx)
		if err == nil && !slices.Contains(byNode[nodes[1]], static) {
			err = fmt.Errorf("there are %v", byNode)
		}
		return err
	})
	for what, url := range map[string]access{"headless": s.byName(headless), "cluster IP": s.byName(clusterIP),
		"hostname": s.byHostname(hostnames)} {
		t.Run(what, func(t *testing.T) {
			s := s.in(t)
			for _, client := range nodes {
				s.Eventually("names have addresses of both families, from "+client, func(ctx context.Context) error {
					return checkFamilies(ctx, client, url)
				})
			}
			s.wantAnswers(nodes, nodes, url)
		})
	}
	t.Run("node port", func(t *testing.T) {
		s := s.in(t)
		for i, client := range nodes {
			// At the address of one node, from another one: kube-proxy forwards to the third.
			addresses := s.MustKubectl("get", "node", nodes[(i+1)%len(nodes)],
				`--output=jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`) // of IPv4 first
			s.wantAnswers([]string{client}, nodes, s.byNodePort(nodePort, strings.Fields(addresses)[0]))
		}
	})
	if now := s.GetPod(static); now.UID != mirror.UID {
		t.Errorf("the static pod's mirror was replaced: it was %+v, and is %+v", mirror.ObjectMeta, now.ObjectMeta)
	}
}

// checkFamilies returns nil if the names of all nodes have as many addresses of each family.
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
		if has[true] == 0 || has[true] != has[false] {
			return fmt.Errorf("%s has the addresses %v (%s)", urls[i], r.Addresses, r.Error)
		}
	}
	return nil
}
