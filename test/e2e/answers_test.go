package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// access returns the URL that reaches the pods behind a node's Service.
type access func(node string) (url string)

// urls returns the URLs of some nodes.
func (url access) urls(of []string) []string {
	urls := make([]string, len(of))
	for i, node := range of {
		urls[i] = url(node)
	}
	return urls
}

// byName reaches a LocalService's Services by their names.
func (s *scene) byName(ls *v1alpha1.LocalService) access {
	return func(node string) string {
		return fmt.Sprintf("http://%s.%s:%d/", naming.ServiceName(ls.Name, node), s.Namespace, appPort)
	}
}

// byHostname reaches the names of mode Hostnames.
func (s *scene) byHostname(ls *v1alpha1.LocalService) access {
	return func(name string) string {
		return fmt.Sprintf("http://%s.%s.%s:%d/", naming.Hostname(name), ls.Name, s.Namespace, appPort)
	}
}

// byNodePort reaches a LocalService's Services by their node ports, at a node with this address.
func (s *scene) byNodePort(ls *v1alpha1.LocalService, address string) access {
	own := s.MustOwn(ls, len(nodes))
	return func(node string) string {
		port := int(own[naming.ServiceName(ls.Name, node)].Spec.Ports[0].NodePort)
		return "http://" + net.JoinHostPort(address, strconv.Itoa(port)) + "/"
	}
}

// errWrongNode reports an answer from a node other than the one in the Service's name, which must never happen.
var errWrongNode = errors.New("WRONG NODE")

// checkAnswers sends requests to nodes' Services from one node. It returns nil if exactly their ready pods answered,
// and no pod answered for a Service without ready pods.
func (s *scene) checkAnswers(ctx context.Context, client string, of []string, url access) error {
	byNode, err := s.podsByNode(ctx)
	if err != nil {
		return err
	}
	urls := url.urls(of)
	replies, err := ask(ctx, client, urls)
	if err != nil {
		return err
	}
	var errs []error
	for i, node := range of {
		var got []string
		for _, body := range replies[i].Bodies {
			m := answerPattern.FindStringSubmatch(body)
			if m == nil {
				return fmt.Errorf("%s: the answer %q is not the demo app's", urls[i], body)
			}
			if m[2] != node {
				return framework.Hopeless(fmt.Errorf("%w: %s, asked from %s, answered from %s, by pod %s; want %s",
					errWrongNode, urls[i], client, m[2], m[1], node))
			}
			got = append(got, m[1])
		}
		slices.Sort(got)
		got = slices.Compact(got)
		want := slices.Sorted(slices.Values(byNode[node]))
		if !slices.Equal(got, want) || len(want) > 0 && replies[i].Error != "" {
			errs = append(errs, fmt.Errorf("%s, asked from %s, was answered by %v (%s); ready on %s are %v",
				urls[i], client, got, replies[i].Error, node, want))
		}
	}
	return errors.Join(errs...)
}

// wantAnswers waits until, from each of some nodes, the Services of all nodes are answered by exactly their pods.
func (s *scene) wantAnswers(from, of []string, ways ...access) {
	s.T.Helper()
	for _, url := range ways {
		for _, client := range from {
			what := fmt.Sprintf("from %s, every pod of %v can be reached through its node's name", client, of)
			s.Eventually(what, func(ctx context.Context) error { return s.checkAnswers(ctx, client, of, url) })
		}
	}
}

// watch sends requests to nodes' Services repeatedly until the function that it returns is called, or the test ends.
// They may fail, but no answer may come from a wrong node.
func (s *scene) watch(client string, of []string, ways ...access) (stop func()) {
	s.T.Helper()
	urls := map[string]string{}
	for _, way := range ways {
		for _, node := range of {
			urls[way(node)] = node
		}
	}
	return startAsker(s.T, "names", client, asker{Pause: 200 * time.Millisecond, MayFail: true, URLs: urls})
}
