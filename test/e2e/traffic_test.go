package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

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
	nodePort := s.localService("port", framework.OfType(corev1.ServiceTypeNodePort))
	hostnames := s.hostnames("names")
	missing := s.localService("missing", framework.WithClusterIP,
		func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].TargetPort = intstr.FromString("web") })
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
	t.Run("a port that no container has", func(t *testing.T) { s.in(t).wantPortsMissing(missing) })
	if now := s.GetPod(static); now.UID != mirror.UID {
		t.Errorf("the static pod's mirror was replaced: it was %+v, and is %+v", mirror.ObjectMeta, now.ObjectMeta)
	}
}

// wantPortsMissing waits until it is said of every node that no container has the port of its name: pods are ready, and
// nothing can connect.
func (s *scene) wantPortsMissing(ls *v1alpha1.LocalService) {
	s.T.Helper()
	s.wantServices(ls, nodes...)
	s.Eventually("the plugin and the status say that nothing answers", func(ctx context.Context) error {
		stdout, stderr, err := framework.PluginProgram.Run(ctx, nil, []string{"KUBECONFIG=" + s.Kubeconfig}, "nodes",
			ls.Name, "--namespace", s.Namespace, "-o", "json")
		if err != nil {
			return fmt.Errorf("%w: %s", err, stderr)
		}
		var list struct {
			Summary struct{ Nodes, Answering int }
			Items   []struct{ Reason, Message string }
		}
		if err := json.Unmarshal([]byte(stdout), &list); err != nil {
			return err
		}
		for _, item := range list.Items {
			if item.Reason != "PortsMissing" || !strings.Contains(item.Message, `has a port named "web"`) {
				return fmt.Errorf("the plugin says %s: %s", item.Reason, item.Message)
			}
		}
		now, err := s.LocalServiceClient().Get(ctx, ls.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := now.Status.Ready
		if want := fmt.Sprintf("0/%d", len(nodes)); ready != want || list.Summary.Answering != 0 ||
			len(list.Items) != len(nodes) {
			return fmt.Errorf("the status says %s, and the plugin %+v", ready, list.Summary)
		}
		return nil
	})
	answers, err := askNodes(s.Ctx(), nodes[0], nodes, s.byName(ls))
	s.Must(err)
	for node, answer := range answers {
		if len(answer.pods) > 0 || answer.err == "" {
			s.T.Errorf("%s: answered by %v", node, answer.pods)
		}
	}
}
