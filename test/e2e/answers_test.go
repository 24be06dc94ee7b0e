package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// access is how to ask for what a node's Service has behind it.
type access func(node string) question

// byName asks a LocalService's Services by their names: each address of headless ones, and often enough to meet every
// pod, by chance, behind a cluster IP.
func (s *scene) byName(ls *v1alpha1.LocalService) access {
	times := 0
	if ls.Spec.ClusterIP != corev1.ClusterIPNone {
		times = 20
	}
	return func(node string) question {
		return question{URL: fmt.Sprintf("http://%s.%s:%d/", serviceName(ls.Name, node), s.Namespace, appPort), Times: times}
	}
}

// byNodePort asks a LocalService's Services at the node ports that they have, of a node with this address.
func (s *scene) byNodePort(ls *v1alpha1.LocalService, address string) access {
	s.T.Helper()
	own, err := s.OwnedServices(s.Ctx(), ls)
	s.Must(err)
	return func(node string) question {
		port := 0
		if service := own[serviceName(ls.Name, node)]; service != nil {
			port = int(service.Spec.Ports[0].NodePort)
		}
		return question{URL: "http://" + net.JoinHostPort(address, strconv.Itoa(port)) + "/", Times: 20}
	}
}

// wrongNodeError is an answer from another node than the one in the Service's name: what must never happen.
type wrongNodeError struct {
	url, client, want string
	got               answer
}

func (e *wrongNodeError) Error() string {
	return fmt.Sprintf("WRONG NODE: %s, asked from %s, answered from %s, by pod %s; want %s", e.url, e.client, e.got.node, e.got.pod, e.want)
}

// checkAnswers asks for nodes' Services from one node. It returns nil if those that have ready pods were answered by
// all of these, and the others not at all.
func (s *scene) checkAnswers(ctx context.Context, client string, of []string, a access) error {
	byNode, err := s.podsByNode(ctx)
	if err != nil {
		return err
	}
	answers, err := askNodes(ctx, client, of, a)
	if err != nil {
		return err
	}
	var errs []error
	for _, node := range of {
		pods := map[string]bool{}
		for _, got := range answers[node].answers {
			pods[got.pod] = true
		}
		got, want := slices.Sorted(maps.Keys(pods)), slices.Sorted(slices.Values(byNode[node]))
		if !slices.Equal(got, want) || len(want) > 0 && answers[node].err != "" {
			errs = append(errs, fmt.Errorf("%s, asked from %s, was answered by %v (%s); ready on %s are %v",
				a(node).URL, client, got, answers[node].err, node, want))
		}
	}
	return errors.Join(errs...)
}

// nodeAnswers is what a node's Service has answered.
type nodeAnswers struct {
	answers []answer
	err     string
}

// askNodes asks for nodes' Services from one node. An answer from a wrong node is an error.
func askNodes(ctx context.Context, client string, of []string, a access) (map[string]nodeAnswers, error) {
	questions := make([]question, len(of))
	for i, node := range of {
		questions[i] = a(node)
	}
	replies, err := ask(ctx, client, questions)
	if err != nil {
		return nil, err
	}
	var errs []error
	all := map[string]nodeAnswers{}
	for i, node := range of {
		n := nodeAnswers{err: replies[i].Error}
		for _, body := range replies[i].Bodies {
			got, err := parseAnswer(body)
			if err == nil && got.node != node {
				err = &wrongNodeError{url: questions[i].URL, client: client, want: node, got: got}
			}
			errs = append(errs, err)
			n.answers = append(n.answers, got)
		}
		all[node] = n
	}
	return all, errors.Join(errs...)
}

// wantAnswers waits until, from each of some nodes, the Services of all nodes are answered by exactly their pods.
func (s *scene) wantAnswers(from, of []string, ways ...access) {
	s.T.Helper()
	for _, a := range ways {
		for _, client := range from {
			s.Eventually(fmt.Sprintf("from %s, every pod of %v can be reached through its node's name", client, of), func(ctx context.Context) error {
				err := s.checkAnswers(ctx, client, of, a)
				if _, wrong := errors.AsType[*wrongNodeError](err); wrong {
					return framework.Hopeless(err)
				}
				return err
			})
		}
	}
}

// watch asks for nodes' Services again and again until the function that it returns is called. An answer from a wrong
// node fails the test. When watch returns, something has been answered.
func (s *scene) watch(client string, of []string, ways ...access) (stop func()) {
	s.T.Helper()
	ctx, cancel := context.WithCancel(s.Ctx())
	answered := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		first := sync.OnceFunc(func() { close(answered) })
		for ctx.Err() == nil {
			for _, a := range ways {
				answers, err := askNodes(ctx, client, of, a)
				if wrong := (*wrongNodeError)(nil); errors.As(err, &wrong) {
					s.T.Error(wrong)
					return
				}
				if slices.ContainsFunc(slices.Collect(maps.Values(answers)), func(n nodeAnswers) bool { return len(n.answers) > 0 }) {
					first()
				}
			}
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		watching.Wait()
	})
	s.T.Cleanup(stop)
	select {
	case <-answered:
	case <-time.After(framework.DefaultTimeout):
		s.T.Fatalf("nothing was answered within %v\n%s", framework.DefaultTimeout, s.Describe(s.Namespace))
	}
	return stop
}
