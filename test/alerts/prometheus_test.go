package alerts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// prometheus is a running Prometheus that listens on loopback, and ends with the test, with all its data.
type prometheus struct {
	*framework.Process
	url     string
	targets string // a file
}

var listening = regexp.MustCompile(`msg="Listening on" address=(\S+)`)

// startPrometheus starts a Prometheus that scrapes every second, and evaluates rules as often. They are those of the
// chart, except for the durations: see shorten.
func startPrometheus(t *testing.T) *prometheus {
	t.Helper()
	dir := t.TempDir()
	p := &prometheus{targets: filepath.Join(dir, "targets.json")}
	p.scrape(t)
	for file, content := range map[string]string{
		"rules.yaml": shorten(readFile(t, rulesFile(t))),
		"prometheus.yaml": "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yaml]\n" +
			"scrape_configs:\n- job_name: " + job +
			"\n  honor_labels: true\n  file_sd_configs: [{files: [targets.json]}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(framework.PrometheusProgram.MustPath(t), "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	var err error
	if p.Process, err = framework.StartProcess(cmd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	ctx, cancel := context.WithTimeout(t.Context(), framework.DefaultTimeout)
	defer cancel()
	address, err := p.WaitFor(ctx, "listening", func() string {
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

var (
	forMinutes   = regexp.MustCompile(`for: (\d+)m\n`)
	rangeMinutes = regexp.MustCompile(`\[(\d+)m\]`)
)

// shorten makes minutes of rules short enough for a test: how long a cause must last is a sixtieth, how far an
// expression looks back a thirtieth, as refusals are tried again after 10 and 20 seconds. The age of a cache is up to
// 75 seconds at rest: what is too old for the test is a little more.
func shorten(rules string) string {
	seconds := func(pattern *regexp.Regexp, format string, factor int) {
		rules = pattern.ReplaceAllStringFunc(rules, func(match string) string {
			minutes, _ := strconv.Atoi(pattern.FindStringSubmatch(match)[1]) // It has only digits.
			return fmt.Sprintf(format, minutes*factor)
		})
	}
	seconds(forMinutes, "for: %ds\n", 1)
	seconds(rangeMinutes, "[%ds]", 2)
	return regexp.MustCompile(`(localservice_cache_age_seconds\) >) 180`).ReplaceAllString(rules, "$1 90")
}

// scrape makes Prometheus scrape these controllers, and no others.
func (p *prometheus) scrape(t testing.TB, controllers ...*framework.Controller) {
	t.Helper()
	addresses := []string{}
	for _, controller := range controllers {
		address, err := controller.Address(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, address)
	}
	data, err := json.Marshal([]map[string][]string{{"targets": addresses}})
	if err == nil {
		err = os.WriteFile(p.targets+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(p.targets+".new", p.targets)
	}
	if err != nil {
		t.Fatal(err)
	}
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

// query evaluates an expression now, and returns how many series there are.
func (p *prometheus) query(ctx context.Context, expr string) (count int, err error) {
	var result struct{ Result []json.RawMessage }
	err = p.get(ctx, "query", url.Values{"query": {expr}}, &result)
	return len(result.Result), err
}

// metrics returns the names of all metrics that Prometheus has.
func (p *prometheus) metrics(ctx context.Context) (names []string, err error) {
	err = p.get(ctx, "label/__name__/values", nil, &names)
	return names, err
}

// alert is an alert that fires, or will if its cause lasts.
type alert struct {
	Labels, Annotations map[string]string
	State               string
}

func (p *prometheus) alerts(ctx context.Context) ([]alert, error) {
	var result struct{ Alerts []alert }
	err := p.get(ctx, "alerts", nil, &result)
	return result.Alerts, err
}

// find returns the alert of a name that has some labels, nil for none.
func (p *prometheus) find(ctx context.Context, name string, with map[string]string) (*alert, error) {
	all, err := p.alerts(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		has := labels.Set(all[i].Labels)
		if has["alertname"] == name && labels.SelectorFromSet(with).Matches(has) {
			return &all[i], nil
		}
	}
	return nil, nil
}

var errSilent = errors.New("it does not fire")
