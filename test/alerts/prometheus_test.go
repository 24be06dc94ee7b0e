package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// prometheus is a running Prometheus that listens on loopback, and ends with the test, with all its data.
type prometheus struct {
	*framework.Process
	url string
}

var listening = regexp.MustCompile(`msg="Listening on" address=(\S+)`)

// startPrometheus starts a Prometheus that scrapes a controller every second, and evaluates the chart's rules as often.
// Where a cause must last for minutes, seconds are enough.
func startPrometheus(t *testing.T, controller *framework.Controller) *prometheus {
	t.Helper()
	address, err := controller.Address(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir, p := t.TempDir(), &prometheus{}
	for file, content := range map[string]string{
		"rules.yaml": regexp.MustCompile(`for: (\d+)m\n`).ReplaceAllString(readFile(t, rulesFile(t)), "for: ${1}s\n"),
		"prometheus.yaml": fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\n"+
			"rule_files: [rules.yaml]\nscrape_configs:\n- job_name: %s\n  honor_labels: true\n"+
			"  static_configs: [{targets: [%q]}]\n", job, address),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(framework.PrometheusProgram.MustPath(t), "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	if p.Process, err = framework.StartProcess(cmd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	ctx, cancel := context.WithTimeout(t.Context(), framework.DefaultTimeout)
	defer cancel()
	address, err = p.WaitFor(ctx, "listening", func() string {
		if match := listening.FindStringSubmatch(p.Output()); match != nil {
			return match[1]
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	p.url = "http://" + address
	return p
}

// get sends a request to Prometheus' API.
func (p *prometheus) get(ctx context.Context, path string, parameters url.Values, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/"+path+"?"+parameters.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: into}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("Prometheus' answer to %s: %w", path, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("Prometheus: %s %v: %s", path, parameters, answer.Error)
	}
	return nil
}

// metrics returns the names of all metrics that Prometheus has.
func (p *prometheus) metrics(ctx context.Context) (names []string, err error) {
	err = p.get(ctx, "label/__name__/values", nil, &names)
	return names, err
}
