package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestDNS makes the plugin query CoreDNS, through a port-forward, for the names of both modes.
func TestDNS(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	headless := s.localService("demo")
	virtual := s.localService("virtual", framework.WithClusterIP)
	hostnames := s.hostnames("names")
	s.deploy(int32(len(nodes)))
	s.waitForPods(1, nodes...)
	all := map[string]string{}
	for _, node := range nodes {
		all[node] = "Answers"
	}
	for _, ls := range []*v1alpha1.LocalService{headless, virtual, hostnames} {
		s.wantDNS(ls, all)
	}

	stdout, stderr, err := s.nodesWithDNS(t.Context(), s.Kubeconfig, hostnames, "--cluster-domain", "example.org")
	if err == nil || !strings.Contains(stderr, "either example.org is not the domain of the cluster") {
		t.Errorf("with another domain: %v: %s\n%s", err, stderr, stdout)
	}
	s.checkDNSPermissions(hostnames)
}

// checkDNSPermissions tests that the documented permissions are enough, and that an error names the one to forward.
func (s *scene) checkDNSPermissions(ls *v1alpha1.LocalService) {
	s.T.Helper()
	read := []string{"get", "list"}
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "services", "pods"}, Verbs: read},
		{APIGroups: []string{discoveryv1.GroupName}, Resources: []string{"endpointslices"}, Verbs: read},
		{APIGroups: []string{v1alpha1.SchemeGroupVersion.Group}, Resources: []string{"localservices"}, Verbs: read},
	}
	kubeconfig := s.NewAccount(s.T, s.Namespace, "reader", framework.Permissions{Rules: rules})
	_, stderr, err := s.nodesWithDNS(s.Ctx(), kubeconfig, ls)
	if err == nil || !strings.Contains(stderr, `cannot create resource "pods/portforward"`) {
		s.T.Errorf("without permission to forward ports: %v: %s", err, stderr)
	}
	rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/portforward"},
		Verbs: []string{"create"}})
	kubeconfig = s.NewAccount(s.T, s.Namespace, "forwarder", framework.Permissions{Rules: rules})
	if _, stderr, err := s.nodesWithDNS(s.Ctx(), kubeconfig, ls); err != nil || stderr != "" {
		s.T.Errorf("with permission to forward ports: %v: %s", err, stderr)
	}
}

func (s *scene) nodesWithDNS(ctx context.Context, kubeconfig string, ls *v1alpha1.LocalService, args ...string) (stdout,
	stderr string, err error) {
	return framework.PluginProgram.Run(ctx, nil, []string{"KUBECONFIG=" + kubeconfig}, append([]string{"nodes", ls.Name,
		"--dns", "--namespace", s.Namespace, "-o", "json"}, args...)...)
}

// wantDNS waits until DNS has the wanted answers, by node.
func (s *scene) wantDNS(ls *v1alpha1.LocalService, want map[string]string) {
	s.T.Helper()
	s.Eventually("the plugin knows what DNS answers for "+ls.Name, func(ctx context.Context) error {
		stdout, stderr, err := s.nodesWithDNS(ctx, s.Kubeconfig, ls)
		if err != nil || stderr != "" {
			return fmt.Errorf("%v: %s", err, stderr)
		}
		var list struct {
			DNS   struct{ Pod string }
			Items []struct {
				Node string
				DNS  struct{ Result string }
			}
		}
		if err := json.Unmarshal([]byte(stdout), &list); err != nil {
			return err
		}
		if !strings.HasPrefix(list.DNS.Pod, "kube-system/coredns-") {
			return framework.Hopeless(fmt.Errorf("it has asked %s", list.DNS.Pod))
		}
		got := map[string]string{}
		for _, item := range list.Items {
			got[item.Node] = item.DNS.Result
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("DNS answers %v instead of %v:\n%s", got, want, stdout)
		}
		return nil
	})
}
