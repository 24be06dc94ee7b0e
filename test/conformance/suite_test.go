package conformance

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// result is what hack/conformance/suite writes when a test has ended.
type result struct {
	Name    string
	State   string
	Seconds float64
	Message string
}

// runSuite runs Kubernetes' tests with these names in several processes, and returns their results.
func runSuite(t *testing.T, cluster *framework.Cluster, names []string) map[string]result {
	t.Helper()
	dir := t.TempDir()
	kubectl := filepath.Join(dir, "kubectl")
	if err := os.Symlink(framework.PlaygroundProgram.MustPath(t), kubectl); err != nil {
		t.Fatal(err)
	}
	quoted := make([]string, 0, len(names))
	for _, name := range names {
		quoted = append(quoted, regexp.QuoteMeta(name))
	}
	file := filepath.Join(dir, "results")
	cmd := exec.Command(framework.GinkgoProgram.MustPath(t), "run", "-procs="+strconv.Itoa(*processes),
		"-no-color", "-succinct", "-silence-skips", "-timeout=90m", "-focus=("+strings.Join(quoted, "|")+")$",
		framework.ConformanceSuite.MustPath(t), "--",
		"-kubeconfig="+cluster.Kubeconfig, "-kubectl-path="+kubectl, "-results="+file)
	cmd.Env = append(os.Environ(), "HOME="+dir, "KUBECACHEDIR="+filepath.Join(dir, "cache"))
	process, err := framework.StartProcess(cmd, syscall.SIGTERM)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopSuite(t, process) })
	results := follow(t, process, file, len(names))
	if t.Context().Err() == nil && len(results) < len(names) {
		t.Errorf("the tests ended early:\n%s", process.Tail(60))
	}
	return results
}

// stopSuite ends the tests if they still run, and keeps what they have printed if the test has failed.
func stopSuite(t *testing.T, process *framework.Process) {
	t.Helper()
	if process.Running() {
		if err := process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if _, err := process.Wait(); err != nil {
			t.Error(err)
			process.Kill()
		}
	}
	if t.Failed() {
		log := framework.MustModuleFile(t, "bin", "conformance", "suite.log")
		if err := os.WriteFile(log, []byte(process.Output()), 0o600); err != nil {
			t.Error(err)
		}
		t.Logf("everything that Kubernetes' tests have printed is in %s", log)
	}
}

// follow prints the results as they come, until the process has ended, and returns them.
func follow(t *testing.T, process *framework.Process, file string, total int) map[string]result {
	t.Helper()
	results, read, failed := map[string]result{}, 0, 0
	for ended := false; !ended; {
		select {
		case <-process.Done():
			ended = true
		case <-time.After(time.Second):
		}
		content, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for {
			line, _, complete := bytes.Cut(content[read:], []byte("\n"))
			if !complete {
				break
			}
			read += len(line) + 1
			var r result
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatal(err)
			}
			results[r.Name] = r
			if r.State != "passed" {
				failed++
			}
			t.Logf("%d of %d, %d failed: %s %s (%.0f s)", len(results), total, failed, r.State, r.Name, r.Seconds)
		}
	}
	return results
}
