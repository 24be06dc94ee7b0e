package integration

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	certutil "k8s.io/client-go/util/cert"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// secureAddress is where the controller's log says that it serves /metrics over TLS.
var secureAddress = regexp.MustCompile(`metricsSecureAddress="([^"]+)"`)

// TestSecureMetrics tests metrics that only clients with a permission can read: none while the controller may not
// review tokens and access, then those with the role. They are served over TLS, with a certificate that is renewed, and
// not at the address of /healthz. The permissions in artifacts/deploy suffice.
func TestSecureMetrics(t *testing.T) {
	t.Parallel()
	const namespace, account = framework.ControllerNamespace, framework.ControllerAccount
	cluster := framework.NewCluster(t, controlPlane())
	ctx := t.Context()
	apply := func(name string) {
		t.Helper()
		cluster.RunKubectl(t, "apply", "--validate=strict", "-f",
			framework.MustModuleFile(t, "artifacts", "deploy", name))
	}
	apply("guard.yaml")
	apply("local-service-controller.yaml")
	cluster.RunKubectl(t, "create", "serviceaccount", "prometheus", "--namespace", namespace)
	token := strings.TrimSpace(cluster.RunKubectl(t, "create", "token", "prometheus", "--namespace", namespace))

	dir := t.TempDir()
	certificate := func(host string) {
		t.Helper()
		cert, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	certificate("first")
	controller := cluster.NewController(t, "-kubeconfig="+cluster.AccountKubeconfig(t, namespace, account),
		"-metrics-secure-address=127.0.0.1:0", "-metrics-tls-cert-file="+filepath.Join(dir, "tls.crt"),
		"-metrics-tls-key-file="+filepath.Join(dir, "tls.key"))
	address := secureAddress.FindStringSubmatch(controller.Output())[1]

	// expect waits until a scrape with a token gets an answer from a server of that name.
	expect := func(what, token string, code int, host, says string) {
		t.Helper()
		cluster.Eventually(t, namespace, what, func(ctx context.Context) error {
			got, server, body, err := scrape(ctx, address, token)
			if err == nil && (got != code || server != host || !strings.Contains(body, says)) {
				err = fmt.Errorf("%d from %s; want %d from %s with %q:\n%s", got, server, code, host, says,
					framework.LastLines(body, 10))
			}
			return err
		})
	}
	// Without either of the two permissions nobody reads the metrics, and the log says which one is missing.
	without := func(permission string) {
		t.Helper()
		expect("without "+permission, token, http.StatusServiceUnavailable, "first", "the API server does not say")
		cluster.Eventually(t, namespace, "the log says what is missing", func(ctx context.Context) error {
			_, _, _, err := scrape(ctx, address, token)
			lines := controller.LogLines("artifacts/deploy/metrics-secure.yaml", permission)
			return errors.Join(err, atLeast(len(lines), 1))
		})
	}
	without("tokenreviews")
	apply("metrics-secure.yaml")
	cluster.RunKubectl(t, "patch", "clusterrole", "local-service-metrics-auth", "--type=json",
		`--patch=[{"op": "test", "path": "/rules/1/resources/0", "value": "subjectaccessreviews"},
			{"op": "remove", "path": "/rules/1"}]`)
	without("subjectaccessreviews")
	apply("metrics-secure.yaml")
	expect("no token", "", http.StatusUnauthorized, "first", "a bearer token is needed")
	expect("no such token", "x", http.StatusUnauthorized, "first", "does not accept this token")
	expect("no right", token, http.StatusForbidden, "first", "local-service-metrics-reader")
	cluster.RunKubectl(t, "create", "clusterrolebinding", "prometheus", "--clusterrole=local-service-metrics-reader",
		"--serviceaccount="+namespace+":prometheus")
	expect("all that it takes", token, http.StatusOK, "first", `localservice_objects{mode="Services"} 0`)
	certificate("second")
	expect("a renewed certificate", token, http.StatusOK, "second", "localservice_")

	for path, want := range map[string]int{"/metrics": http.StatusNotFound, "/healthz": http.StatusOK} {
		if status, _, err := controller.Get(ctx, path); err != nil || status != want {
			t.Errorf("%s at -http-address: %d, %v; want %d", path, status, err, want)
		}
	}
	if response, err := http.Get("http://" + address + "/metrics"); err != nil {
		t.Error(err)
	} else if response.Body.Close(); response.StatusCode != http.StatusBadRequest {
		t.Errorf("without TLS: %s", response.Status)
	}
}

// scrape reads the metrics over TLS, and returns which server has answered.
func scrape(ctx context.Context, address, token string) (code int, server, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", nil)
	if err != nil {
		return 0, "", "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // The test looks at the certificate itself.
	response, err := client.Do(request)
	if err != nil {
		return 0, "", "", err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	return response.StatusCode, response.TLS.PeerCertificates[0].DNSNames[0], string(b), err
}
