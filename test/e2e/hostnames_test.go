package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// byHostname reaches the names of mode Hostnames.
func (s *scene) byHostname(ls *v1alpha1.LocalService) access {
	return func(name string) string {
		return fmt.Sprintf("http://%s.%s.%s:%d/", naming.Hostname(name), ls.Name, s.Namespace, appPort)
	}
}

// hostnames makes a LocalService with mode Hostnames for the demo app on all nodes.
func (s *scene) hostnames(name string, changes ...framework.Change) *v1alpha1.LocalService {
	s.T.Helper()
	return s.localService(name, append([]framework.Change{framework.WithHostnames}, changes...)...)
}

// TestHostnamesWithoutController tests that the names keep answering while no controller runs, and that the next one
// catches up with the changes.
func TestHostnamesWithoutController(t *testing.T) {
	s := newScene(t)
	ls := s.hostnames("demo")
	s.deploy(6)
	s.waitForPods(2, nodes...)
	s.wantAnswers(nodes, nodes, s.byHostname(ls))
	scale := func(replicas string) {
		t.Helper()
		_, err := s.Kubectl(context.Background(), "--namespace="+controllerNamespace, "scale",
			"deployment/"+controllerName,
			"--replicas="+replicas)
		if err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		scale("2")
		if err := waitRollout(context.Background()); err != nil {
			t.Error(err)
		}
	})
	scale("0")
	s.Eventually("no controller runs", func(ctx context.Context) error {
		list, err := s.Kube.CoreV1().Pods(controllerNamespace).List(ctx,
			metav1.ListOptions{LabelSelector: labels.Set{"app": controllerName}.String()})
		return errors.Join(err, framework.Equal("controllers", len(list.Items), 0))
	})
	s.wantAnswers(nodes, nodes, s.byHostname(ls))
	byNode := s.waitForPods(2, nodes...)
	s.MustKubectl("delete", "pod", byNode[nodes[0]][0], byNode[nodes[1]][0])
	s.waitForPods(2, nodes...)
	scale("2")
	s.wantAnswers(nodes, nodes, s.byHostname(ls))
}
