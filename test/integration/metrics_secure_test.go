package integration

import (
	"context"
	"crypto/tls"
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

// TestSecureMetrics tests metrics that only clients with the role can read, over TLS, and nobody without TLS. The
// permissions in artifacts/deploy suffice. Who else is refused, and the renewal of the certificate, is tested in
// internal/app.
func TestSecureMetrics(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "secure")
	s.RunKubectl(t, "apply", "--validate=strict", "-f", framework.ModuleFile("artifacts", "deploy",
		framework.SecureMetricsPermissions))
	s.MustKubectl("create", "serviceaccount", "prometheus")
	token := strings.TrimSpace(s.MustKubectl("create", "token", "prometheus"))
	controller := s.NewController(t, "-metrics-secure-address=127.0.0.1:0")
	address := secureAddress.FindStringSubmatch(controller.Output())[1]
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // It has signed its certificate itself.
	wantScrape := func(code int, says string) {
		t.Helper()
		s.Eventually(fmt.Sprintf("a scrape is answered with %d", code), func(ctx context.Context) error {
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
				err = fmt.Errorf("%s, and not %q:\n%.1000s", response.Status, says, body)
			}
			return err
		})
	}
	const role = "local-service-metrics-reader"
	wantScrape(http.StatusForbidden, role)
	s.MustKubectl("create", "clusterrolebinding", "prometheus", "--clusterrole="+role,
		"--serviceaccount="+s.Namespace+":prometheus")
	wantScrape(http.StatusOK, "localservice_services{")

	for path, want := range map[string]int{"/metrics": http.StatusNotFound, "/healthz": http.StatusOK} {
		if status, _, err := controller.Get(t.Context(), path); err != nil || status != want {
			t.Errorf("%s at -http-address: %d, %v; want %d", path, status, err, want)
		}
	}
}
