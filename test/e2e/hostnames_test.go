package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/internal/plan"
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

// TestHostnamesChangeOfMode changes the mode in both directions while clients on all nodes send requests: a client that
// uses the old name until it is gone, and then the new one, always gets an answer, and never from a wrong node.
func TestHostnamesChangeOfMode(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	ls := s.localService("demo")
	s.deploy(3)
	s.waitForPods(1, nodes...)
	s.wantServices(ls, nodes...)
	s.wantAnswers(nodes, nodes, s.byName(ls))
	stop := s.watchEither(nodes, s.byName(ls), s.byHostname(ls))
	s.Update(ls.Name, framework.WithHostnames)
	s.WaitServices(ls, ls.Name, plan.ServiceName(ls.Name, plan.Source, ""))
	s.wantAnswers(nodes, nodes, s.byHostname(ls))
	stop()

	stop = s.watchEither(nodes, s.byHostname(ls), s.byName(ls))
	s.Update(ls.Name, func(ls *v1alpha1.LocalService) { ls.Spec.Mode = v1alpha1.ModeServices })
	s.wantServices(ls, nodes...)
	s.wantAnswers(nodes, nodes, s.byName(ls))
	stop()
}

// watchEither requests, from each of some nodes, all nodes' names of two kinds at a time, until the function that it
// returns is called. It returns when all clients have started. A node for which neither name answers fails the test,
// and so does an answer from a wrong node.
func (s *scene) watchEither(from []string, before, after access) (stop func()) {
	var stopped atomic.Bool
	var watching, begun sync.WaitGroup
	for _, client := range from {
		begun.Add(1)
		watching.Go(func() {
			asked, begin := 0, sync.OnceFunc(begun.Done)
			defer begin()
			for !stopped.Load() { // What is under way then counts.
				rounds, err := askEither(s.Ctx(), client, before, after)
				if err != nil && s.Ctx().Err() == nil {
					s.T.Error(err)
				}
				asked += rounds
				begin()
			}
			s.T.Logf("from %s, all names were asked for %d times", client, asked)
		})
	}
	stop = sync.OnceFunc(func() {
		stopped.Store(true)
		watching.Wait()
	})
	s.T.Cleanup(stop)
	begun.Wait()
	return stop
}

// askEither sends requests for a while, and returns how many.
func askEither(ctx context.Context, client string, ways ...access) (rounds int, err error) {
	var urls []string
	for _, url := range ways {
		for _, node := range nodes {
			urls = append(urls, url(node))
		}
	}
	replies, err := askRounds(ctx, watchCommand, client, urls)
	var errs []error
	for _, round := range replies {
		problems := map[string][]string{} // of the names of a node
		for i := range round {
			node := nodes[i%len(nodes)]
			_, wrong := round[i].podsOn(node, urls[i], client)
			errs = append(errs, wrong)
			if round[i].Error == "" {
				continue
			}
			if problems[node] = append(problems[node], round[i].Error); len(problems[node]) == len(ways) {
				errs = append(errs, fmt.Errorf("from %s, %s was reached by no name: %q", client, node, problems[node]))
			}
		}
	}
	return len(replies), errors.Join(append(errs, err)...)
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
