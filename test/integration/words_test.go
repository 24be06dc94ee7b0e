package integration

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestStatusWords: what people set by mistake is named in Ready, rather than called ready. What the plugin says is in
// the tables of its rules.
func TestStatusWords(t *testing.T) {
	t.Parallel()
	const edge = "node-role.kubernetes.io/edge"
	for word, test := range map[string]func(s *scene){
		"the label of groupBy is empty": func(s *scene) {
			s.CreateNode(s.NodeName("empty"), map[string]string{edge: ""})
			byEdge := func(ls *v1alpha1.LocalService) { ls.Spec.GroupBy = edge }
			s.Create("demo", framework.WithHostnames, byEdge)
			s.waitReadySays("demo", "no name to publish, and 1 node with an empty value of the label "+edge,
				"the value is the name")
			s.CreateNode(s.NodeName("none"), nil)
			s.CreateNode(s.NodeName("value"), map[string]string{edge: "yes"})
			s.run("pod", s.NodeName("value"), "10.9.0.2")
			s.waitReadySays("demo", "every name is published, and 1 node without the label "+edge,
				"1 node with an empty value of the label")
		},
		"no container has the port": func(s *scene) {
			node := s.AddNodes("a")[0]
			s.Create("demo", func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].TargetPort = intstr.FromString("web") })
			s.run("pod", node, "10.9.0.3")
			s.waitReadySays("demo", "no container has a port named web")
		},
	} {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			test(newPublishingScene(t, "words"))
		})
	}
}

// waitReadySays waits until the message of the condition Ready has these texts.
func (s *scene) waitReadySays(name string, texts ...string) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("Ready of %s says %q", name, texts), func(context.Context) error {
		message := s.MustKubectl("get", "localservice", name,
			`-o=jsonpath={.status.conditions[?(@.type=="Ready")].message}`)
		for _, text := range texts {
			if !strings.Contains(message, text) {
				return errors.New(message)
			}
		}
		return nil
	})
}

// TestAuthProvider: the plugin works with the kubeconfigs that login helpers for OpenID Connect write, as kubectl does.
// Until it has expired, client-go sends the ID token as it is; here it is a service account's.
func TestAuthProvider(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "auth-provider")
	s.Create("demo")
	read := framework.Permissions{OwnRules: []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}}
	config, err := clientcmd.LoadFromFile(s.NewAccount(t, s.Namespace, "reader", read))
	s.Must(err)
	for name, user := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "oidc",
			Config: map[string]string{"id-token": user.Token, "idp-issuer-url": "https://127.0.0.1:1",
				"client-id": "test"}}}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	s.Must(clientcmd.WriteToFile(*config, path))
	out, errOut, err := framework.PluginProgram.Run(s.Ctx(), nil, []string{"KUBECONFIG=" + path}, "nodes",
		"--namespace="+s.Namespace)
	if err != nil || !strings.Contains(out+errOut, "LocalServices: 1") {
		t.Errorf("%v: %s\n%s", err, errOut, out)
	}
}
