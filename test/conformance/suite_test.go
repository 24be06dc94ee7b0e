package conformance

import (
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

// result holds what ginkgo reports of a test that has ended.
type result struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	State                   string
	RunTime                 time.Duration
	Failure                 struct{ Message string }
}

// runSuite runs Kubernetes' tests with these names in several processes, which print what happens, and returns their
// results.
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
	cmd := exec.Command(framework.GinkgoProgram.MustPath(t), "run", "-procs="+strconv.Itoa(*processes),
		"-no-color", "-succinct", "-silence-skips", "-timeout=90m", "-focus=("+strings.Join(quoted, "|")+")$",
		"-output-dir="+dir, "-json-report=report.json", framework.ConformanceSuite.MustPath(t), "--",
		"-kubeconfig="+cluster.Kubeconfig, "-kubectl-path="+kubectl)
	cmd.Env = append(os.Environ(), "HOME="+dir, "KUBECACHEDIR="+filepath.Join(dir, "cache"))
	cmd.Stdout = os.Stdout
	process, err := framework.StartProcess(cmd, syscall.SIGTERM)
	if err != nil {
		t.Fatal(err)
	}
	<-process.Done()
	content, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatalf("%v\n%s", err, process.Tail(60))
	}
	var reports []struct{ SpecReports []result }
	if err := json.Unmarshal(content, &reports); err != nil {
		t.Fatal(err)
	}
	results := map[string]result{}
	for _, report := range reports {
		for _, r := range report.SpecReports {
			results[strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " ")] = r
		}
	}
	return results
}
