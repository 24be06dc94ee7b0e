package e2e

import (
	"context"
	"slices"
	"testing"

	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// addedNode is a node that is added and removed. As on many clouds, its name cannot be part of a Service's name as it
// is.
const addedNode = "k8s04.example.internal"

// TestNodeComesAndGoes adds a node to the cluster, drains it, powers it off, removes it and adds it again. The Services
// follow, and no client ever gets an answer from a wrong node.
func TestNodeComesAndGoes(t *testing.T) {
	s := newScene(t)
	ls, virtual := s.localService("demo"), s.localService("virtual", framework.WithClusterIP)
	ways := []access{s.byName(ls), s.byName(virtual), s.byHostname(s.hostnames("names"))}
	all := append(slices.Clone(nodes), addedNode)
	s.deploy(3)
	s.waitForPods(1, nodes...)
	s.wantServices(ls, nodes...)
	s.wantAnswers(nodes, nodes, ways...)
	stop := s.watch(nodes[0], all, ways...)

	t.Cleanup(s.removeNode)
	s.startNode()
	s.wantServices(ls, all...)
	s.wantServices(virtual, all...)
	s.MustKubectl("scale", "deployment/demo", "--replicas=4")
	s.waitForPods(1, all...)
	s.wantAnswers(all, all, ways...)

	// Drained, it still has its Services, without endpoints.
	s.MustKubectl("drain", addedNode, "--timeout=2m")
	s.wantServices(ls, all...)
	s.MustKubectl("scale", "deployment/demo", "--replicas=3")
	s.waitForPods(1, nodes...)
	s.wantAnswers(all, all, ways...)
	s.MustKubectl("uncordon", addedNode)
	s.MustKubectl("scale", "deployment/demo", "--replicas=8")
	s.waitForPods(2, all...)
	s.wantAnswers(all, all, ways...)

	// Once it is powered off and removed, its Services are gone, and the others are not affected.
	before := s.GetService(naming.ServiceName(virtual.Name, addedNode)).Spec.ClusterIP
	_, _, err := s.Playground(s.Ctx(), nil, "node", "stop", addedNode)
	s.Must(err)
	s.MustKubectl("delete", "node", addedNode)
	s.wantServices(ls, nodes...)
	s.wantServices(virtual, nodes...)
	s.wantAnswers(nodes, nodes, ways...)

	s.startNode()
	s.wantServices(ls, all...)
	s.wantServices(virtual, all...)
	if after := s.GetService(naming.ServiceName(virtual.Name, addedNode)).Spec.ClusterIP; after == before {
		t.Errorf("the node that is registered again has the cluster IP %s, as before", after)
	}
	s.wantAnswers(all, all, ways...)
	stop()
}

func (s *scene) startNode() {
	s.T.Helper()
	_, _, err := s.Playground(s.Ctx(), nil, "node", "start", addedNode)
	s.Must(err)
}

// removeNode ensures that addedNode does not exist when other tests run.
func (s *scene) removeNode() {
	ctx, cancel := context.WithTimeout(context.Background(), framework.DefaultTimeout)
	defer cancel()
	_, _, _ = s.Playground(ctx, nil, "node", "stop", addedNode) // Fails if it is stopped already.
	if _, err := s.Kubectl(ctx, "delete", "node", addedNode, "--ignore-not-found"); err != nil {
		s.T.Error(err)
	}
}
