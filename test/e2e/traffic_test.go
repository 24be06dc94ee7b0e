package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestEveryPodFromEveryNode tests the purpose of everything: a client on any node reaches, by a node's name and at each
// address of both IP families, all pods on that node and no others. One of the pods is static: its kubelet creates a
// mirror pod, and does not recreate that because of a label that is not in its file.
func TestEveryPodFromEveryNode(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	dual := func(ls *v1alpha1.LocalService) { ls.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack) }
	headless, clusterIP := s.localService("headless", dual), s.localService("virtual", framework.WithClusterIP, dual)
	nodePort := s.localService("port", framework.WithClusterIP,
		func(ls *v1alpha1.LocalService) { ls.Spec.Type = corev1.ServiceTypeNodePort })
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
	for name, way := range map[string]struct {
		url          access
		hasClusterIP bool
	}{
		"headless":   {s.byName(headless), false},
		"cluster IP": {s.byName(clusterIP), true},
		"hostname":   {s.byHostname(hostnames), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			s.wantBothFamilies(way.url, way.hasClusterIP)
			s.wantAnswers(nodes, nodes, way.url)
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

// wantBothFamilies waits until each node's name has one cluster IP of each family, or one address of each of its pods.
func (s *scene) wantBothFamilies(url access, hasClusterIP bool) {
	s.T.Helper()
	s.Eventually("the names have addresses of both families", func(ctx context.Context) error {
		pods, err1 := s.podsByNode(ctx)
		replies, err2 := ask(ctx, nodes[0], url.urls(nodes))
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		for i, node := range nodes {
			want, has := len(pods[node]), map[bool]int{} // by whether it is IPv6
			if hasClusterIP {
				want = 1
			}
			for _, address := range replies[i].Addresses {
				has[strings.Contains(address, ":")]++
			}
			if has[true] != want || has[false] != want {
				return fmt.Errorf("%s has the addresses %v; want %d of each family", node, replies[i].Addresses, want)
			}
		}
		return nil
	})
}
