package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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
	s.checkGroups()
}

// groups has the values of a label of nodes, and the hostnames of their groups: "" for one whose name another has.
var groups = []struct{ values, hostnames []string }{
	{[]string{"NVIDIA-H100-80GB-HBM3", "p5.48xlarge", "Standard_ND96isr_H100_v5"},
		[]string{"nvidia-h100-80gb-hbm3", "p5-48xlarge", "standard-nd96isr-h100-v5"}},
	{[]string{"BM.GPU.H100.8", "westeurope_1", strings.Repeat("A", 63)},
		[]string{"bm-gpu-h100-8", "westeurope-1", strings.Repeat("a", 63)}},
	{[]string{"A_b", "a-b", "A.B"}, []string{"", "a-b", ""}},
	{[]string{"blue_1", "Blue_1", "blue.1"}, []string{"", "blue-1", ""}},
}

// checkGroups tests that the values of usual labels have their names in DNS, and only the pods of their nodes answer. Of
// those that want one name, one has it, and the others are reported.
func (s *scene) checkGroups() {
	s.T.Helper()
	for i, group := range groups {
		key := fmt.Sprintf("%s.example.com/group-%d", s.Namespace, i)
		s.T.Cleanup(func() {
			_, err := s.Kubectl(context.Background(), "label", "nodes", "--all", key+"-")
			if err != nil {
				s.T.Error(err)
			}
		})
		of, results, hostnames := []string{}, map[string]string{}, map[string]string{}
		for n, node := range nodes {
			s.MustKubectl("label", "node", node, key+"="+group.values[n])
			results[group.values[n]] = ""
			if hostnames[node] = group.hostnames[n]; hostnames[node] != "" {
				of, results[group.values[n]] = append(of, node), "Answers"
			}
		}
		ls := s.hostnames(fmt.Sprintf("group-%d", i), func(ls *v1alpha1.LocalService) { ls.Spec.GroupBy = key })
		s.wantDNS(ls, results)
		s.wantAnswers(nodes[:1], of, func(node string) string {
			return fmt.Sprintf("http://%s.%s.%s:%d/", hostnames[node], ls.Name, s.Namespace, appPort)
		})
		if len(of) < len(nodes) {
			s.WaitNotReady(ls.Name, v1alpha1.ReasonNameTaken, fmt.Sprintf("2 values have no name: %s (%s is the name of",
				slices.Min(slices.DeleteFunc(slices.Clone(group.values), func(value string) bool {
					return results[value] != ""
				})), hostnames[of[0]]))
		}
	}
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
