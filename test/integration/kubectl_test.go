package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

func TestStatusKubectl(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "kubectl")
	s.AddNodes("a", "b")
	s.CreateReady("demo")

	t.Run("wait", func(t *testing.T) {
		s.in(t).MustKubectl("wait", "--for=condition=Ready", "--timeout=2m", "localservice/demo")
	})
	t.Run("get", func(t *testing.T) {
		s := s.in(t)
		for _, resource := range []string{"lsvc", "localservice", "localservices", "localservices.localservice.dev"} {
			wantTable(t, s.MustKubectl("get", resource),
				`NAME +NODES +SERVICES +READY +AGE`,
				`demo +2 +2 +0/2 +[0-9ms]+`)
		}
		wantTable(t, s.MustKubectl("get", "lsvc", "-o", "wide"),
			`NAME +NODES +SERVICES +READY +CONDITION +AGE`,
			`demo +2 +2 +0/2 +ServicesInPlace +[0-9ms]+`)
	})
	t.Run("get all", func(t *testing.T) {
		out := s.in(t).MustKubectl("get", "all")
		for _, want := range []string{"localservice.localservice.dev/demo", "service/demo-" + s.NodeName("a"), "service/demo-" + s.NodeName("b")} {
			if !strings.Contains(out, want) {
				t.Errorf("kubectl get all does not show %s:\n%s", want, out)
			}
		}
	})
	t.Run("get services by owner and by node", func(t *testing.T) {
		s := s.in(t)
		if out := s.MustKubectl("get", "services", "--selector", "owner=demo", "-o", "name"); strings.Count(out, "\n") != 2 {
			t.Errorf("the Services with the label owner=demo: %s", out)
		}
		if out := s.MustKubectl("get", "services", "--selector", nodeLabel+"="+s.NodeName("a"), "-o", "name"); out != "service/demo-"+s.NodeName("a")+"\n" {
			t.Errorf("the Services of node a: %s", out)
		}
	})
	t.Run("describe", func(t *testing.T) {
		s := s.in(t)
		out := s.MustKubectl("describe", "localservice", "demo")
		for _, want := range []string{"ServicesInPlace", "every selected node has its Service"} {
			if !strings.Contains(out, want) {
				t.Errorf("kubectl describe does not show %q:\n%s", want, out)
			}
		}
	})
	t.Run("explain", func(t *testing.T) {
		s := s.in(t)
		out := s.MustKubectl("explain", "localservice.spec")
		for _, field := range []string{
			"allocateLoadBalancerNodePorts", "clusterIP", "externalTrafficPolicy", "internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy",
			"loadBalancerClass", "loadBalancerSourceRanges", "nodeSelector", "ports", "publishNotReadyAddresses", "selector", "serviceMetadata",
			"sessionAffinity", "sessionAffinityConfig", "trafficDistribution", "type",
		} {
			if !regexp.MustCompile(`(?m)^  ` + field + `\t<.+>.*\n(  enum: .*\n)?    \S`).MatchString(out) {
				t.Errorf("kubectl explain does not explain spec.%s:\n%s", field, out)
			}
		}
		if out := s.MustKubectl("explain", "lsvc.spec.ports.nodePort"); !strings.Contains(out, "cannot be set") {
			t.Errorf("kubectl explain does not say that nodePort cannot be set:\n%s", out)
		}
	})
	t.Run("a misspelt field", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "typo.yaml")
		s := s.in(t)
		s.Must(os.WriteFile(file, []byte(`{apiVersion: localservice.dev/v1alpha1, kind: LocalService, metadata: {name: typo}, spec: {clusterIP: None, selectors: {app: demo}}}`), 0o600))
		_, err := s.Kubectl(s.Ctx(), "--namespace", s.Namespace, "create", "-f", file)
		s.wantRefusal(err, `unknown field "spec.selectors"`)
	})
}

// wantTable fails unless a table has these lines, which are regular expressions.
func wantTable(t *testing.T, table string, lines ...string) {
	t.Helper()
	if !regexp.MustCompile(`^` + strings.Join(lines, ` *\n`) + ` *\n$`).MatchString(table) {
		t.Errorf("the table\n%s is not\n%s", table, strings.Join(lines, "\n"))
	}
}

// TestExamplesAreAccepted tests that a real API server takes the files that users are told to create.
func TestExamplesAreAccepted(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "examples")
	for _, file := range []string{"artifacts/examples/example.yaml"} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s := s.in(t)
			path, err := framework.ModuleFile(file)
			s.Must(err)
			out := s.MustKubectl("create", "--dry-run=server", "--validate=strict", "-f", path)
			if want := countDocuments(t, path); strings.Count(out, "created (server dry run)") != want {
				t.Errorf("of %d objects were created:\n%s", want, out)
			}
		})
	}
}

func countDocuments(t *testing.T, path string) int {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	count := 0
	for decoder := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var object map[string]any
		if err := decoder.Decode(&object); err != nil {
			return count
		}
		if len(object) > 0 {
			count++
		}
	}
}
