// Package conformance runs Kubernetes' own conformance tests of workloads and networks in a cluster where all pods get
// the node label, and LocalServices select everything that the tests run: nothing that Kubernetes promises may break.
// `make test-conformance` builds what it needs, and runs it with the admission policies and without. If a test fails,
// `go test ./conformance -bare -focus NAME` shows whether it fails without the controller, too.
package conformance

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

var (
	bare = flag.Bool("bare", false, "leave out the controller and all that belongs to it: "+
		"what fails then is not the controller's fault")
	policies = flag.Bool("policies", true, "install the admission policies, by which the API server labels pods; "+
		"without them, the controller labels each")
	focus     = flag.String("focus", "", "run only the tests whose names match this `regular expression`")
	processes = flag.Int("processes", 6, "how many tests run at a time")
)

// conformance matches the tests that every cluster has to pass, of the groups that the controller could disturb.
var conformance = regexp.MustCompile(`^\[sig-(apps|network)\] .*\[Conformance\]`)

func TestConformance(t *testing.T) {
	names := selectTests(t)
	cluster := framework.NewCluster(t, framework.ClusterOptions{
		Nodes: []string{"k8s01", "k8s02", "k8s03"}, Hostnames: true, WithoutCRD: *bare,
		// The tarball has more images, under the names that the tests use.
		Images: map[string]string{
			"localhost/conformance:1": framework.ModuleFile("bin", "conformance", "images.tar"),
		},
	})
	if !*bare {
		cluster.NewController(t, "-label-all-pods")
		if *policies {
			cluster.RunKubectl(t, "apply", "--validate=strict",
				"--kustomize="+framework.ModuleFile("artifacts", "admission"))
		}
		everything := publishEverything(t, cluster)
		defer everything.check(t)
	}
	began := time.Now()
	results := runSuite(t, cluster, names)
	passed := 0
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			result, ok := results[name]
			if !ok {
				t.Fatal("it has not run")
			}
			if result.State != "passed" {
				t.Fatalf("%s after %.0f s: %s", result.State, result.RunTime.Seconds(), result.Failure.Message)
			}
			passed++
		})
	}
	t.Logf("%d of %d tests passed in %v", passed, len(names), time.Since(began).Round(time.Second))
}

// selectTests returns the names of the tests to run.
func selectTests(t *testing.T) []string {
	t.Helper()
	out, _, err := framework.ConformanceSuite.Run(t.Context(), nil, nil, "-list-tests")
	if err != nil {
		t.Fatal(err)
	}
	focused, err := regexp.Compile(*focus)
	if err != nil {
		t.Fatal(err)
	}
	leftOut := readLeftOut(t)
	var names []string
	for line := range strings.Lines(out) {
		_, name, _ := strings.Cut(strings.TrimSpace(line), ": ") // FILE:LINE comes first.
		if !conformance.MatchString(name) {
			continue
		}
		if i := slices.Index(leftOut, name); i >= 0 {
			leftOut = slices.Delete(leftOut, i, i+1)
		} else if focused.MatchString(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 || len(leftOut) > 0 {
		t.Fatalf("%d tests are selected; left-out.txt has some that Kubernetes does not have: %q", len(names), leftOut)
	}
	return names
}

// readLeftOut returns the names in left-out.txt. The reason for each is below it.
func readLeftOut(t *testing.T) (names []string) {
	t.Helper()
	content, err := os.ReadFile("left-out.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(content), "\n") {
		if line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "    ") {
			names = append(names, line)
		}
	}
	return names
}
