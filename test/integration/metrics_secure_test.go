package integration

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// secureAddress is where the controller's log says that it serves /metrics over TLS.
var secureAddress = regexp.MustCompile(`metricsSecureAddress="([^"]+)"`)

// TestSecureMetrics tests metrics that only clients with a permission can read, over TLS: nobody while the controller
// may not review tokens, then those with the role. The permissions in artifacts/deploy suffice. Who else is refused,
// and the renewal of the certificate, is tested in internal/app.
func TestSecureMetrics(t *testing.T) {
	t.Parallel()
	const namespace, account = framework.ControllerNamespace, framework.ControllerAccount
	cluster := framework.NewCluster(t, framework.ControlPlane())
	apply := func(name string) {
		t.Helper()
		cluster.RunKubectl(t, "apply", "--validate=strict", "-f",
			framework.ModuleFile("artifacts", "deploy", name))
	}
	apply("guard.yaml")
	apply("local-service-controller.yaml")
	cluster.RunKubectl(t, "create", "serviceaccount", "prometheus", "--namespace", namespace)
	token := strings.TrimSpace(cluster.RunKubectl(t, "create", "token", "prometheus", "--namespace", namespace))
	controller := cluster.NewController(t, "-kubeconfig="+cluster.AccountKubeconfig(t, namespace, account),
		"-metrics-secure-address=127.0.0.1:0")
	address := secureAddress.FindStringSubmatch(controller.Output())[1]
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // It has signed its certificate itself.
	// expect waits until a scrape has this result, and until the log has a line with some texts, if there are any.
	expect := func(what string, code int, says string, logs ...string) {
		t.Helper()
		cluster.Eventually(t, namespace, what, func(ctx context.Context) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", nil)
			if err != nil {
				return err
			}
			request.Header.Set("Authorization", "Bearer "+token)
			response, err := client.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err == nil && (response.StatusCode != code || !strings.Contains(string(body), says)) {
				err = fmt.Errorf("%s; want %d with %q:\n%.1000s", response.Status, code, says, body)
			}
			return errors.Join(err, atLeast(len(controller.LogLines(logs...)), 1))
		})
	}
	// Without either of the two permissions nobody reads the metrics, and the log says which one is missing.
	without := func(permission string) {
		t.Helper()
		expect("without "+permission, http.StatusServiceUnavailable, "the API server does not say",
			"artifacts/deploy/metrics-secure.yaml", permission)
	}
	without("tokenreviews")
	apply("metrics-secure.yaml")
	cluster.RunKubectl(t, "patch", "clusterrole", "local-service-metrics-auth", "--type=json",
		`--patch=[{"op": "test", "path": "/rules/1/resources/0", "value": "subjectaccessreviews"},
			{"op": "remove", "path": "/rules/1"}]`)
	without("subjectaccessreviews")
	apply("metrics-secure.yaml")
	expect("no right", http.StatusForbidden, "local-service-metrics-reader")
	cluster.RunKubectl(t, "create", "clusterrolebinding", "prometheus", "--clusterrole=local-service-metrics-reader",
		"--serviceaccount="+namespace+":prometheus")
	expect("all that it takes", http.StatusOK, `localservice_objects{mode="Services"} 0`)

	for path, want := range map[string]int{"/metrics": http.StatusNotFound, "/healthz": http.StatusOK} {
		if status, _, err := controller.Get(t.Context(), path); err != nil || status != want {
			t.Errorf("%s at -http-address: %d, %v; want %d", path, status, err, want)
		}
	}
}
