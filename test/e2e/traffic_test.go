package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestEveryPodFromEveryNode tests the purpose of everything: a client on any node reaches, by a node's name, all pods
// on that node and no others. One of the pods is static: its kubelet creates a mirror pod, and does not recreate that
// because of a label that is not in its file.
func TestEveryPodFromEveryNode(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	headless, clusterIP := s.localService("headless"), s.localService("virtual", framework.WithClusterIP)
	nodePort := s.localService("port", framework.WithClusterIP,
		func(ls *v1alpha1.LocalService) { ls.Spec.Type = corev1.ServiceTypeNodePort })
	hostnames := s.hostnames("names")
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
	t.Run("headless", func(t *testing.T) { s.in(t).wantAnswers(nodes, nodes, s.byName(headless)) })
	t.Run("cluster IP", func(t *testing.T) { s.in(t).wantAnswers(nodes, nodes, s.byName(clusterIP)) })
	t.Run("hostname", func(t *testing.T) { s.in(t).wantAnswers(nodes, nodes, s.byHostname(hostnames)) })
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
