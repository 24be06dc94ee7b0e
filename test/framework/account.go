package framework

import (
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// AccountToken is a token of a service account, which must exist.
func (c *Cluster) AccountToken(t testing.TB, namespace, name string) string {
	t.Helper()
	accounts := c.Kube.CoreV1().ServiceAccounts(namespace)
	token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("make a token for service account %s/%s: %v", namespace, name, err)
	}
	return token.Status.Token
}

// AccountKubeconfig is a kubeconfig with the credentials of a service account, which must exist.
func (c *Cluster) AccountKubeconfig(t testing.TB, namespace, name string) string {
	t.Helper()
	token := c.AccountToken(t, namespace, name)
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
